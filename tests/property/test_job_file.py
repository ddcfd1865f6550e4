"""Whatever a job file holds, the loader answers with a job or with `JobFileError`, soon."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from howdah.frameworks import planning, registry
from howdah.spec.checks.hints import OTHER_WORDS, tables_with
from howdah.spec.load import LoadedJob, from_document, from_flags, load, substitute_job_id
from howdah.spec.model import Job
from howdah.spec.problems import JobFileError
from howdah.spec.readers import json_reader, toml_reader, yaml_reader
from howdah.spec.readers.reading import Unreadable
from howdah.spec.templates import NAMES, template

pytestmark = pytest.mark.timeout(240)

ENV = {"HOWDAH_SITE": "", "SET": "4", "EMPTY": "", "ODD": "${job.id} $${ \udc80"}
RULES: dict[str, Any] = {
    "frameworks": registry.names(),
    "further": lambda job, _: planning.problems(job),
}

fuzz = settings(max_examples=50, suppress_health_check=list(HealthCheck))


def answer(load_it: Any, *arguments: Any, **rest: Any) -> LoadedJob | None:
    """The job, or None after looking at the error as a terminal would."""
    try:
        loaded = load_it(*arguments, env=ENV, **rest)
    except JobFileError as error:
        text = str(error)
        assert error.problems
        assert all(line.isprintable() for line in text.split("\n"))
        # Even at its worst a message fits a screen: values are shown short.
        assert max(map(len, text.split("\n"))) < 3000
        assert all(problem.message for problem in error.problems)
        return None
    # What was accepted can be stored, and is the same job when it is read again.
    encoded = msgspec.json.encode(loaded.job)
    assert msgspec.json.decode(encoded, type=Job) == loaded.job
    return loaded


@contextlib.contextmanager
def job_file(content: bytes, suffix: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hwt-job-") as folder:
        file = Path(folder, "job").with_suffix(suffix)
        file.write_bytes(content)
        yield file


FULL = """\
name = "digits-${env:SET}"
framework = "tensorflow"
mode = "gang"
command = ["python", "train.py", "--id", "${job.id}"]
restart = "gang"
env = { A = "1", "B" = '2' }
tags = ["a", "b"]
queue = "${env:NONE:-q}"

[roles.chief]
memory = "2g"
[roles.worker]
instances = "2..8"
processes = "gpus"
gpus = 2
cores = 1
after = ["ps"]
resources."yarn.io/fpga" = 1
placement = { spread = true, near = ["ps"] }
timeouts.hang = "10s"
[roles.ps]
tracking = "untracked"
stop-on-failure = true
command = '''
python serve.py
'''
[checkpoint]
settle = "500ms"
[outputs]
folders = ["results"]
[tensorboard]
[network]
ports = "20000-29999"
[acl]
view = ["*"]
"""
DOCUMENT = toml_reader.read(FULL)[0]
TEXTS = {
    ".toml": [FULL, *(template(name) for name in NAMES)],
    ".json": [msgspec.json.format(msgspec.json.encode(DOCUMENT)).decode()],
    ".yaml": [
        "name: a\ncommand: x\nroles:\n  worker: &w\n    instances: 2\n    env: {A: b}\n"
        "  ps:\n    <<: *w\n    gpus: 1\n    after:\n    - worker\ntimeouts:\n  hang: off\n"
    ],
}

KEYS = st.sampled_from(sorted({*tables_with(), *OTHER_WORDS, "worker", "ps", "A", "<<"}))
WORDS = st.sampled_from(
    [
        *("worker", "ps", "gang", "task", "sidecar", "gpus", "python x.py", "tensorflow", "dask"),
        *("2..8", "8..2", "4", "0", "2g", "2k", "10s", "off", "1h30m", "true", "nan", ".", "", "/"),
        *("${env:SET}", "${env:NONE}", "${env:ODD}", "${job.id}", "${job.x}", "$${", "${env:"),
        *("20000-29999", "1-2", "chief", "each", "*", "../x", "\0", "\ud800", "ı", "x" * 200),
    ]
)
SCALARS = st.one_of(
    WORDS,
    st.text(max_size=20),
    st.integers(),
    st.integers(min_value=-2, max_value=9),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=3),
    st.datetimes(),
    st.times(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=6), inner, max_size=6)
    ),
    max_leaves=30,
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A good document with values put in at places that exist, and at others."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    for _ in range(draw(st.integers(0, 6))):
        table: Any = document
        while True:
            key = draw(st.sampled_from(sorted(table)) if table else KEYS)
            below = table.get(key)
            if not isinstance(below, dict) or draw(st.booleans()):
                break
            table = below
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                table[key] = draw(VALUES)
            case "remove":
                table.pop(key, None)
            case _:
                table[draw(KEYS)] = draw(VALUES)
    return document


@st.composite
def mutations(draw: st.DrawFn, suffix: str) -> str:
    """A good file after some slips: pieces lost, doubled, moved, replaced."""
    text = draw(st.sampled_from(TEXTS[suffix]))
    pieces = st.sampled_from(
        [
            *"[]{}\"'=:,.#\n\t -&*!|>%@`\\\0\r",
            '"""',
            "'''",
            "[[a]]",
            "[a]",
            "a.b",
            "\\u",
            "- ",
            "---\n",
        ]
    )
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        middle = draw(
            st.one_of(st.just(""), pieces, st.just(text[start:end] * 2), st.text(max_size=9))
        )
        text = text[:start] + middle + text[end:]
    return text


@fuzz
@given(content=st.binary(max_size=400), suffix=st.sampled_from([".toml", ".yaml", ".json", ""]))
def test_any_bytes_are_answered(content: bytes, suffix: str) -> None:
    with job_file(content, suffix) as file:
        answer(load, file, **RULES)


@pytest.mark.parametrize("suffix", TEXTS)
@fuzz
@given(data=st.data())
def test_slips_in_a_good_file_are_answered(suffix: str, data: st.DataObject) -> None:
    text = data.draw(mutations(suffix))
    with job_file(text.encode("utf-8", "replace"), suffix) as file:
        answer(load, file, **RULES)


@pytest.mark.parametrize("suffix", TEXTS)
@fuzz
@given(data=st.data())
def test_every_key_that_is_read_has_a_line(suffix: str, data: st.DataObject) -> None:
    reader = {".toml": toml_reader, ".yaml": yaml_reader, ".json": json_reader}[suffix]
    text = data.draw(mutations(suffix))
    try:
        document, reading = reader.read(text)
    except Unreadable as unreadable:
        assert unreadable.line is None or 1 <= unreadable.line <= text.count("\n") + 1
        return
    if "<<" in text or "*" in text:
        return  # what came by an alias has the alias's line
    assert {path for path in paths(document) if path} <= set(reading.lines)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    below = value.items() if isinstance(value, dict) else ()
    below = enumerate(value) if isinstance(value, list) else below
    for key, item in below:
        yield from paths(item, (*path, key))


@fuzz
@given(document=st.dictionaries(KEYS | st.text(max_size=8), VALUES, max_size=8))
def test_any_document_is_answered(document: dict[str, Any]) -> None:
    answer(from_document, document, **RULES)


@fuzz
@given(document=documents())
def test_a_document_that_is_nearly_good_is_answered(document: dict[str, Any]) -> None:
    loaded = answer(from_document, document, **RULES)
    if loaded is not None:
        # A stored job is a job file; `$` is escaped as whoever stores a file by hand would do it.
        stored = msgspec.json.encode(loaded.job).replace(b"${env:", b"$${env:")
        again = answer(from_document, msgspec.json.decode(stored), **RULES)
        assert again is not None
        assert substitute_job_id(again.job, "x") == substitute_job_id(loaded.job, "x")


@fuzz
@given(
    overrides=st.lists(st.text(max_size=20) | st.builds("{}={}".format, KEYS, WORDS), max_size=4)
)
def test_any_setting_is_answered(overrides: list[str]) -> None:
    answer(from_document, DOCUMENT, overrides, **RULES)


@fuzz
@given(
    framework=WORDS,
    roles=st.lists(st.text(max_size=8) | st.builds("{}={}".format, KEYS, WORDS), max_size=4),
    command=st.lists(WORDS | st.text(max_size=8), max_size=3),
)
def test_any_flags_are_answered(framework: str, roles: list[str], command: list[str]) -> None:
    answer(from_flags, framework, roles, command, **RULES)


@fuzz
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | WORDS)
def test_a_variable_arrives_as_it_is(value: str) -> None:
    if "\0" in value or "\ud800" in value:
        return
    document = {"command": "x", "env": {"A": "${env:V}|${job.id}"}, "roles": {"worker": {}}}
    loaded = from_document(document, env={"HOWDAH_SITE": "", "V": value})
    assert substitute_job_id(loaded.job, "id-1").env["A"] == f"{value}|id-1"


LARGE = {
    "values of toml": (".toml", "a = [" + "1," * 500_000 + "]"),
    "unknown keys of toml": (".toml", "".join(f"k{i} = 1\n" for i in range(90_000))),
    "headers of toml": (".toml", "[a]\n" * 250_000),
    "one text": (".toml", 'command = "' + "x" * 1_000_000 + '"\n[roles.worker]\n'),
    "variables": (".toml", 'command = "' + "${env:SET}" * 100_000 + '"\n[roles.worker]\n'),
    "roles": (".yaml", "command: x\nroles:\n" + "".join(f"  r{i}: {{}}\n" for i in range(19_000))),
    "waits": (
        ".yaml",
        "command: x\nroles:\n" + "".join(f"  r{i}: {{after: [r{i - 1}]}}\n" for i in range(5_000)),
    ),
    "laughs": (
        ".yaml",
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]\n" for i in range(40)),
    ),
    "brackets": (".json", "[" * 1_000_000),
    "quotes": (".toml", 'a = "' + '\\"' * 500_000),
}


@pytest.mark.nightly
@pytest.mark.parametrize("large", LARGE)
def test_the_largest_file_costs_little(large: str) -> None:
    suffix, text = LARGE[large]
    tracemalloc.start()
    try:
        with job_file(text.encode(), suffix) as file:
            answer(load, file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 128 << 20
