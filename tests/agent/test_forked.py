"""The agent in a forked child of a busy, pre-imported parent, as a node daemon starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from howdah.wire.messages import Shutdown
from tests.agent.rig import Rig, python, until

PARENT = """
import asyncio, gc, os, signal, sys
import howdah.agent.main

async def parent():
    # A loop with handlers of its own, which the child must not disturb.
    children = {}
    done = asyncio.Event()
    def reap():
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            print("code", children.pop(pid), os.waitstatus_to_exitcode(status), flush=True)
        done.set()
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap)
    gc.freeze()
    for name in sys.argv[1:]:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                os.closerange(3, 2**31 - 1)
                os.setsid()
                code = howdah.agent.main.main(name)
            finally:
                os._exit(code)
        children[pid] = name
        print("pid", pid, flush=True)
    await done.wait()

asyncio.run(parent())
"""


async def test_a_forked_agent_works_like_any_other(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        files = []
        for container in ("c1", "c2"):
            file, launch = rig.launch_file(container_id=container)
            Path(launch.work_dir).mkdir(parents=True)
            files.append(str(file))
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, *files], stdout=subprocess.PIPE, text=True
        )
        try:
            assert parent.stdout is not None
            pids = [int(parent.stdout.readline().split()[1]) for _ in files]
            await rig.connected(2)
            exit = await rig.run(python("import os; print(os.getppid()); raise SystemExit(4)"))
            assert (exit.code, exit.tail) in {(4, (str(pid),)) for pid in pids}
            rss_mb = [
                int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
                for pid in pids
            ]
            assert max(rss_mb) <= 30
            for channel in rig.channels:
                channel.send(Shutdown())
            lines = sorted(parent.stdout.readline().split() for _ in files)
            assert lines == [["code", name, "0"] for name in sorted(files)]
            assert parent.wait(10) == 0
        finally:
            parent.kill()
            parent.communicate()
        for pid in pids:
            await until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
