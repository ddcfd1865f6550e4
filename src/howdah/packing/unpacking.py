"""Unpack tar files so that nothing lands outside of a folder."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path


def unpack(tar: tarfile.TarFile, folder: Path, *, links_outside: bool = False) -> None:
    """All that is in it.

    Args:
        links_outside: symbolic links may lead anywhere, as an environment's may; nothing is written through them.

    Raises:
        tarfile.TarError: something would be outside of the folder, or is a device.
    """
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="tar" if links_outside else "data")  # noqa: S202 - filtered
    else:
        members = _inside(tar, os.path.realpath(folder), links_outside)
        tar.extractall(folder, members)  # noqa: S202 - looked at one by one


def _inside(tar: tarfile.TarFile, root: str, links_outside: bool) -> Iterator[tarfile.TarInfo]:
    """What the filters do that Python has from 3.11.4 on. Each is unpacked before the next is looked at."""
    for member in tar:
        member.name = member.name.lstrip("/")
        member.mode &= 0o755
        if not links_outside:  # data: whose it was and who might read it says nothing here
            member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
            member.mode |= 0o700 if member.isdir() else 0o600
        path = os.path.join(root, member.name)
        places = [path]
        if member.islnk():
            places.append(os.path.join(root, member.linkname))
        elif member.issym() and not links_outside:
            places.append(os.path.join(os.path.dirname(path), member.linkname))
        for place in map(os.path.realpath, places):
            if os.path.commonpath([root, place]) != root:
                raise tarfile.ExtractError(f"{member.name!r} would be outside of the folder")
        if member.isdev() and not links_outside:
            raise tarfile.ExtractError(f"{member.name!r} is a device")
        yield member
