"""Programs and libraries that are packed."""

from __future__ import annotations

import struct

from howdah.packing.python import elf
from tests.fuzz.target import Target

_LOAD, _DYNAMIC, _NOTE = 1, 2, 4
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RUNPATH = 1, 5, 10, 14, 29


def _library() -> bytes:
    """A header, three parts, a dynamic section and its strings, as a linker lays them out."""
    strings = b"\0libz.so.1\0libx.so.2\0$ORIGIN/../lib\0GLIBC_2.17\0"
    at = 64 + 3 * 56
    entries = [
        (_NEEDED, strings.index(b"libz")),
        (_SONAME, strings.index(b"libx")),
        (_RUNPATH, strings.index(b"$ORIGIN")),
        (_STRTAB, at + 8 * 16),
        (_STRSZ, len(strings)),
        (0, 0),
        (0, 0),
        (0, 0),
    ]
    end = at + 8 * 16 + len(strings)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(b"\x7fELF\x02\x01\x01" + bytes(9), 3, 62, 1, 0, 64, end, 0, 64, 56, 3, 64, 2, 1),
    )
    parts = [
        (_LOAD, 5, 0, 0, 0, end, end, 4096),
        (_DYNAMIC, 6, at, at, at, 8 * 16, 8 * 16, 8),
        (_NOTE, 4, 0, 0, 0, 0, 0, 4),
    ]
    body = b"".join(struct.pack("<IIQQQQQQ", *part) for part in parts)
    body += b"".join(struct.pack("<qQ", *entry) for entry in entries)
    return head + body + strings + bytes(128)


def _change(data: bytes) -> None:
    elf.glibc(data)
    elf.soname(data)
    elf.run_path(data)
    elf.without_symbols(data)
    for path in ("$ORIGIN", "$ORIGIN/../" + "long/" * 20):
        changed = elf.with_run_path(data, path)
        assert len(changed) <= len(data) + 8192


PROGRAMS: dict[str, Target] = {
    "elf": Target([_library()], _change, (elf.NotChangeable,), share=0.5)
}
