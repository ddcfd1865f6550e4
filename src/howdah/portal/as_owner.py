"""Programs that a portal runs in the name of a job's owner, so that they can do no more than they could."""

from __future__ import annotations

import contextlib
import os
import pwd
from typing import Any

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "HOWDAH_SITE", "HADOOP_CONF_DIR", "JAVA_HOME")


def may_be(uid: int) -> bool:
    """Whether programs can be run as that user."""
    return os.geteuid() in (0, uid)


def as_owner(name: str, uid: int, gid: int) -> dict[str, Any]:
    """Arguments of `asyncio.create_subprocess_exec` for a program of that user, with nothing of ours.

    ``gid``: for one that the system knows no group of.
    """
    home = "/nonexistent"
    with contextlib.suppress(KeyError):
        found = pwd.getpwuid(uid)
        home, gid = found.pw_dir, found.pw_gid
    env = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    env |= {"HOME": home, "USER": name, "LOGNAME": name}
    options: dict[str, Any] = {"cwd": "/", "env": env, "start_new_session": True}
    if os.geteuid() == 0:
        options |= {"user": uid, "group": gid, "extra_groups": os.getgrouplist(name, gid)}
    return options
