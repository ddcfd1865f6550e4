"""What a job needs on the cluster: where its directory is, and what is shipped to containers."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from howdah.agent.launch import HERE
from howdah.backends.base import BackendError
from howdah.backends.yarn import local_resources as names
from howdah.backends.yarn.local_resources import LocalResource, LocalResources, ResourceKind
from howdah.hadoop import viewfs
from howdah.hadoop.configuration import FILES as CONFIGURATION_FILES
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError
from howdah.packing.archives import Archive, Progress, cache_folder
from howdah.packing.archives import ArchiveKind as Packed
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.python import runtime
from howdah.packing.store import Uploaded
from howdah.packing.tarball import TarEntry
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job
from howdah.storage.hdfs import split

if TYPE_CHECKING:
    from howdah.packing.files import Extra

SCHEME = "hdfs://"
JOBS = ".howdah/jobs"
_LINKS = (names.RUNTIME, names.HOWDAH, names.ENVIRONMENT, names.SOURCE, names.CONF)
_FURTHER_FILES = ("mapred-site.xml", "log4j.properties")
"""Of a configuration folder, for programs that use Hadoop's own tools."""
_INCLUDE = b"XInclude"


# -- where ---------------------------------------------------------------------------------------


def home_url(configuration: Configuration, user: str) -> str:
    """The user's home folder on the default file system.

    Raises:
        BackendError: the default file system is no HDFS.
    """
    fs = configuration.default_fs
    home = whole(f"{viewfs.homes(fs, configuration)}/{user}", configuration)
    if not home.startswith(SCHEME):
        leads = f" and leads to {home}" if viewfs.is_viewfs(fs) else ""
        raise BackendError(
            f"fs.defaultFS is {fs!r} ({configuration.source('fs.defaultFS')}){leads}, which is no HDFS; "
            "job directories on YARN are kept on HDFS: name a folder with `store` in the job file or "
            "the site file"
        )
    return home


def base_url(store: str | None, configuration: Configuration, user: str) -> str:
    """The folder of the user's job directories: ``<store>/<user>``.

    Raises:
        BackendError: the store is none on HDFS.
    """
    if store is None:
        return f"{home_url(configuration, user)}/{JOBS}/{user}"
    place = whole(store, configuration) if "://" in store else store
    if not place.startswith(SCHEME):
        what = "another file system" if "://" in place else "a folder of this machine"
        raise BackendError(
            f"The store {store!r} is {what}; the yarn backend keeps job directories on HDFS: give "
            "an hdfs:// URL, or leave store out"
        )
    return f"{place}/{user}"


def cache_home(url: str, configuration: Configuration, user: str) -> str:
    """In which home archives are kept for a job directory at that URL: the user's, if that is on the
    same file system, else the folder of job directories."""
    with contextlib.suppress(BackendError):
        home = home_url(configuration, user)
        if split(home)[0] == split(url)[0]:
            return home
    return url.rpartition("/")[0]


def whole(place: str, configuration: Configuration) -> str:
    """The place with the file system it is on: an absolute path and ``hdfs:///a`` are on the default
    one, ``viewfs://`` leads to another.

    Raises:
        BackendError: it leads nowhere.
    """
    path = place.removeprefix(SCHEME)
    url = configuration.default_fs + path if path.startswith("/") else place
    try:
        return viewfs.resolve(url.rstrip("/"), configuration)
    except ConfigurationError as error:
        raise BackendError(str(error)) from error


def written(job: Job, configuration: Configuration) -> dict[str, str]:
    """What a running job writes on HDFS besides its directory, by the key that names it.

    Raises:
        BackendError: one leads nowhere.
    """
    named = {
        "checkpoint.store": job.checkpoint.store if job.checkpoint else None,
        "outputs.store": job.outputs.store if job.outputs else None,
        "tensorboard.folder": job.tensorboard.folder if job.tensorboard else None,
    }
    urls = {key: whole(each, configuration) for key, each in named.items() if _is_url(each)}
    return {key: url for key, url in urls.items() if url.startswith(SCHEME)}


def file_systems(job: Job, url: str, configuration: Configuration) -> list[str]:
    """Every HDFS that the job's containers use: that of its directory at that URL, of what they write and what is
    brought to them, what ``[hadoop] name-nodes`` lists, and where the default file system is a ViewFs, all that it
    is made of.

    Raises:
        BackendError: something the job names leads nowhere.
    """
    from howdah.packing.files import understand

    brought = [
        job.environment.archive,
        job.hadoop.runtime,
        *(each.place for lines in job.files_by_role.values() for each in understand(lines)),
    ]
    places = [
        url,
        *written(job, configuration).values(),
        *(whole(each, configuration) for each in brought if _is_url(each)),
        *(whole(each, configuration) for each in job.hadoop.name_nodes),
    ]
    if viewfs.is_viewfs(configuration.default_fs):  # programs use what it is made of
        places += viewfs.targets(configuration.default_fs, configuration)
    return list(dict.fromkeys(split(each)[0] for each in places if each.startswith(SCHEME)))


def _is_url(place: str | None) -> TypeGuard[str]:
    return place is not None and (place.startswith(SCHEME) or viewfs.is_viewfs(place))


# -- what is shipped -----------------------------------------------------------------------------


class Packing:
    """Archives of a job, being made in threads."""

    def __init__(
        self,
        job: Job,
        loaded: LoadedJob,
        configuration: Configuration,
        pool: ThreadPoolExecutor,
        progress: Progress,
        cache: Path | None = None,
    ) -> None:
        """Begin."""
        cache = cache or cache_folder()
        folder = loaded.folder
        self._job = job
        self._pool = pool
        self._shipping: list[Future[Any]] = []
        place = Path(loaded.source) if loaded.source else None
        self._conf = pool.submit(conf_archive, configuration, cache)
        self._own = pool.submit(runtime.own_code, cache, progress)
        self._base = pool.submit(runtime.of_job, job, folder, cache, progress)
        self._source = pool.submit(_source, place, cache, progress, job.ignore) if place else None
        self._environment = (
            pool.submit(_environment, job, folder, cache, progress)
            if job.environment.is_made
            else None
        )
        self._files = {
            role: pool.submit(_files, lines, folder, cache, progress)
            for role, lines in job.files_by_role.items()
        }

    def base(self, result: Callable[[Future[Any]], Any]) -> Archive | None:
        """The interpreter with Howdah's packages, waited for by ``result``; None where nodes have one."""
        return result(self._base)

    def wait(self) -> None:
        """Wait until nothing is uploaded any more, after `ship` has ended and packing was stopped."""
        wait([one for one in self._shipping if not one.cancel()])

    def ship(
        self,
        upload: Callable[[Archive], Uploaded],
        inside: Callable[[str], list[str] | None],
        result: Callable[[Future[Any]], Any],
        application_id: str,
        user: str,
    ) -> LocalResources:
        """Wait for all by ``result``, bring each there by ``upload``; what a master needs to know.

        ``inside`` tells the files of a folder on HDFS, and None of a file.

        Uploads may still run when this fails: see `wait`.

        Raises:
            PackingError: something cannot be packed.
            OSError: something cannot be uploaded.
        """

        def shipped(
            name: str, archive: Archive, kind: ResourceKind = ResourceKind.ARCHIVE
        ) -> LocalResource:
            there = upload(archive)
            return LocalResource(
                name=name, url=there.url, size=there.size, mtime_ms=there.mtime_ms, kind=kind
            )

        def shipping(name: str, made: Future[Any]) -> Future[LocalResource | None]:
            """In a thread: what is packed first need not wait for what takes longer."""

            def ship() -> LocalResource | None:
                archive = result(made)
                return shipped(name, archive) if archive is not None else None

            self._shipping.append(self._pool.submit(ship))
            return self._shipping[-1]

        job = self._job
        all_made = {
            names.RUNTIME: self._base,
            names.HOWDAH: self._own,
            names.CONF: self._conf,
            names.SOURCE: self._source,
            names.ENVIRONMENT: self._environment,
        }
        going = {name: shipping(name, made) for name, made in all_made.items() if made is not None}
        there = {name: result(one) for name, one in going.items()}
        runtime_parts = [there[name] for name in (names.RUNTIME, names.HOWDAH, names.CONF)]
        python = job.hadoop.python or ""
        if (base := self.base(result)) is not None:
            python = f"{HERE}/{names.RUNTIME}/{base.python}"
        environment = result(self._environment) if self._environment else None
        more = {
            role: tuple(
                _extra(shipped, one) for extra in result(made) for one in _spread(extra, inside)
            )
            for role, made in self._files.items()
        }
        return LocalResources(
            application_id=application_id,
            user=user,
            runtime=tuple(part for part in runtime_parts if part is not None),
            runtime_python=python,
            source=there.get(names.SOURCE),
            environment=there.get(names.ENVIRONMENT),
            python=interpreter(job, environment),
            files=more,
            classpath=job.hadoop.classpath,
        )


def slow_runtime(job: Job, head: Callable[[Archive, int], bytes], base: Archive | None) -> str:
    """What is slow in the runtime that the job names; empty if nothing is. ``head`` reads an archive's first
    bytes.

    Raises:
        OSError: it cannot be read.
    """
    from howdah.packing.python.interpreter import minor
    from howdah.packing.python.prebuilt_archives import HEAD, python_minor

    if base is None or job.hadoop.runtime is None:
        return ""
    has, ours = python_minor(head(base, HEAD)), minor()
    if has in ("", ours):
        return ""
    return (
        f"the runtime {job.hadoop.runtime} has Python {has}, and Howdah is packed here for {ours}: each of its "
        "processes compiles it anew as it starts. 'howdah pack --runtime' in this environment makes one that fits"
    )


# Most jobs need only some of these, and each takes longer to import than to do what is done already.


def _source(folder: Path, cache: Path, progress: Progress, ignore: Sequence[str]) -> Archive:
    from howdah.packing.source import source

    return source(folder, cache, progress, ignore=ignore)


def _environment(job: Job, folder: Path, cache: Path, progress: Progress) -> Archive | None:
    from howdah.packing.python.environment import environment

    return environment(job, folder, cache, progress)


def _files(lines: Sequence[str], folder: Path, cache: Path, progress: Progress) -> list[Extra]:
    from howdah.packing.files import files

    return files(lines, folder, cache, progress)


def interpreter(job: Job, environment: Archive | None) -> str:
    """The programs' interpreter in their containers: shipped, in the source, or the nodes'."""
    if environment is not None:
        return f"{HERE}/{names.ENVIRONMENT}/{environment.python or 'bin/python'}"
    python = job.environment.python or "python3"
    if "/" in python and not python.startswith("/"):
        return f"{HERE}/{names.SOURCE}/{posixpath.normpath(python)}"
    return python


def _spread(extra: Extra, inside: Callable[[str], list[str] | None]) -> list[Extra]:
    """A folder on HDFS as its files, each by its own name: YARN brings files to its nodes."""
    from howdah.packing.files import Extra, elsewhere

    url = extra.archive.url
    found = inside(url) if url is not None and not extra.unpack else None
    if found is None:
        return [extra]
    if extra.name != posixpath.basename(str(url).rstrip("/")):
        raise BackendError(
            f"files: {url} is a folder, whose files are put beside the source by their own names; "
            f"leave {extra.name!r} out, or archive it"
        )
    return [
        Extra(posixpath.basename(one), elsewhere(one, extra.archive.kind), False) for one in found
    ]


def _extra(
    shipped: Callable[[str, Archive, ResourceKind], LocalResource], extra: Extra
) -> LocalResource:
    if extra.name in _LINKS:
        raise BackendError(
            f"files: {extra.name!r} is a name that Howdah uses in containers itself; call it "
            "something else: 'place -> name'"
        )
    return shipped(
        extra.name, extra.archive, ResourceKind.ARCHIVE if extra.unpack else ResourceKind.FILE
    )


def conf_archive(configuration: Configuration, cache: Path) -> Archive:
    """The cluster's configuration, for master, agents and programs.

    Files that include others are put into one, for their parts would not be found.

    Raises:
        PackingError: it cannot be written.
        OSError: a file cannot be read.
    """
    folder = configuration.folder
    assert folder is not None
    contents: dict[str, bytes] = {}
    for name in (*CONFIGURATION_FILES, *_FURTHER_FILES):
        if (folder / name).is_file():
            contents[name] = (folder / name).read_bytes()
    if any(_INCLUDE in content for content in contents.values()):
        contents = {"core-site.xml": _as_xml(configuration.as_dict())}

    def make(scratch: Path) -> Archive:
        entries = tuple(TarEntry(name, content=data) for name, data in sorted(contents.items()))
        return tar_of(Packed.FILES, Content(entries=entries), scratch, lambda *_: None)

    inputs = [(name, contents[name].hex()) for name in sorted(contents)]
    return Cache(cache).get(Packed.FILES, ("conf", inputs), make)


def _as_xml(properties: Mapping[str, str]) -> bytes:
    from xml.sax.saxutils import escape

    lines = [
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""]).encode()


def as_json(local_resources: LocalResources) -> bytes:
    """``yarn.json``"""
    return msgspec.json.format(msgspec.json.encode(local_resources), indent=2) + b"\n"
