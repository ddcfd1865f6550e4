"""What other users of the machine can read of a command: argument lists, files, documented examples."""

from __future__ import annotations

import os
import re
import signal
import stat
from pathlib import Path
from urllib.parse import urlsplit

from tests.cli.howdah import ended_at_last, job_file, start, until

BROWSER = """#!/bin/sh
ls -l "${1#file://}" > "$0.mode"
cat "${1#file://}" > "$0.page"
echo "$@" > "$0.new" && mv "$0.new" "$0.argv"
"""
ROOT = Path(__file__).parents[2]


def test_opening_the_page_shows_no_ticket_to_other_users(tmp_path: Path) -> None:
    """Finding 4: Another user reads the one-time link in the browser's argument list and uses it
    first. `--open` does not put it there: the browser reads it from a file of its owner."""
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    script = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"

    with ended_at_last():
        run = start(
            "run",
            "--open",
            str(job_file(tmp_path, script)),
            env={**os.environ, "BROWSER": f"{browser} %s"},
        )
        argv = tmp_path / "browser.argv"
        until(argv.exists, "the browser")
        link = run.until_line("page http")
        (argument,) = argv.read_text().split()
        assert argument.startswith("file:///")
        assert "ticket" not in argument
        page = (tmp_path / "browser.page").read_text()
        assert link[link.index("http") :] in page
        assert (tmp_path / "browser.mode").read_text().startswith("-rw------- ")
        folder = Path(urlsplit(argument).path).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        run.signal(signal.SIGINT)
        run.end()
    assert not list(folder.glob("open-*"))


def test_no_example_puts_a_secret_into_an_argument() -> None:
    """Finding 4: The commands in the documentation give curl its token in a file, not in an
    argument."""
    found = 0
    for path in [
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("docs/*.py"),
        *ROOT.glob("src/**/*.py"),
    ]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"\bcurl\b.* -", line):
                found += 1
                assert not re.search(r"Bearer|token|Cookie|-u ", line), f"{path}: {line}"
    assert found >= 2
