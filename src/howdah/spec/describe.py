"""What the docstrings in `howdah.spec.model` say, for the JSON Schema and the reference page."""

from __future__ import annotations

import ast
import functools
import inspect

from howdah.spec import model


@functools.cache
def fields() -> dict[str, dict[str, str]]:
    """The docstring of every field, by struct and Python name.

    Empty where Python has only byte code and no source: descriptions are a courtesy.
    """
    try:
        source = inspect.getsource(model)
    except OSError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for struct in ast.parse(source).body:
        if isinstance(struct, ast.ClassDef):
            found[struct.name] = _fields_of(struct)
    return found


def _fields_of(struct: ast.ClassDef) -> dict[str, str]:
    """A docstring is the text that stands alone after a field."""
    described: dict[str, str] = {}
    for field, after in zip(struct.body, struct.body[1:]):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            described[field.target.id] = " ".join(after.value.value.split())
    return described


def struct(kind: type) -> str:
    """The docstring of a struct, in one line."""
    return " ".join((kind.__doc__ or "").split())
