"""Programs that a portal runs in the name of a job's owner, so that they can do no more than they could."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
from typing import Any

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "HOWDAH_SITE", "HADOOP_CONF_DIR", "JAVA_HOME")
_LINE_MAX = 500


def may_be(uid: int) -> bool:
    """Whether programs can be run as that user."""
    return os.geteuid() in (0, uid)


class NoAccount(Exception):
    """Programs of a user of a cluster run as nobody here; the text says why."""


def ids_of(name: str) -> tuple[int, int]:
    """User and group that programs of that user of a cluster run as on this machine.

    A portal that is not root runs them as itself.

    Raises:
        NoAccount: root's portal knows no such account, or it is root's.
    """
    if os.geteuid():
        return os.geteuid(), os.getegid()
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise NoAccount(f"{name} has no account on the portal's machine") from None
    if found.pw_uid == 0:
        raise NoAccount(
            f"{name} of the cluster is not trusted to be root of the portal's machine: without Kerberos, "
            "anybody on the cluster can go by that name"
        )
    return found.pw_uid, found.pw_gid


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


def kill(process: asyncio.subprocess.Process) -> None:
    """End such a program, and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def one_line(text: str) -> str:
    """What such a program says, in one line and not too long a one: its owner may have made it say anything."""
    return "".join(each if each.isprintable() else " " for each in text[:_LINE_MAX])


def last_line(said: bytes) -> str:
    """The last line of what such a program has said."""
    return one_line(said.decode("utf-8", "replace").strip().rpartition("\n")[2])
