"""Programs run as a user runs them: in a process of their own, under a given Spark.

One process has one SparkContext, and one Spark. A test of another kind of session, or of the other
version, writes its program as a text and runs it here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.processes import runs
from tests.spark.servers import Standalone
from tests.spark.versions import Version, environment, settings

_BEGIN = """\
from pyspark.sql import SparkSession
_builder = SparkSession.builder
for _name, _value in {settings!r}.items():
    _builder = _builder.config(_name, _value)
spark = _builder.getOrCreate()
"""
_END = "\nspark.stop()\n"


class Done(NamedTuple):
    """How a program ended."""

    code: int
    """Its exit code; negative, the signal."""
    out: str
    """Standard output and error, as they came."""
    seconds: float

    def told(self, name: str) -> str:
        """The text after ``name=`` at the beginning of a line of its output."""
        found = re.search(rf"^{re.escape(name)}=(.*)$", self.out, re.M)
        assert found, f"the program did not print {name}=…:\n{self.out}"
        return found[1]


class Program:
    """A program that runs; `wait` for its end, or kill it."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._log = folder / f"program-{time.monotonic_ns()}.log"
        self._begin = time.monotonic()
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        """Its output until now."""
        return self._log.read_text(errors="replace")

    def wait_line(self, pattern: str, timeout_s: float = 60.0) -> str:
        """The first match (of the group, if there is one), as soon as its output has it."""
        deadline = time.monotonic() + timeout_s
        while not (found := re.search(pattern, self.said(), re.M)):
            assert self.process.poll() is None, f"the program ended:\n{self.said()}"
            assert time.monotonic() < deadline, f"{pattern} did not come:\n{self.said()}"
            time.sleep(0.05)
        return found[found.re.groups and 1]

    def kill(self) -> None:
        """SIGKILL to the program alone, not to its JVM."""
        self.process.kill()
        self.process.wait()

    def wait(self, timeout_s: float = 60.0) -> Done:
        """Its end. Fails after that time, when all of it has been killed."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"not done after {timeout_s} s:\n{self.said()}") from None
        self.end()
        return Done(code, self.said(), time.monotonic() - self._begin)

    def end(self) -> None:
        """Kill whatever is left in its process group: the program and its JVM."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_program(
    text: str,
    folder: Path,
    *,
    spark: str | Standalone = "local[2]",
    version: Version | None = None,
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    session: bool = True,
    arguments: Sequence[str] = (),
) -> Program:
    """Start a program, in ``folder``, on a master's address or a `Standalone`.

    Its text finds the session as ``spark``, which is stopped at its end; without ``session`` it
    makes its own, with the settings in the variable SPARK_SETTINGS (JSON).
    """
    folder.mkdir(parents=True, exist_ok=True)
    master = spark.url if isinstance(spark, Standalone) else spark
    chosen = {**settings(folder, version), "spark.master": master, **(conf or {})}
    body = textwrap.dedent(text)
    if session:
        body = _BEGIN.format(settings=chosen) + body + _END
    file = folder / f"program-{time.monotonic_ns()}.py"
    file.write_text(body)
    given = {**environment(version), "SPARK_SETTINGS": json.dumps(chosen), **(env or {})}
    return Program([sys.executable, str(file), *arguments], folder, given)


def run_program(
    text: str,
    folder: Path,
    *,
    spark: str | Standalone = "local[2]",
    version: Version | None = None,
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    session: bool = True,
    arguments: Sequence[str] = (),
    timeout_s: float = 60.0,
) -> Done:
    """As `start_program`, to its end; after ``timeout_s`` all of it is killed and the test fails."""
    program = start_program(
        text,
        folder,
        spark=spark,
        version=version,
        conf=conf,
        env=env,
        session=session,
        arguments=arguments,
    )
    try:
        return program.wait(timeout_s)
    finally:
        program.end()


def wait_ended(pids: Sequence[int], timeout_s: float = 15.0) -> list[int]:
    """Those of the processes that still run after at most that time."""
    deadline = time.monotonic() + timeout_s
    while left := [pid for pid in pids if runs(pid)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left
