"""A node daemon imports the agent once and forks it many times."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
import json, os, signal, sys, threading
before = {n: signal.getsignal(n) for n in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)}
fds = os.listdir("/proc/self/fd")
had = set(sys.modules)
import howdah.agent.main
assert before == {n: signal.getsignal(n) for n in before}
assert os.listdir("/proc/self/fd") == fds
assert threading.active_count() == 1
print(json.dumps(sorted(set(sys.modules) - had)))
"""


def test_importing_the_agent_does_nothing_else_and_brings_nothing_large() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout)
    packages = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert packages - {"typing_extensions"} == {"howdah", "msgspec"}  # msgspec takes it if there
    rooms = {name.split(".")[1] for name in modules if name.startswith("howdah.")}
    assert rooms == {"agent", "core", "spec", "storage", "wire"}
    assert not {"shutil", "ctypes", "email", "http", "multiprocessing", "psutil"} & set(modules)
    assert "howdah.wire.authority" not in modules
