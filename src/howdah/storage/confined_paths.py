"""Names of files that others give, kept inside the folder they are for.

`open_beneath` writes below a folder and follows no link there. `escaping` says of links that are not
there yet which of them would lead out.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from howdah.storage.files import PRIVATE_FILE, PRIVATE_FOLDER

_NO_TEXT = re.compile("[\udc80-\udcff]")
_WRITTEN = re.compile("\0([89a-f][0-9a-f])")
_MOST_LINKS = 40
"""Links that Linux follows in one path, ``MAXSYMLINKS``; beyond it a path leads nowhere."""
_NO_FILE = "{!r} in {} is no file but a pipe, a socket or a folder; remove it"


class LeadsOutside(OSError):
    """A name that is no path below the folder; the text names it."""


def open_beneath(folder: Path, name: str, flags: int) -> int:
    """Open the file of that relative name below the folder; folders on the way are made, 0700,
    and the file 0600.

    No link below the folder is followed, the last part's neither, whatever other processes do to
    the folder meanwhile. What is there and is no file is not opened: a pipe has its writers wait.

    Raises:
        LeadsOutside: the name is absolute, has ``..``, or a part of it is a link, or neither folder
            nor file.
        OSError: it can't be opened.
    """
    *folders, last = parts(name)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            below = _enter(at, part, folder, name)
            os.close(at)
            at = below
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            opened = os.open(last, flags, PRIVATE_FILE, dir_fd=at)
        except OSError as error:
            if _is_link(at, last):
                raise LeadsOutside(f"{name!r} is a link in {folder}; it is not followed") from None
            if error.errno == errno.ENXIO:
                raise LeadsOutside(_NO_FILE.format(name, folder)) from None
            raise
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise LeadsOutside(_NO_FILE.format(name, folder))
        return opened
    finally:
        os.close(at)


def to_text(name: str) -> str:
    """A file's name, or where a link leads, for documents, which are UTF-8, where names need not be: each byte
    that is no text as a NUL, which no name has, and its value."""
    return _NO_TEXT.sub(lambda found: f"\0{ord(found[0]) - 0xDC00:02x}", name)


def to_name(text: str) -> str:
    """The opposite of `to_text`."""
    return _WRITTEN.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text)


def shown(name: str) -> str:
    """A file's name for people; what is no text in it is replaced."""
    return _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", name)


def encoded(document: object) -> bytes:
    """As JSON; names in it that are no text are as `shown`."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return shown(json.dumps(msgspec.to_builtins(document), ensure_ascii=False)).encode()


def parts(name: str) -> list[str]:
    """The parts of a relative path that has one way of being written.

    Raises:
        LeadsOutside: it is empty, absolute, or has ``.``, ``..``, an empty part or a NUL.
    """
    found = name.split("/")
    if any(part in ("", ".", "..") for part in found) or "\0" in name:
        raise LeadsOutside(f"{name!r} is no path below a folder")
    return found


def escaping(links: Mapping[str, str]) -> set[str]:
    """Those of a folder's links (target by relative path) that lead out of it.

    Links on the way of a link count, as the kernel follows them: of ``p/q -> ..`` and ``p/l ->
    q/../x`` the second does. What is no link counts as a folder.
    """
    return {name for name in links if _leads_out(name, links)}


def _leads_out(name: str, links: Mapping[str, str]) -> bool:
    waiting = name.split("/")[::-1]
    at: list[str] = []
    followed = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        target = links.get("/".join(at))
        if target is None:
            continue
        followed += 1
        if target.startswith("/"):
            return True
        if followed > _MOST_LINKS:
            return False
        at.pop()
        waiting += target.split("/")[::-1]
    return False


def _enter(at: int, part: str, folder: Path, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(part, flags, dir_fd=at)
        except FileNotFoundError:
            try:
                os.mkdir(part, PRIVATE_FOLDER, dir_fd=at)
            except FileExistsError:
                continue  # another writer was faster
        except OSError as error:
            text = f"{name!r} leads out of {folder}: {part!r} there is a link, or no folder"
            raise LeadsOutside(text) from error


def _is_link(at: int, name: str) -> bool:
    try:
        os.readlink(name, dir_fd=at)
    except OSError:
        return False
    return True
