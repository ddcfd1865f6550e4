"""The framework of a training function, read from what its code refers to. Nothing is imported.

Looked at are the imports in the code and the values it takes from its module, its closure and its
defaults; and so on in the functions and classes among them, as far as these are the program's own.
Installed packages are not looked into.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec

NONE = "command"
"""The framework of a job whose processes are told nothing but Howdah's own names."""

_FRAMEWORKS = {
    "horovod": "horovod",
    "torch": "pytorch",
    "lightning": "pytorch",
    "lightning_fabric": "pytorch",
    "pytorch_lightning": "pytorch",
    "accelerate": "pytorch",
    "deepspeed": "pytorch",
    "tensorflow": "tensorflow",
    "tf_keras": "tensorflow",
    "jax": "jax",
    "flax": "jax",
    "optax": "jax",
    "keras": "tensorflow",
}
"""By package."""
_LAUNCHERS = frozenset({"horovod"})
"""They connect the processes whatever else is imported."""
_GUESTS = frozenset({"keras"})
"""They run on any of the others: what else is imported says on which."""
_INSTALLED = ("site-packages", "dist-packages")


class Inference(msgspec.Struct, frozen=True):
    """What was found."""

    framework: str
    packages: tuple[str, ...] = ()
    """The packages that say so; of several frameworks where they leave it open."""

    @property
    def text(self) -> str:
        """One line for the user; empty where there is nothing to say."""
        if not self.packages:
            return ""
        packages = " and ".join(self.packages)
        if self.framework == NONE:
            return (
                f"The function uses {packages}: no framework is assumed, and no variables of one are "
                "set. Give framework= to choose"
            )
        return (
            f'framework="{self.framework}" is assumed, as the function uses {packages}; give '
            "framework= for another"
        )


def infer(function: Callable[..., Any]) -> Inference:
    """The framework whose variables the function's processes are to be given."""
    found = {name for name in _Walk().packages(inspect.unwrap(function)) if name in _FRAMEWORKS}
    for decisive in (found & _LAUNCHERS, found - _GUESTS, found):
        if decisive:
            break
    else:
        return Inference(NONE)
    frameworks = {_FRAMEWORKS[name] for name in decisive}
    framework = frameworks.pop() if len(frameworks) == 1 else NONE
    return Inference(framework, tuple(sorted(decisive)))


class _Walk:
    """Through everything a value refers to, each once."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}

    def packages(self, value: object) -> Iterator[str]:
        """The top-level packages it comes from, or uses."""
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # kept, so that no other value gets its id
        if isinstance(value, functools.partial):
            for each in (value.func, *value.args, *value.keywords.values()):
                yield from self.packages(each)
        elif isinstance(value, MethodType):
            yield from self.packages(value.__func__)
            yield from self.packages(value.__self__)
        elif isinstance(value, FunctionType):
            yield _top(value.__module__)
            if len(self._seen) == 1 or _own(value.__module__, value.__code__.co_filename):
                yield from self._function(value)
        elif isinstance(value, ModuleType):
            yield _top(value.__name__)
        elif isinstance(value, type):
            yield from self._class(value)
        else:
            yield from self._class(type(value))

    def _function(self, function: FunctionType) -> Iterator[str]:
        for cell in function.__closure__ or ():
            try:
                yield from self.packages(cell.cell_contents)
            except ValueError:  # a name that is not bound yet
                continue
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            yield from self.packages(default)
        yield from self._code(function.__code__, function.__globals__)

    def _code(self, code: CodeType, names: dict[str, Any]) -> Iterator[str]:
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":
                yield _top(step.argval)
        for name in code.co_names:
            value = names.get(name)
            if value is None:
                continue
            yield from self.packages(value)
            if isinstance(value, ModuleType) and _own(value.__name__, _file(value)):
                # A module of the program's: of its names, those that this code uses.
                for attribute in code.co_names:
                    yield from self.packages(vars(value).get(attribute))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._code(constant, names)

    def _class(self, kind: type) -> Iterator[str]:
        for each in kind.__mro__:
            yield _top(each.__module__)
            file = _file(sys.modules.get(each.__module__))
            if (id(each) in self._seen and each is not kind) or not _own(each.__module__, file):
                continue
            self._seen[id(each)] = each
            for member in vars(each).values():
                if isinstance(member, staticmethod | classmethod):
                    member = member.__func__
                if isinstance(member, FunctionType):
                    yield from self.packages(member)


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _file(module: ModuleType | None) -> str | None:
    return getattr(module, "__file__", None)  # a namespace package has none


def _own(module: str | None, file: str | None) -> bool:
    """Whether code of that module is the program's own."""
    top = _top(module)
    if top == "howdah" or top in _FRAMEWORKS or top in sys.builtin_module_names:
        return False
    if top in sys.stdlib_module_names and top != "__main__":
        return False
    return not any(part in (file or "") for part in _INSTALLED)
