"""Make `howdah.hadoop`'s descriptors and type stubs from its .proto texts.

    python tools/hadoop_protos.py            writes them
    python tools/hadoop_protos.py --check    says whether they are up to date (exit status 1 if not)

No protoc: the texts use a small part of proto2 (messages, enums, nested ones, scalar fields,
defaults, packed), and descriptors are data. So nothing generated depends on the version of the
protobuf runtime, which users' environments choose.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2

FOLDER = Path(__file__).resolve().parents[1] / "src" / "howdah" / "hadoop" / "protos"
DESCRIPTORS = FOLDER / "descriptors.bin"

_TOKEN = re.compile(r'//[^\n]*|"[^"]*"|-?[A-Za-z0-9_.]+|[{}\[\]=;,]')
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "double": (_FIELD.TYPE_DOUBLE, "float"),
    "float": (_FIELD.TYPE_FLOAT, "float"),
    "int64": (_FIELD.TYPE_INT64, "int"),
    "uint64": (_FIELD.TYPE_UINT64, "int"),
    "int32": (_FIELD.TYPE_INT32, "int"),
    "uint32": (_FIELD.TYPE_UINT32, "int"),
    "sint32": (_FIELD.TYPE_SINT32, "int"),
    "sint64": (_FIELD.TYPE_SINT64, "int"),
    "fixed32": (_FIELD.TYPE_FIXED32, "int"),
    "fixed64": (_FIELD.TYPE_FIXED64, "int"),
    "bool": (_FIELD.TYPE_BOOL, "bool"),
    "string": (_FIELD.TYPE_STRING, "str"),
    "bytes": (_FIELD.TYPE_BYTES, "bytes"),
}
_LABELS = {
    "optional": _FIELD.LABEL_OPTIONAL,
    "required": _FIELD.LABEL_REQUIRED,
    "repeated": _FIELD.LABEL_REPEATED,
}


class _Parser:
    """One .proto text to its descriptor; types are resolved afterwards, over all files."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.tokens = [t for t in _TOKEN.findall(text) if not t.startswith("//")]
        self.at = 0

    def next(self, expected: str | None = None) -> str:
        if self.at >= len(self.tokens):
            raise SystemExit(f"{self.name}: ends too early")
        token = self.tokens[self.at]
        self.at += 1
        if expected is not None and token != expected:
            around = " ".join(self.tokens[max(0, self.at - 8) : self.at + 4])
            raise SystemExit(f"{self.name}: expected {expected!r}, found {token!r} in: {around}")
        return token

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        file = descriptor_pb2.FileDescriptorProto(name=self.name)
        while self.at < len(self.tokens):
            word = self.next()
            if word == "syntax":
                self.next("=")
                self.next('"proto2"')
                self.next(";")
            elif word == "package":
                file.package = self.next()
                self.next(";")
            elif word == "import":
                file.dependency.append(self.next().strip('"'))
                self.next(";")
            elif word == "message":
                self.message(file.message_type.add())
            elif word == "enum":
                self.enum(file.enum_type.add())
            else:
                raise SystemExit(f"{self.name}: {word!r} is not expected here")
        return file

    def message(self, message: descriptor_pb2.DescriptorProto) -> None:
        message.name = self.next()
        self.next("{")
        while (word := self.next()) != "}":
            if word == "message":
                self.message(message.nested_type.add())
            elif word == "enum":
                self.enum(message.enum_type.add())
            else:
                self.field(message.field.add(), word)

    def field(self, field: descriptor_pb2.FieldDescriptorProto, label: str) -> None:
        field.label = _LABELS[label]
        field.type_name = self.next()
        field.name = self.next()
        self.next("=")
        field.number = int(self.next())
        if (word := self.next()) == "[":
            while word != "]":
                option = self.next()
                self.next("=")
                value = self.next()
                if option == "default":
                    field.default_value = value.strip('"')
                elif option == "packed":
                    field.options.packed = value == "true"
                else:
                    raise SystemExit(f"{self.name}: option {option!r} of {field.name} is not known")
                word = self.next()
            self.next(";")

    def enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        enum.name = self.next()
        self.next("{")
        while (name := self.next()) != "}":
            self.next("=")
            enum.value.add(name=name, number=int(self.next()))
            self.next(";")


def _declared(prefix: str, node, types: dict[str, int]) -> None:
    for enum in node.enum_type:
        types[f"{prefix}.{enum.name}"] = _FIELD.TYPE_ENUM
    messages = node.message_type if hasattr(node, "message_type") else node.nested_type
    for message in messages:
        types[f"{prefix}.{message.name}"] = _FIELD.TYPE_MESSAGE
        _declared(f"{prefix}.{message.name}", message, types)


def _resolve(scope: str, message, types: dict[str, int]) -> None:
    for field in message.field:
        wanted = field.type_name
        if wanted in _SCALARS:
            field.ClearField("type_name")
            field.type = _SCALARS[wanted][0]
            continue
        around = scope.split(".")
        candidates = [".".join([*around[:n], wanted]) for n in range(len(around), -1, -1)]
        found = next((name for name in candidates if name in types), None)
        if found is None:
            raise SystemExit(f"{scope}.{field.name}: the type {wanted!r} is declared nowhere")
        field.type_name = "." + found
        field.type = types[found]
    for nested in message.nested_type:
        _resolve(f"{scope}.{nested.name}", nested, types)


def compile_protos(folder: Path = FOLDER) -> descriptor_pb2.FileDescriptorSet:
    """Descriptors of all .proto files of the folder, each after what it imports."""
    files = {p.name: _Parser(p.name, p.read_text()).file() for p in sorted(folder.glob("*.proto"))}
    types: dict[str, int] = {}
    for file in files.values():
        _declared(file.package, file, types)
    result = descriptor_pb2.FileDescriptorSet()
    done: set[str] = set()

    def add(name: str) -> None:
        if name in done:
            return
        done.add(name)
        for dependency in files[name].dependency:
            add(dependency)
        for message in files[name].message_type:
            _resolve(f"{files[name].package}.{message.name}", message, types)
        result.file.append(files[name])

    for name in files:
        add(name)
    return result


_STUB_HEAD = '''"""Types of the messages of `{package}`: made by tools/hadoop_protos.py, not by hand."""

{iterable}from google.protobuf.message import Message

from howdah.hadoop.protos.containers import {used}
{imports}

'''


def _type_of(field: descriptor_pb2.FieldDescriptorProto, package: str) -> str:
    if field.type == _FIELD.TYPE_ENUM:
        return "int"
    if field.type == _FIELD.TYPE_MESSAGE:
        name = field.type_name.lstrip(".")
        if name.startswith(package + "."):
            return name[len(package) + 1 :]
        return name.removeprefix("hadoop.")
    return next(python for number, python in _SCALARS.values() if number == field.type)


def _stub_message(message, package: str, indent: str) -> Iterator[str]:
    yield f"{indent}class {message.name}(Message):"
    inner = indent + "    "
    for enum in message.enum_type:
        yield from _stub_enum(enum, inner)
    for nested in message.nested_type:
        yield from _stub_message(nested, package, inner)
    arguments: list[str] = []
    for field in message.field:
        name = field.name
        python = _type_of(field, package)
        if field.label == _FIELD.LABEL_REPEATED:
            kind = "Composites" if field.type == _FIELD.TYPE_MESSAGE else "Scalars"
            arguments.append(f"{name}: Iterable[{python}] = ...")
            yield f"{inner}@property"
            yield f"{inner}def {name}(self) -> {kind}[{python}]: ..."
        elif field.type == _FIELD.TYPE_MESSAGE:
            arguments.append(f"{name}: {python} | None = ...")
            yield f"{inner}@property"
            yield f"{inner}def {name}(self) -> {python}: ..."
        else:
            arguments.append(f"{name}: {python} | None = ...")
            yield f"{inner}{name}: {python}"
        if keyword.iskeyword(name):
            raise SystemExit(f"{message.name}.{name} is a word of Python's")
    star = ["*"] if arguments else []
    yield f"{inner}def __init__({', '.join(['self', *star, *arguments])}) -> None: ..."


def _stub_enum(enum, indent: str) -> Iterator[str]:
    yield f"{indent}class _{enum.name}(EnumType):"
    for value in enum.value:
        if not keyword.iskeyword(value.name):
            yield f"{indent}    {value.name}: int"
    yield f"{indent}{enum.name}: _{enum.name}"


def stub(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The type stub of one file's package."""
    imports = "".join(
        f"from howdah.hadoop.protos import {name.removesuffix('.proto')}\n"
        for name in file.dependency
    )
    lines: list[str] = []
    for enum in file.enum_type:
        lines += [*_stub_enum(enum, ""), ""]
    for message in file.message_type:
        lines += [*_stub_message(message, file.package, ""), ""]
    body = "\n".join(lines)
    used = ", ".join(
        n for n in ("Composites", "EnumType", "Scalars") if re.search(rf"\b{n}\b", body)
    )
    iterable = "from collections.abc import Iterable\n\n" if "Iterable[" in body else ""
    head = _STUB_HEAD.format(package=file.package, iterable=iterable, imports=imports, used=used)
    return head + body


def outputs() -> dict[Path, bytes]:
    """What is to be in each generated file."""
    descriptors = compile_protos()
    wanted = {DESCRIPTORS: descriptors.SerializeToString(deterministic=True)}
    for file in descriptors.file:
        wanted[FOLDER / file.name.replace(".proto", ".pyi")] = stub(file).encode()
    return wanted


def main() -> int:
    stale = [p for p, data in outputs().items() if not p.exists() or p.read_bytes() != data]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} is not what the .proto texts say: run tools/hadoop_protos.py")
        return 1 if stale else 0
    for path in stale:
        path.write_bytes(outputs()[path])
        print("wrote", path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
