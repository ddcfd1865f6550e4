"""Numbers of job files, site files, tony.xml and command lines, far outside of what can be meant."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec.inspect as kinds
import pytest

from howdah.cli.main import COMMANDS, cli, main
from howdah.frameworks import planning, registry
from howdah.hadoop.errors import ConfigurationError
from howdah.hadoop.siteparser import read_properties
from howdah.spec import load
from howdah.spec.checks.hints import bare
from howdah.spec.model import Job
from howdah.spec.problems import JobFileError
from tests.compat.given import xml

NUMBERS = [0, -1, 100_001, 10**9, 10**9 + 1, 2**31, 2**63, 2**64, 10**30, 10**400]
WORDS = ["0s", "0m", "1" * 40 + "d", "1" * 400 + "g", "0.0000001ms", "1" * 400 + ".." + "2" * 400,
         "1..100001", "1..1000000000", "0-0", "1024-99999999", "-1", "1e9", "9" * 5000, "٣g", "nan"]  # fmt: skip


def leaves(kind: kinds.Type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The keys that hold a number, or text, and whether it is a number."""
    kind = bare(kind)
    if isinstance(kind, kinds.UnionType):
        for option in kind.types:
            yield from leaves(option, path)
    elif isinstance(kind, kinds.StructType):
        for field in kind.fields:
            yield from leaves(field.type, (*path, field.encode_name))
    elif isinstance(kind, kinds.DictType):
        if path != ("env",) and path[-1:] != ("env",):
            name = "worker" if path == ("roles",) else "yarn.io/fpga"
            yield from leaves(kind.value_type, (*path, name))
    elif isinstance(kind, kinds.IntType | kinds.StrType):
        yield path, isinstance(kind, kinds.IntType)


PATHS = sorted(set(leaves(kinds.type_info(Job))))
NEEDED = {
    "linger": {"after": ["other"], "limit": "1m"},
    "preprocess": {"command": "true"},
}


def document(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"command": "true", "roles": {"worker": {}, "other": {}}}
    inner = made
    for key in path[:-1]:
        inner = inner.setdefault(key, dict(NEEDED.get(key, {})))
    inner[path[-1]] = value
    return made


def test_a_number_is_planned_with_or_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding 14: Instances = 1000000000 ended in a traceback. Now every key has a bound and a
    message."""
    frameworks = registry.names()
    # Looked at a thousand times here, where a job file needs it once.
    monkeypatch.setattr(kinds, "type_info", functools.cache(kinds.type_info))
    for path, number in PATHS:
        # The wrong kind is refused alike wherever it stands.
        for value in [*NUMBERS, *WORDS[:2]] if number else [*WORDS, *NUMBERS[-2:]]:
            try:
                loaded = load.from_document(document(path, value), env={}, frameworks=frameworks)
            except JobFileError as error:
                assert error.problems, (path, value)
                continue
            job = planning.expand(loaded.job)
            assert planning.plan(job, "job-20261121-120000-aaaa", lease_s=10.0).roles


Told = Callable[..., str]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Told:
    """Run a command in this process, in an empty folder; what it says when it refuses."""
    monkeypatch.chdir(tmp_path)

    def refused(*arguments: str, codes: tuple[int, ...] = (2,)) -> str:
        assert main(list(arguments)) in codes, arguments
        told = capsys.readouterr().err
        assert "Traceback" not in told
        return told

    return refused


def test_a_billion_tasks_are_refused_with_their_line(refused: Told) -> None:
    """Finding 14: A job file asks for a billion tasks. The message names the file and the line, and
    the exit code says bad input."""
    Path("job.toml").write_text('command = "true"\n[roles.worker]\ninstances = 1000000000\n')
    told = refused("check", "job.toml")
    assert "job.toml:3: roles.worker.instances: 1000000000 is more than 100,000" in told
    told = refused("check", "--set", "roles.worker.instances=9999999999", "job.toml")
    assert "9999999999 is more than 100,000" in told


TONY = {
    "tony.worker.instances": "1000000000",
    "tony.worker.memory": "9" * 30,
    "tony.worker.vcores": "1000000000",
    "tony.worker.gpus": "1" + "0" * 4500,
    "tony.am.memory": "9" * 4500 + "g",
    "tony.am.retry-count": "9" * 40,
    "tony.application.timeout": "9" * 40,
    "tony.task.heartbeat-interval-ms": "-" + "9" * 40,
}


def test_a_number_of_a_tony_job_has_a_bound_and_a_message(refused: Told) -> None:
    """A number in tony.xml is too large to be meant. It is refused with its key, not with a
    traceback."""
    for key, value in TONY.items():
        values = {"tony.worker.instances": "1", "tony.worker.command": "true", key: value}
        Path("tony.xml").write_text(xml(values))
        refused("run", "--tony", "tony.xml", "--dry-run", codes=(0, 2))


def commands() -> list[click.Command]:
    context = click.Context(cli)
    return [command for name in COMMANDS if (command := cli.get_command(context, name)) is not None]


def test_every_number_of_a_command_line_has_bounds() -> None:
    """An option gets a number that is too large or too small to be meant. It is refused."""
    for command in commands():
        for option in command.params:
            kind = option.type
            if isinstance(kind, click.types.IntParamType):
                assert isinstance(kind, click.IntRange), (command.name, option.name)
                assert kind.min is not None and kind.max is not None, (command.name, option.name)
            assert not isinstance(kind, click.types.FloatParamType), (command.name, option.name)


@pytest.mark.parametrize(
    "arguments",
    [
        ("prune", "--keep-size"),
        ("prune", "--older-than"),
        ("portal", "--store", ".", "--trusted-proxy", "127.0.0.1", "--prune-keep-size"),
        ("portal", "--store", ".", "--trusted-proxy", "127.0.0.1", "--prune-older-than"),
    ],
    ids=" ".join,
)
def test_a_limit_of_what_is_kept_has_bounds(arguments: tuple[str, ...], refused: Told) -> None:
    """A size or a span that nobody can mean removes nothing."""
    for value in ("-1g", "-1d", "9" * 5000 + "g", "9" * 5000 + "d", "nan", "1e9", "off", "", "٣g"):
        refused(*arguments, value)


def test_a_number_of_lines_has_a_bound(refused: Told) -> None:
    """Someone asks for more lines of a log than anyone can mean. It is refused."""
    assert "at most 999,999,999" in refused("logs", "nothing", "--tail", "9" * 5000)


def test_includes_that_fan_out_are_bounded(tmp_path: Path) -> None:
    """Finding 14: A file that includes two files, each of which includes two, and so on, was read
    65,536 times. Now the number is bounded."""
    for depth in range(16):
        lines = f'<xi:include href="{depth + 1}.xml"/>' * 2
        (tmp_path / f"{depth}.xml").write_text(
            f'<configuration xmlns:xi="http://www.w3.org/2001/XInclude">{lines}</configuration>'
        )
    (tmp_path / "16.xml").write_text("<configuration/>")
    with pytest.raises(ConfigurationError, match="includes more than 200 files"):
        read_properties(tmp_path / "0.xml")


@pytest.mark.parametrize("href", ["http://[", "pipe", "\x00", "a" * 5000, "/dev/zero", "//host/x"])
def test_an_include_leads_to_a_file_or_to_words(tmp_path: Path, href: str) -> None:
    """A file includes a pipe, a device or something that is no path. The reader neither hangs nor
    crashes."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "site.xml").write_text(
        '<configuration xmlns:xi="http://www.w3.org/2001/XInclude">'
        f'<xi:include href="{href.replace(chr(0), "%00")}"/></configuration>'
    )
    with pytest.raises(ConfigurationError):
        read_properties(tmp_path / "site.xml")
