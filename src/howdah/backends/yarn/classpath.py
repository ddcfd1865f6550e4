"""What libhdfs needs: the environment for readers that run a JVM (TensorFlow's, pyarrow's)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 60.0


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """``CLASSPATH``, and where libhdfs and libjvm are, as far as the node tells.

    ``hadoop classpath --glob`` is asked: libhdfs takes no wildcards. Without a ``hadoop`` program
    nothing is set, and a word says so.
    """
    program = find(env)
    if program is None:
        _say("no `hadoop` program on PATH or in HADOOP_HOME: CLASSPATH is not set")
        return {}
    try:
        done = subprocess.run(
            [program, "classpath", "--glob"],
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"`{program} classpath --glob` failed: {error}; CLASSPATH is not set")
        return {}
    found = {"CLASSPATH": done.stdout.strip()}
    home = Path(program).resolve().parent.parent
    folders = [str(home / "lib" / "native")]
    if java := env.get("JAVA_HOME"):
        folders += [str(Path(java, "lib", "server")), str(Path(java, "jre/lib/amd64/server"))]
    folders += filter(None, env.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    there = [folder for folder in folders if Path(folder).is_dir()]
    found["LD_LIBRARY_PATH"] = os.pathsep.join(dict.fromkeys(there))
    if not env.get("HADOOP_HOME"):
        found["HADOOP_HOME"] = str(home)
    if not env.get("HADOOP_HDFS_HOME"):
        found["HADOOP_HDFS_HOME"] = env.get("HADOOP_HOME") or str(home)
    return found


def find(env: Mapping[str, str]) -> str | None:
    """The ``hadoop`` program of the node."""
    for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME"):
        if home := env.get(name):
            program = Path(home, "bin", "hadoop")
            if os.access(program, os.X_OK):
                return str(program)
    return shutil.which("hadoop", path=env.get("PATH"))


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
