"""Howdah's own runtime on a cluster: two archives, apart from the user's environment.

The first has an interpreter and the packages that coordinator, agents and helpers need; it changes
when those do. The second has Howdah itself: small, and it may change every day.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from howdah.packing.archives import Archive, ArchiveKind, PackingError, Progress, SizeRow, quiet
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.tarball import FAST, TarEntry, is_executable
from howdah.version import PACKAGE, __version__

if TYPE_CHECKING:
    from howdah.spec.model import Job

NEEDED = (
    "msgspec",  # structs; all the agent needs
    "protobuf",  # Hadoop's RPC
    "hdfs-native",  # HDFS data
    "fsspec",  # stores that are URLs
    "starlette",  # the job's page
    "uvicorn",
    "h11",
    "jinja2",
    "prometheus-client",  # /metrics
    "py-spy",  # stacks of running programs
)
"""Distributions that Howdah's processes on a cluster need. The rest of Howdah's dependencies is for
the submitter's side: cryptography makes a job's certificates at submission, pyyaml reads job files,
cloudpickle runs in the programs' own Python."""
OPTIONAL = ("nvidia-ml-py",)
"""Taken along where they are installed: GPUs' names and use."""
SUBMITTERS = (
    "backends/local/",
    "backends/spark/",
    "cli/",
    "client/",
    "compat/",
    "integrations/",
    "packing/",
    "portal/",
    "spark/",
)
"""Folders of Howdah that no process of its own imports on a cluster: they come without byte code."""
PYTHON = "bin/python3"
CODE = "lib/python3/site-packages"
"""The folder in the archive of Howdah's code that belongs on PYTHONPATH. So deep since a NodeManager lists a
container's folder, five levels of it and twice, before it starts it
(``yarn.nodemanager.log-container-debug-info.enabled``, the default)."""
_HOWDAH = ("howdah",)
"""An archive of its own."""
_UNUSED = ("argcomplete",)
"""For a command of hdfs-native's; comes along only if something else needs it."""
_LAYOUT = 1
"""Grows when both archives become others from the same files."""
_PLUGINS = ("howdah.frameworks", "howdah.backends")


def runtime(
    cache: Path, progress: Progress = quiet, further: Sequence[str] = ()
) -> tuple[Archive, ...]:
    """The archives of Howdah's own runtime: `ArchiveKind.RUNTIME`, then `ArchiveKind.HOWDAH`.

    ``further`` are distributions of this environment to take along, such as the fsspec
    implementation of a job's store. Packages that bring plug-ins to Howdah come along anyway.

    Raises:
        PackingError: what is wrong and what to do.
    """
    return (base(cache, progress, further), own_code(cache, progress))


def base(cache: Path, progress: Progress = quiet, further: Sequence[str] = ()) -> Archive:
    """The interpreter and the packages."""
    python = our_python()

    def make(scratch: Path) -> Archive:
        content = _base_content(python, further, scratch, progress)
        return tar_of(ArchiveKind.RUNTIME, content, scratch, progress, FAST)

    inputs = (_LAYOUT, NEEDED, OPTIONAL, tuple(further), _installed(python), _developed(further))
    return Cache(cache).get(ArchiveKind.RUNTIME, inputs, make)


def our_python() -> Path:
    """The interpreter of Howdah's processes on a cluster: a portable one, or the one that runs this."""
    from howdah.packing.python import interpreter

    return interpreter.portable() or interpreter.base_executable()


def ready(place: str, folder: Path, cache: Path, progress: Progress = quiet) -> Archive:
    """A runtime that was packed before: at ``place``, a path (a relative one is in ``folder``) or where
    YARN reads.

    Raises:
        PackingError: it is not there, or no archive with an interpreter.
    """
    from howdah.packing import files
    from howdah.packing.python.prebuilt_archives import looked_into

    if place.startswith(files.READY):
        return files.elsewhere(place, ArchiveKind.RUNTIME, PYTHON)
    path = files.path_of(place, folder)
    if not path.is_file():
        raise PackingError(f"[hadoop] runtime: there is no file {path}")
    archive = files.ready(path, ArchiveKind.RUNTIME, cache)
    return looked_into(archive, place, cache, progress, key="[hadoop] runtime")


def of_job(job: Job, folder: Path, cache: Path, progress: Progress = quiet) -> Archive | None:
    """The interpreter with Howdah's packages that a job whose file is in ``folder`` has shipped; None where
    it names a Python of the nodes.

    Raises:
        PackingError: it cannot be made, or the one that the job names is not there.
    """
    if job.hadoop.python is not None:
        return None
    if job.hadoop.runtime is not None:
        return ready(job.hadoop.runtime, folder, cache, progress)
    return base(cache, progress)


def own_code(cache: Path, progress: Progress = quiet) -> Archive:
    """Howdah itself, in the folder `CODE`."""
    folder = Path(PACKAGE)
    entries = [
        TarEntry(f"{CODE}/howdah/{name}", path=Path(path), executable=is_executable(status.st_mode))
        for name, path, status in _walk(folder, "")
    ]
    inputs = [(entry.name, entry.executable, _size(entry), _mtime(entry.path)) for entry in entries]

    def make(scratch: Path) -> Archive:
        from howdah.packing.python.bytecode import with_byte_code

        submitters = tuple(f"{CODE}/howdah/{each}" for each in SUBMITTERS)
        plain = [entry for entry in entries if entry.name.startswith(submitters)]
        used = [entry for entry in entries if not entry.name.startswith(submitters)]
        content = Content(
            entries=(*plain, *with_byte_code(used, our_python(), scratch / "pyc", progress)),
            rows=(SizeRow("howdah", sum(map(_size, entries)), len(entries)),),
            notes=(f"Howdah {__version__}, from {folder}",),
        )
        return tar_of(ArchiveKind.HOWDAH, content, scratch, progress, FAST)

    return Cache(cache).get(ArchiveKind.HOWDAH, (_LAYOUT, inputs, _python_stamp()), make)


def _base_content(
    python: Path, further: Sequence[str], scratch: Path, progress: Progress
) -> Content:
    from howdah.packing.python import distributions, elf
    from howdah.packing.python.bytecode import with_byte_code
    from howdah.packing.python.interpreter import glibc_note, interpreter

    progress("looking at the interpreter", 0, None)
    needed = distributions.closure(NEEDED, OPTIONAL, (*_HOWDAH, *_UNUSED))
    ours = {each.name for each in needed}
    brought = distributions.closure(further, _with_plugins(), (*_HOWDAH, *ours))
    wanted = sorted((*needed, *brought), key=lambda each: distributions.normal(each.name))
    base = interpreter(python, scratch / "elf")
    parts = {f"Python {base.version}": [*base.entries]}
    others: list[TarEntry] = []
    for each in wanted:
        placed = [_placed(entry, base.site) for entry in distributions.entries(each, "@site")]
        parts[f"{each.name} {each.version}"] = placed
        others += [] if each.name in ours else placed
    named = {entry.name for entry in others}
    known = [entry for part in parts.values() for entry in part if entry.name not in named]
    libc = max(base.glibc, *(elf.glibc(entry.content) for entry in known + others if entry.content))
    # Two files for each module would be half of the archive's files, and the node takes its time with each.
    entries = {
        entry.name: entry
        for entry in (
            *with_byte_code(known, base.executable, scratch / "pyc", progress, instead=True),
            *with_byte_code(others, base.executable, scratch / "others", progress),
        )
    }
    rows: list[SizeRow] = []
    byte_code = dict(entries)
    for name, part in parts.items():
        shipped = [byte_code.pop(entry.name) for entry in part if entry.name in byte_code]
        rows.append(SizeRow(name, sum(map(_size, shipped)), len(shipped)))
    rows.append(SizeRow("byte code", sum(map(_size, byte_code.values())), len(byte_code)))
    return Content(
        entries=tuple(entries.values()),
        python=base.python,
        rows=tuple(sorted(rows, key=lambda row: -row.size)),
        notes=(f"Python {base.version} of {base.executable}; {glibc_note(libc)}",),
    )


def _placed(entry: TarEntry, site: str) -> TarEntry:
    """In the folder for packages, without symbols: our own processes are not debugged with gdb, and
    a quarter of hdfs-native is symbols."""
    name = entry.name.replace("@site", site, 1)
    if entry.path is None or ".so" not in entry.path.suffixes:
        return msgspec.structs.replace(entry, name=name)
    from howdah.packing.python import elf

    return TarEntry(name, content=elf.without_symbols(entry.path.read_bytes()), executable=True)


def _with_plugins() -> list[str]:
    """Distributions that bring frameworks or backends to Howdah."""
    from howdah.plugins import entry_points

    points = [point for group in _PLUGINS for point in entry_points(group)]
    return sorted({point.dist.name for point in points if point.dist is not None} - {"howdah"})


def _installed(python: Path) -> list[tuple[object, ...]]:
    """What changes when the interpreter does, or when something is installed or removed: folders
    of packages get another time of change then."""
    import sysconfig

    named = {*site.getsitepackages(), site.getusersitepackages()}.intersection(sys.path)
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *named}
    there = [folder for folder in sorted(folders) if Path(folder).is_dir()]
    return [*_python_stamp(), *((folder, _mtime(folder)) for folder in there)]


def _developed(further: Sequence[str]) -> list[object]:
    """What changes when the code of plug-ins does that are development installs."""
    from howdah.packing.python import distributions

    # Plug-ins are looked for in all that is installed, which takes longer than all else here.
    folders = {*site.getsitepackages(), site.getusersitepackages()}
    paths = [path for folder in folders for path in Path(folder).glob("*.pth")]
    if not any(distributions.elsewhere(path) for path in paths):
        return []
    brought = distributions.closure(further, _with_plugins(), _HOWDAH)
    contents = [distributions.developed(each) for each in brought]
    return [content.stamps for each in contents for content in each.values()]


def _python_stamp() -> list[tuple[object, ...]]:
    python = our_python()
    return [(sys.version, str(python), _mtime(python))]


def _walk(folder: Path, name: str) -> Iterable[tuple[str, str, os.stat_result]]:
    for entry in os.scandir(folder):
        if entry.name == "__pycache__" or entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(Path(entry.path), f"{name}{entry.name}/")
        else:
            yield f"{name}{entry.name}", entry.path, entry.stat()


def _mtime(path: Path | str | None) -> int:
    return Path(path or "").stat().st_mtime_ns


def _size(entry: TarEntry) -> int:
    return entry.path.stat().st_size if entry.path else len(entry.content or b"")
