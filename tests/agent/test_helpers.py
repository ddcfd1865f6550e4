"""What an agent tells its helper processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from howdah.agent import run
from howdah.agent.children import Child, Helper
from howdah.agent.monitoring.metrics import NO_LIBRARY

MORE_THAN_A_PIPE_HOLDS = 20_000

READ_ONCE_TOLD = (
    "import os, sys, time\n"
    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    "print(sys.stdin.read().split('\\n')[-2])"
)


async def test_a_helper_that_does_not_read_holds_nothing_up_and_is_told_the_last_line(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    with subprocess.Popen(
        [sys.executable, "-c", READ_ONCE_TOLD, str(go)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        child = Child(process, asyncio.get_running_loop().create_future())
        ends = (process.stdout, process.stderr, process.stdin)
        output, error, stdin = (os.dup(end.fileno()) for end in ends)
        process.stdin.close()
        helper = Helper(child, "helper", output, error, stdin)
        try:
            for number in range(MORE_THAN_A_PIPE_HOLDS):
                helper.tell(f"publish {number}")
            helper.tell("end 5")
            helper.finish()
            go.touch()
            assert await helper.line() == b"end 5"
            assert await helper.line() is None
        finally:
            helper.close()


class Helpers:
    """Helpers that print some lines each and end."""

    def __init__(self, *lives: tuple[list[bytes], int]) -> None:
        self._lives = list(lives)

    @contextlib.asynccontextmanager
    async def running(self, argv: list[str]) -> AsyncIterator[Any]:
        lines, status = self._lives.pop(0)

        async def line() -> bytes | None:
            return lines.pop(0) if lines else None

        async def wait() -> int:
            return status

        yield SimpleNamespace(line=line, wait=wait, problem="")


async def test_use_of_gpus_is_measured_again_when_its_helper_has_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_GPU_PAUSES_S", (0.0, 0.0))
    helpers: Any = Helpers(([b"0.5 100"], -9), ([], 4), ([b"0.7 200"], 4), ([], NO_LIBRARY))
    taken: list[Any] = []
    await run.keep_measuring_gpus(helpers, ["GPU-7"], taken.append)
    assert [use for use in taken if use != (None, None)] == [(0.5, 100.0), (0.7, 200.0)]
    assert taken[-1] == (None, None)
