"""The command ends when the user wants it to, also where a cluster does not answer."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.howdah import start

_PROPERTY = "<property><name>{}</name><value>{}</value></property>"


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A cluster that takes connections and says nothing."""
    conf = tmp_path / "conf"
    conf.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"127.0.0.1:{server.getsockname()[1]}"
        for name, key, value in (
            ("core-site.xml", "fs.defaultFS", f"hdfs://{at}"),
            ("yarn-site.xml", "yarn.resourcemanager.address", at),
        ):
            text = _PROPERTY.format(key, value)
            (conf / name).write_text(f"<configuration>{text}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))
        monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
        yield server


def test_ctrl_c_ends_a_submission_to_a_cluster_that_says_nothing(silent: socket.socket) -> None:
    run = start("run", "--backend", "yarn", "--framework", "command", "--", "sleep", "60")
    silent.settimeout(40)
    connection, _ = silent.accept()
    with connection:
        run.signal(signal.SIGINT)
        assert run.end(within_s=20) == 130
    assert "Traceback" not in run.told


_LOSES_CTRL_C = """
import signal, sys, threading, weakref
from howdah.cli import main

class Thing:
    pass

def command(**_):
    thing = Thing()
    callback = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    print("lost", flush=True)
    threading.Event().wait(60)

main.cli.main = command
sys.exit(main.program())
"""


def test_ctrl_c_ends_a_command_also_where_python_loses_it() -> None:
    """As in a callback of its import system; nothing but the signal's moment differs."""
    program = [sys.executable, "-c", _LOSES_CTRL_C]
    run = subprocess.run(program, capture_output=True, text=True, timeout=40)
    assert (run.returncode, run.stdout, run.stderr) == (130, "lost\n", "")
