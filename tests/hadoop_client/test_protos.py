"""The messages: generated files in step with the texts, and the texts with the real servers'."""

from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from howdah.hadoop import protos
from howdah.hadoop.protos import common, hdfs, yarn
from tests.hadoop import artifacts

ROOT = Path(__file__).parents[2]


def test_the_generated_files_are_what_the_texts_say() -> None:
    tool = ROOT / "tools" / "hadoop_protos.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_and_enums_are_attributes_of_their_packages() -> None:
    assert yarn.ResourceProto is protos.message("hadoop.yarn.ResourceProto")
    assert yarn.YarnApplicationStateProto.RUNNING == 5
    assert yarn.YarnApplicationStateProto.Name(5) == "RUNNING"
    assert common.RpcSaslProto.SaslState.NEGOTIATE == 1
    assert (
        hdfs.GetFsStatusRequestProto.DESCRIPTOR.full_name == "hadoop.hdfs.GetFsStatusRequestProto"
    )
    with pytest.raises(AttributeError, match="NoSuchProto"):
        _ = yarn.NoSuchProto  # pyright: ignore
    with pytest.raises(KeyError):
        protos.message("hadoop.yarn.NoSuchProto")


def test_the_descriptors_are_in_a_pool_of_their_own() -> None:
    from google.protobuf import descriptor_pool

    assert yarn.ResourceProto.DESCRIPTOR.file.pool is protos.pool()
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("hadoop.yarn.ResourceProto")


def _texts(data: bytes) -> Iterator[bytes]:
    """The string constants of a Java class file, as the bytes that they stand for."""
    (count,) = struct.unpack_from(">H", data, 8)
    sizes = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2}
    sizes |= {17: 4, 18: 4, 19: 2, 20: 2}
    utf8: dict[int, bytes] = {}
    strings: list[int] = []
    at, index = 10, 1
    while index < count:
        tag = data[at]
        if tag == 1:
            (size,) = struct.unpack_from(">H", data, at + 1)
            utf8[index] = data[at + 3 : at + 3 + size]
            at += 3 + size
        else:
            if tag == 8:
                strings.append(struct.unpack_from(">H", data, at + 1)[0])
            at += 1 + sizes[tag]
            index += tag in (5, 6)  # long and double count twice
        index += 1
    for number in strings:
        text = utf8[number].replace(b"\xc0\x80", b"\0").decode("utf-8", "replace")
        try:
            yield text.encode("latin-1")
        except UnicodeEncodeError:
            continue


def _descriptors(jar: Path) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """The descriptors that protobuf's generated Java classes of a jar hold as string constants."""
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if "/proto" not in name or "$" in name or not name.endswith(".class"):
                continue
            texts = list(_texts(archive.read(name)))
            for at, text in enumerate(texts):
                if text[:1] != b"\n" or b".proto" not in text[:100]:
                    continue
                for end in range(at + 1, len(texts) + 1):
                    file = descriptor_pb2.FileDescriptorProto()
                    try:
                        file.ParseFromString(b"".join(texts[at:end]))
                    except DecodeError:
                        continue
                    if file.name and (file.message_type or file.enum_type):
                        yield file
                        break


def _flat(
    file: descriptor_pb2.FileDescriptorProto,
) -> tuple[
    dict[str, descriptor_pb2.DescriptorProto], dict[str, descriptor_pb2.EnumDescriptorProto]
]:
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    enums: dict[str, descriptor_pb2.EnumDescriptorProto] = {
        f"{file.package}.{enum.name}": enum for enum in file.enum_type
    }

    def add(prefix: str, message: descriptor_pb2.DescriptorProto) -> None:
        name = f"{prefix}.{message.name}"
        messages[name] = message
        enums.update({f"{name}.{enum.name}": enum for enum in message.enum_type})
        for nested in message.nested_type:
            add(name, nested)

    for message in file.message_type:
        add(file.package, message)
    return messages, enums


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "version",
    [
        pytest.param("3.3.6", marks=pytest.mark.nightly),
        "3.4.3",
        pytest.param("3.5.0", marks=pytest.mark.nightly),
    ],
)
def test_fields_and_values_have_the_numbers_and_types_of_the_real_servers(version: str) -> None:
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    enums: dict[str, descriptor_pb2.EnumDescriptorProto] = {}
    for jar in artifacts.jars(version):
        if jar.name.startswith(("hadoop-common", "hadoop-hdfs-client", "hadoop-yarn-api")):
            for file in _descriptors(jar):
                for known, found in zip((messages, enums), _flat(file), strict=True):
                    known.update(found)  # pyright: ignore
        if jar.name.startswith("hadoop-yarn-common"):
            for file in _descriptors(jar):
                messages.update(_flat(file)[0])
    data = (ROOT / "src/howdah/hadoop/protos/descriptors.bin").read_bytes()
    compared = 0
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        own_messages, own_enums = _flat(file)
        for name, own in own_messages.items():
            if name not in messages:
                assert version == "3.3.6", f"{name} is not in Hadoop {version}"
                continue
            theirs = {field.number: field for field in messages[name].field}
            for field in own.field:
                if field.number not in theirs:
                    # Added later: servers before it leave it alone.
                    assert version == "3.3.6", f"{name}.{field.name} is not in Hadoop {version}"
                    continue
                other = theirs[field.number]
                assert (field.name, field.type, field.type_name) == (
                    other.name,
                    other.type,
                    other.type_name,
                ), name
                assert field.label == other.label, f"{name}.{field.name}"
                assert field.default_value == other.default_value, f"{name}.{field.name}"
                compared += 1
        for name, own_enum in own_enums.items():
            if name in enums:
                theirs_by_name = {value.name: value.number for value in enums[name].value}
                for value in own_enum.value:
                    assert theirs_by_name.get(value.name, value.number) == value.number, name
                    compared += 1
    assert compared > 600


CONCURRENT = """
import sys, threading
sys.setswitchinterval(1e-6)
from howdah.hadoop.protos import yarn

problems = []
together = threading.Barrier(8)

def make():
    together.wait()
    try:
        application = yarn.ApplicationIdProto(id=1, cluster_timestamp=2)
        yarn.GetApplicationReportRequestProto(application_id=application)
    except TypeError as error:
        problems.append(str(error))

threads = [threading.Thread(target=make) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if problems:
    sys.exit(problems[0])
"""


def test_threads_that_ask_for_a_message_at_the_same_time_get_one_class() -> None:
    for _ in range(3):  # a process is needed each time: only the first use builds anything
        done = subprocess.run([sys.executable, "-c", CONCURRENT], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
