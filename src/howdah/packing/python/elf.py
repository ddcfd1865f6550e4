"""Small changes to ELF files, so that an interpreter finds its libraries wherever it is unpacked.

No compiler and no patchelf is needed, neither here nor on the target. The run path of an
interpreter is overwritten in place where the new one is not longer; otherwise the dynamic section's
string table is copied to the end of the file with the new run path behind it, and the program
header of a note (which nobody needs to run a program) maps that copy. Layout: System V ABI, and
``elf.h``. Only little-endian 64-bit files are handled: x86-64 and AArch64.
"""

from __future__ import annotations

import re
import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 0, 1, 5, 10, 14
_DT_RPATH, _DT_RUNPATH, _DT_DEBUG = 15, 29, 21
_PAGE = 0x10000  # the largest of the processors'

_DAMAGE = (struct.error, ValueError, OverflowError)
"""What reading beyond the end of a file, or a text that is none, raises."""

_GLIBC = re.compile(rb"GLIBC_2\.(\d+)\0")


class NotChangeable(Exception):
    """The file is not of a kind this module can change."""


def is_elf(data: bytes | bytearray) -> bool:
    """Whether it is an ELF file of the kind that is handled here."""
    return data[:6] == b"\x7fELF\x02\x01"


def glibc(data: bytes) -> int:
    """The newest glibc (minor version of 2) whose symbols the file asks for; 0 if none."""
    return max((int(found) for found in _GLIBC.findall(data)), default=0)


def without_symbols(data: bytes) -> bytes:
    """The file without what only debuggers read: everything behind the last mapped byte.

    Section headers lie there too and are not needed to run. What is damaged stays as it is.
    """
    if not is_elf(data):
        return data
    try:
        return _without_symbols(data, _Image(data))
    except _DAMAGE:
        return data


def _without_symbols(data: bytes, image: _Image) -> bytes:
    end = max(
        (offset + size for type_, _, offset, _, _, size, _, _ in image.programs() if size),
        default=0,
    )
    if not image.offset or end < _HEADER.size or end >= len(data):
        return data
    header = list(_HEADER.unpack_from(data))
    header[6] = header[12] = header[13] = 0  # section headers: offset, number, index of names
    return _HEADER.pack(*header) + bytes(data[_HEADER.size : end])


def soname(data: bytes) -> str | None:
    """The name others load it by; None if it says none, or is damaged."""
    if not is_elf(data):
        return None
    try:
        image = _Image(data)
        at = image.value(_DT_SONAME)
        return None if at is None else image.string(at).decode()
    except (NotChangeable, *_DAMAGE):
        return None


def run_path(data: bytes) -> str | None:
    """The run path, whichever of the two kinds it is of; None if there is none to be read."""
    try:
        return _Image(data).run_path() if is_elf(data) else None
    except (NotChangeable, *_DAMAGE):
        return None


def with_run_path(data: bytes, path: str) -> bytes:
    """The file with that run path (``DT_RPATH``: it counts for what is loaded later as well).

    Raises:
        NotChangeable: there is no room for one, or the file is damaged.
    """
    if not is_elf(data):
        raise NotChangeable("not a 64-bit little-endian ELF file")
    try:
        image = _Image(data)
        if not image.offset:
            raise NotChangeable("statically linked")
        return image.overwritten(path) or image.extended(path)
    except _DAMAGE as error:
        raise NotChangeable(f"damaged: {error}") from None


class _Image:
    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        header = _HEADER.unpack_from(data)
        self.program_offset: int = header[5]
        self.program_count: int = header[10]
        self.offset = self.size = 0
        for type_, _, offset, _, _, size, _, _ in self.programs():
            if type_ == _PT_DYNAMIC:
                self.offset, self.size = offset, size

    def programs(self) -> list[tuple[int, ...]]:
        return [
            _PROGRAM.unpack_from(self.data, self.program_offset + index * _PROGRAM.size)
            for index in range(self.program_count)
        ]

    def dynamic(self) -> list[tuple[int, int, int]]:
        """Tag, value and where in the file, up to and with the spare ones at the end."""
        count = self.size // _DYNAMIC.size
        places = (self.offset + index * _DYNAMIC.size for index in range(count))
        return [(*_DYNAMIC.unpack_from(self.data, at), at) for at in places]

    def value(self, wanted: int) -> int | None:
        return next((value for tag, value, _ in self.dynamic() if tag == wanted), None)

    def strings(self) -> tuple[int, int]:
        """Where in the file the dynamic section's strings are, and their length."""
        address, size = self.value(_DT_STRTAB), self.value(_DT_STRSZ)
        if address is None or size is None:
            raise NotChangeable("no dynamic strings")
        for type_, _, offset, virtual, _, length, _, _ in self.programs():
            if type_ == _PT_LOAD and virtual <= address < virtual + length:
                return offset + address - virtual, size
        raise NotChangeable("its dynamic strings are nowhere")

    def string(self, at: int) -> bytes:
        start = self.strings()[0] + at
        return bytes(self.data[start : self.data.index(0, start)])

    def run_path(self) -> str | None:
        at = self.value(_DT_RUNPATH)
        at = self.value(_DT_RPATH) if at is None else at
        return None if at is None else self.string(at).decode()

    def overwritten(self, path: str) -> bytes | None:
        """In place, if there is a run path that is long enough and nobody else's."""
        new = path.encode()
        entries = [entry for entry in self.dynamic() if entry[0] in (_DT_RPATH, _DT_RUNPATH)]
        if len(entries) != 1:
            return None
        _, value, at = entries[0]
        old = self.string(value)
        if len(new) > len(old) or self._shared(value, len(old)):
            return None
        start = self.strings()[0] + value
        self.data[start : start + len(old)] = new.ljust(len(old), b"\0")
        _DYNAMIC.pack_into(self.data, at, _DT_RPATH, value)
        return bytes(self.data)

    def _shared(self, value: int, length: int) -> bool:
        """Linkers let a string be the end of another one: symbols and names of libraries may."""
        inside = range(value, value + length)
        named = (_DT_NEEDED, _DT_SONAME)
        return any(tag in named and at in inside for tag, at, _ in self.dynamic()) or (
            bytes(self.data[self.strings()[0] + value - 1 : self.strings()[0] + value]) != b"\0"
        )

    def extended(self, path: str) -> bytes:
        """With a longer copy of the strings at the end of the file."""
        programs = self.programs()
        note = next((at for at, item in enumerate(programs) if item[0] == _PT_NOTE), None)
        loads = [at for at, item in enumerate(programs) if item[0] == _PT_LOAD]
        if not loads:
            raise NotChangeable("no part of it is mapped")
        # The loader takes the mapped parts in the order of their addresses.
        if note is None or note < max(loads):
            raise NotChangeable("it has no program header to spare")
        spare = self._entry_for_run_path()
        start, size = self.strings()
        strings = bytes(self.data[start : start + size]) + path.encode() + b"\0"
        self.data += bytes(-len(self.data) % 16)
        offset = len(self.data)
        end = max(item[3] + item[6] for item in programs if item[0] == _PT_LOAD)
        # Address and offset must agree within a page; the page behind the last one is free.
        virtual = (end + _PAGE - 1) // _PAGE * _PAGE + offset % _PAGE
        self.data += strings
        _PROGRAM.pack_into(
            self.data,
            self.program_offset + note * _PROGRAM.size,
            *(_PT_LOAD, 4, offset, virtual, virtual, len(strings), len(strings), _PAGE),
        )
        for tag, _, at in self.dynamic():
            if tag == _DT_STRTAB:
                _DYNAMIC.pack_into(self.data, at, tag, virtual)
            elif tag == _DT_STRSZ:
                _DYNAMIC.pack_into(self.data, at, tag, len(strings))
        _DYNAMIC.pack_into(self.data, spare, _DT_RPATH, size)
        return bytes(self.data)

    def _entry_for_run_path(self) -> int:
        """An entry of the dynamic section to use: the old run path's, a spare one, or DT_DEBUG."""
        entries = self.dynamic()
        for tag, _, at in entries:
            if tag in (_DT_RPATH, _DT_RUNPATH):
                return at
        ends = [at for tag, _, at in entries if tag == _DT_NULL]
        if len(ends) > 1:
            return ends[0]  # the next one ends the section
        for tag, _, at in entries:
            if tag == _DT_DEBUG:
                return at
        raise NotChangeable("its dynamic section is full")
