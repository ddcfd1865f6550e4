"""What others write must not be obeyed by the terminal it is shown on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from howdah.cli.display.terminal import tame, tame_bytes, tame_json
from tests.cli.howdah import HOWDAH, ended_at_last, job_file, newest, start, until

ATTACKS = (
    "\x1b\x1b[0J [2J",
    "\x1b\x1b[2J[2J",
    "\x1b[\x1b[0J2J",
    "\x1b\x07]52;c;aGk=\x07",
    "\x1b]52;c;aGk=\x07",
    "\x1b]52;c;aGk=",
    "\x1b]0;\x1b]0;x\x07title\x07",
    "\x1bP+q544e\x1b\\",
    "\x1b(0lqqk",
    "\x1b)0\x0e",
    "\x1b%G",
    "\x1bc",
    "\x9b2J",
    "\x9d52;c;aGk=\x9c",
    "\x90q\x9c",
    "\x1b[31;1H",
    "\x1b[3\x0821m",
    "\x1b[?1049h",
    "\rhowdah | forged\x08\x7f",
    "\u202egnp.exe\u2066",
)
GOOD = "\x1b[1;31mred\x1b[0m \x1b[38;5;12mblue\x1b[38:2::1:2:3m\x1b[m\tä ✓"
LEFT = re.compile(
    r"\x1b(?!\[[0-9;:]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
"""What a terminal would obey but looks."""


def test_only_looks_pass_to_a_terminal() -> None:
    """Finding 12: A text has control sequences that are nested, split by a bell, begun by C1
    characters, or that switch the character set. Only complete styles (SGR) are left of them."""
    around = ("{}", "\x1b{}", "{0}{0}", "\x1b[1m{}\x1b[0m", "a{}b")
    for text in (each.format(attack) for attack in ATTACKS for each in around):
        left = tame(text)
        assert not LEFT.search(left), ascii(left)
        assert tame(left) == left
        assert tame_bytes(text.encode()) == left.encode()
        document = tame_json(json.dumps(text, ensure_ascii=False).encode())
        assert not LEFT.search(document.decode())
        assert json.loads(document) == text


def test_colours_and_text_stay() -> None:
    """Tasks print colours and text of any language. They are shown as they were."""
    assert tame(GOOD) == GOOD
    assert tame_bytes(b"\xff\x9b2J plain") == "\ufffd\ufffd2J plain".encode()


def shown(*arguments: str, end_at: str = "", **env: str) -> str:
    """What a command writes to a terminal, to its end or until it has shown a text."""
    terminal, inner = os.openpty()
    process = subprocess.Popen(
        [*HOWDAH, *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "TERM": "xterm", **env},
        start_new_session=True,
    )
    os.close(inner)
    text = b""
    with contextlib.suppress(OSError):  # nobody has the other end any more
        while part := os.read(terminal, 65536):
            text += part
            if end_at and end_at.encode() in text:
                process.send_signal(signal.SIGINT)
                end_at = ""
    process.wait()
    os.close(terminal)
    return text.decode("utf-8", "replace")


OWN = re.compile(r"\r\n|\r\x1b\[2K|\x1b\[2K")
"""What Howdah itself sends, and the terminal's line ends."""

NAME = "Evil\x1b]52;c;aGk=\x07\x1b(0\x9b2J\x1b\x1b[0J"
PROGRAM = f"""
import os, socket, sys, time
from howdah import task
server = socket.create_server((os.environ["HOWDAH_HOST"], int(os.environ["HOWDAH_PORT"])))
task.announce_web({NAME!r}, server.getsockname()[1])
for attack in {ATTACKS!r}:
    sys.stdout.buffer.write(attack.encode() + b"\\n")
sys.stdout.buffer.write(b"\\xff\\x9b2J and the last\\n")
sys.stdout.flush()
time.sleep(300)
"""


@pytest.mark.parametrize(
    "colour",
    [True, pytest.param(False, marks=pytest.mark.nightly)],
    ids=["colour", "all looks without colour"],
)
def test_no_command_lets_a_job_command_the_terminal(tmp_path: Path, colour: bool) -> None:
    """Finding 12: Logs, events, a page's name and the last line have control sequences. In every
    command they pass through the same filter, with colours and without."""
    env = {} if colour else {"NO_COLOR": "1"}
    with ended_at_last():
        job = start(
            "run",
            str(job_file(tmp_path, PROGRAM, roles={"worker": {"ports": 1}})),
            errors="replace",
        )
        job.until_line("and the last")
        job.until_line("serves Evil")
        job_id = newest().job_id
        until(lambda: newest().coordinator(), "the coordinator")
        looks = [
            shown("attach", job_id, end_at="to=proxy/worker:0/", **env),
            shown("events", job_id, **env),
            shown("logs", job_id, **env),
            shown("status", job_id, **env),
        ]
        if not colour:
            looks += [
                shown("events", "--json", job_id, **env),
                shown("logs", "--no-prefix", job_id, **env),
                shown("logs", "--json", job_id, **env),
                shown("list", **env),
            ]
        job.signal(signal.SIGINT)
        job.end()
    for look in looks:
        left = LEFT.search(OWN.sub("", look))
        assert left is None, ascii(look[max(0, left.start() - 80) : left.end() + 40])
    assert "and the last" in looks[2]
    assert "serves Evil" in looks[1]
    assert "\x1b]52" in "\n".join([*job.out, *job.err]), "a pipe gets what was written"
