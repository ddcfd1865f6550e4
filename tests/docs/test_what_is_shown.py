"""What the pages show can be used as it stands: job files, commands, programs."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from howdah.cli.main import COMMANDS, cli
from howdah.compat.tony.java import command_line
from howdah.frameworks import planning
from howdah.spec.load import load
from tests.docs.pages import PAGES, ROOT, Block, blocks

JOB = 'command = "true"\n[roles.worker]\nmemory = "1g"\n'


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_every_job_file_and_site_file_shown_is_right(block: Block, tmp_path: Path) -> None:
    if not re.search(r"^[^#\s]", block.text, re.M):
        return  # a comment only: how an editor is told of the schema
    file, site = tmp_path / "job.toml", tmp_path / "site.toml"
    is_site = "[limits]" in block.text or "site.toml" in block.text
    file.write_text(JOB if is_site else block.text)
    site.write_text(block.text if is_site else "")
    loaded = load(file, env={"HOWDAH_SITE": str(site)})
    assert planning.problems(loaded.job) == []


def test_the_job_files_of_examples_and_tutorial_are_right() -> None:
    files = [*ROOT.glob("examples/*/job.toml"), ROOT / "docs" / "tutorial" / "job.toml"]
    assert len(files) > 10
    for file in files:
        assert planning.problems(load(file, env={"HOWDAH_SITE": ""}).job) == [], file


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_every_program_shown_is_python(block: Block) -> None:
    ast.parse(block.text)


def commands_shown(page: Path) -> list[str]:
    """Command lines of howdah that a page shows: in blocks, and as inline code."""
    text = page.read_text(encoding="utf-8")
    # Not the lines of a run that begin with `howdah |`.
    lines = re.findall(r"^[ \t]*(?:\$ )?(howdah [^\s|][^\n]*)$", text, re.M)
    return lines + re.findall(r"`(howdah [a-z-][^`\n]*)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_shown_exists_with_its_options(page: Path) -> None:
    for line in commands_shown(page):
        assert_exists(line, page)


def test_every_command_that_a_text_of_the_program_names_exists_with_its_options() -> None:
    for module in ROOT.glob("src/howdah/**/*.py"):
        for line in re.findall(r"`(howdah [a-z-][^`\n]*)`", module.read_text(encoding="utf-8")):
            assert_exists(line.partition(" | ")[0], module)


def assert_exists(line: str, file: Path) -> None:
    words = _words(line)
    name = words[1]
    if name.startswith("-") or name == "COMMAND":
        return
    assert name in COMMANDS, f"{file.relative_to(ROOT)}: {line}"
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    known = {option for each in command.params for option in each.opts} | {"--help", "-h"}
    given = command_line(words[2:]).arguments if name == "tony" else words[2:]
    for word in given:
        if word == "--":
            break
        if word.startswith("-"):
            assert word.partition("=")[0] in known, f"{file.relative_to(ROOT)}: {line}"


def _words(line: str) -> list[str]:
    line = line.partition("  #")[0].replace("…", "x")
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
