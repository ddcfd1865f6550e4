"""What an agent tells its helper processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from howdah.agent.children import Child, Helper

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
