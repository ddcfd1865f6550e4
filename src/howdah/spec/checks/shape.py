"""Whether a document has the shape of a job: known keys, values of the right kind.

msgspec stops at the first mistake and does not name the key, so this walks the raw document
beside the structs' types itself, notes everything, and leaves out what is wrong: what remains
always converts, and `howdah.spec.checks.rules` can judge it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import msgspec.inspect as kinds

from howdah.spec import units
from howdah.spec.checks import hints
from howdah.spec.checks.hints import QUANTITIES, Quantity, bare
from howdah.spec.model import Job
from howdah.spec.overrides import Loose
from howdah.spec.problems import KeyPath, Problems, closest, dotted, one_of, shown
from howdah.spec.values import Table, is_list, is_table, is_writable, kind_of

MAX_NAMES = 1000
"""Roles of a job, variables of an environment: more were not written by a person."""

_BAD = object()
"""Stands for a value that cannot be used; its problem has been noted."""


def check(table: Table, problems: Problems) -> Job:
    """The job in a document, without what is wrong in it; that goes to ``problems``."""
    sound = _Walk(problems).value(table, kinds.type_info(Job), ())
    try:
        return msgspec.convert(sound if is_table(sound) else {}, Job)
    except msgspec.ValidationError as error:
        # Only if the walk above has a hole; a user should still read words.
        problems.add((), f"is no job: {error}")
        return Job()


class _Walk:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def value(self, value: Any, kind: kinds.Type, path: KeyPath) -> Any:
        """The value as that kind, or `_BAD`."""
        if self._problems.known_wrong(path) or self._problems.full:
            return _BAD
        choices = hints.choices(kind)
        kind = bare(kind)
        match kind:
            case kinds.UnionType():
                return self._union(value, kind, path)
            case kinds.StructType():
                return self._struct(value, kind, path)
            case kinds.DictType():
                return self._map(value, kind, path)
            case kinds.VarTupleType() | kinds.ListType():
                return self._list(value, kind, path)
            case kinds.EnumType():
                return self._choice(value, [member.value for member in kind.cls], path)
            case kinds.StrType() if choices is not None:
                return self._choice(value, choices, path)
            case kinds.StrType():
                return self._text(value, kind.pattern, path)
            case kinds.IntType():
                return self._number(value, kind, path)
            case kinds.BoolType():
                return self._switch(value, path)
            case _:
                raise NotImplementedError(f"job files have no {kind}")

    def _bad(self, path: KeyPath, value: object, message: str, hint: str | None = None) -> Any:
        if isinstance(value, Loose):
            value = value.plain()
        if path[:1] == ("secrets",):  # it may be one, written where it does not belong
            self._problems.add(path, f"it {message}", 'write "${env:NAME}" or "${file:path}"')
            return _BAD
        self._problems.add(path, f"{shown(value)} {message}", hint, value=value)
        return _BAD

    def _not(self, path: KeyPath, value: object, what: str, hint: str | None = None) -> Any:
        if isinstance(value, Loose):
            value = value.plain()
        kind = kind_of(value)
        obvious = isinstance(value, bool) or kind == shown(value)
        return self._bad(
            path, value, f"is not {what}" if obvious else f"is {kind}, not {what}", hint
        )

    def _union(self, value: Any, union: kinds.UnionType, path: KeyPath) -> Any:
        """One of several kinds: the one whose values look like this."""
        options = [kind for kind in union.types if not isinstance(kind, kinds.NoneType)]
        if value is None and len(options) < len(union.types):
            return None
        if len(options) == 1:
            return self.value(value, options[0], path)
        if isinstance(value, Loose):
            value = value.plain()
        for option in options:
            if isinstance(bare(option), _meant_as(value)):
                if (choices := hints.choices(option)) is not None:
                    return self._choice(value, choices, path, hints.in_words(union))
                return self.value(value, option, path)
        return self._not(path, value, hints.in_words(union))

    def _struct(self, value: Any, kind: kinds.StructType, path: KeyPath) -> Any:
        if not is_table(value):
            loose = value.plain() if isinstance(value, Loose) else value
            return self._not(path, value, "a table", hints.table(loose, kind, path))
        fields = {field.encode_name: field for field in kind.fields}
        for key in [key for key in value if key not in fields]:
            if self._problems.full:
                return _BAD
            self._unknown(key, fields, path, value)
        table: Table = {}
        for key, item in value.items():
            field = fields.get(key)
            if self._problems.full:
                return _BAD
            if field is None:
                continue
            empty = (*path, key) in self._problems.origins.empty
            if item is None and (empty or not _may_be_none(field.type)):
                self._problems.add((*path, key), "has no value", hints.needed(field.type))
            elif (sound := self.value(item, field.type, (*path, key))) is not _BAD:
                table[key] = sound
        for key, field in fields.items():
            if field.required and key not in table:
                if not self._problems.doubted((*path, key)):
                    self._problems.add(path, f"has no {key}", f"write {dotted((*path, key))}")
                return _BAD
        return table

    def _unknown(
        self, key: str, fields: dict[str, kinds.Field], path: KeyPath, table: Table
    ) -> None:
        """Note a key that ``table`` cannot have. A table in it is then taken as the one that was meant,
        so that what is wrong in it is noted as well."""
        plain = key.lower().replace("_", "-")
        other_word = hints.OTHER_WORDS.get(plain)
        meant = plain if plain in fields else other_word if other_word in fields else None
        here = hints.table_name(path)
        elsewhere = [name for name in hints.tables_with().get(plain, ()) if name != here]
        roles = table.get("roles")
        is_role = not path and is_table(roles) and key in roles
        if meant is None and not elsewhere and not is_role:
            meant = closest(plain, fields)
        if is_role:
            hint = f"did you mean {dotted(('roles', key))}?"
        elif plain == "backend":
            hint = "a job file does not say where it runs: --backend, HOWDAH_BACKEND or the site file does"
        elif meant:
            hint = f"did you mean {meant}?"
            if is_table(table[key]) and _may_be_table(fields[meant].type):
                self._take_as(meant, key, path, table)
            # What is missing is here under another name: "has no command" would be an echo.
            elif meant not in table:
                self._problems.doubt((*path, meant))
        elif elsewhere:
            places = (f"in [{name}]" if name else "at the top" for name in elsewhere)
            hint = f"it belongs {one_of(places)}"
        else:
            hint = f"known are {', '.join(sorted(fields))}"
        self._problems.add((*path, key), "unknown key", hint)

    def _take_as(self, meant: str, key: str, path: KeyPath, table: Table) -> None:
        there = table.get(meant, {})
        if is_table(there):
            added = [name for name in table[key] if name not in there]
            table[meant] = {**table[key], **there}
            self._problems.share((*path, key), (*path, meant), added)

    def _map(self, value: Any, kind: kinds.DictType, path: KeyPath) -> Any:
        if not is_table(value):
            return self._not(path, value, "a table", hints.mapping(path))
        if len(value) > MAX_NAMES:
            self._problems.add(path, f"there are {len(value):,} names, more than {MAX_NAMES:,}")
            return _BAD
        table: Table = {}
        for key, item in value.items():
            at = (*path, key)
            if not is_writable(key):
                self._problems.add(at, "the key has a character that is no text")
                continue
            # In YAML a role may be written as a name with nothing below it.
            if item is None and isinstance(bare(kind.value_type), kinds.StructType):
                item = {}
            if item is None:
                self._problems.add(at, "has no value", hints.needed(kind.value_type))
            elif (sound := self.value(item, kind.value_type, at)) is not _BAD:
                table[key] = sound
        return table

    def _list(self, value: Any, kind: kinds.VarTupleType | kinds.ListType, path: KeyPath) -> Any:
        if not is_list(value):
            hint = f"write [{shown(value)}]" if isinstance(value, str) else None
            return self._not(path, value, hints.in_words(kind), hint)
        found = (
            self.value(item, kind.item_type, (*path, index)) for index, item in enumerate(value)
        )
        return [item for item in found if item is not _BAD]

    def _choice(
        self, value: Any, choices: list[str], path: KeyPath, allowed: str | None = None
    ) -> Any:
        if isinstance(value, str) and value in choices:
            return str(value)
        near = closest(value, choices) if isinstance(value, str) else None
        hint = f"did you mean {shown(near)}?" if near else None
        allowed = allowed or one_of(shown(choice) for choice in choices)
        return self._bad(path, value, f"is not {allowed}", hint)

    def _text(self, value: Any, pattern: str | None, path: KeyPath) -> Any:
        if (quantity := QUANTITIES.get(pattern or "")) is not None:
            return self._quantity(value, quantity, path)
        if not isinstance(value, str):
            return self._not(path, value, "text", hints.quoted(value))
        # The value itself is not shown here: it may well be a secret.
        if not is_writable(value):
            self._problems.add(path, "has a character that is no text (half of a surrogate pair)")
            return _BAD
        if "\0" in value:
            self._problems.add(path, "has a NUL character, which no program can be given")
            return _BAD
        return str(value)

    def _quantity(self, value: Any, quantity: Quantity, path: KeyPath) -> Any:
        """Text that stands for a number: a time, an amount of memory, a range."""
        hint = None
        if isinstance(value, str):
            try:
                quantity.read(value)
            except ValueError as error:
                message, _, hint = str(error).partition("; ")
            else:
                return str(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            message = "has no unit"
        else:
            return self._not(path, value, quantity.words, f"write {quantity.example}")
        if not hint:
            near = quantity.likely(value)
            hint = f"did you mean {shown(near)}?" if near else f"write {quantity.example}"
        return self._bad(path, value, message, hint)

    def _number(self, value: Any, kind: kinds.IntType, path: KeyPath) -> Any:
        if isinstance(value, Loose):
            value = value.plain()
        if isinstance(value, bool) or not isinstance(value, int):
            if isinstance(value, float):
                return self._bad(path, value, "is not a whole number", hints.unquoted(value))
            return self._not(path, value, "a whole number", hints.unquoted(value))
        if kind.ge is not None and value < kind.ge:
            return self._bad(path, value, f"is less than {kind.ge}", hints.too_few(path, value))
        most = units.MAX_NUMBER if kind.le is None else kind.le
        if value > most:
            return self._bad(path, value, f"is more than {most:,}")
        return value

    def _switch(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, Loose):
            value = value.plain()
        if isinstance(value, bool):
            return value
        return self._not(path, value, "true or false", hints.switch(value))


def _may_be_none(kind: kinds.Type) -> bool:
    kind = bare(kind)
    return isinstance(kind, kinds.UnionType) and any(
        isinstance(option, kinds.NoneType) for option in kind.types
    )


def _may_be_table(kind: kinds.Type) -> bool:
    kind = bare(kind)
    options = kind.types if isinstance(kind, kinds.UnionType) else (kind,)
    return any(isinstance(bare(o), kinds.StructType | kinds.DictType) for o in options)


def _meant_as(value: object) -> tuple[type[kinds.Type], ...]:
    """The kinds that a value of this Python type can only be meant as."""
    match value:
        case bool():
            return (kinds.BoolType,)
        case int() | float():
            return (kinds.IntType,)
        case str():
            return (kinds.StrType, kinds.EnumType)
        case list():
            return (kinds.ListType, kinds.VarTupleType)
        case dict():
            return (kinds.StructType, kinds.DictType)
        case _:
            return ()
