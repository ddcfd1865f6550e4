"""``howdah pack``: what a job ships to a cluster, and why it is that big."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from howdah.cli.arguments import DEFAULT_FILE, json_option, set_option

if TYPE_CHECKING:
    from howdah.cli.display.formatting import Paint
    from howdah.packing.archives import Archive
    from howdah.packing.job_archives import JobArchives
    from howdah.packing.store import ArchiveStore
    from howdah.spec.load import LoadedJob

_ROWS = 8


@click.command("pack")
@click.argument("job", required=False, type=click.Path(path_type=Path))
@set_option("Override a value of the job file; repeatable.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the archive of the environment here; the archive of the source if there is no "
    "environment; with --runtime, that of the runtime.",
)
@click.option(
    "--runtime",
    "runtime_only",
    is_flag=True,
    help="Pack Howdah's own runtime instead of a job, with a Python that runs on any node.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Build the environment again, with the newest versions, and fetch again what lies at URLs.",
)
@click.option(
    "--clean",
    is_flag=True,
    help="Pack nothing, but remove what has not been used for 90 days, here and on the cluster.",
)
@json_option
def command(
    job: Path | None,
    overrides: tuple[str, ...],
    output: Path | None,
    runtime_only: bool,
    fresh: bool,
    clean: bool,
    as_json: bool,
) -> int:
    """Pack what a job ships to a cluster, and explain it.

    JOB is job.toml by default; without a job file, there is only Howdah's own runtime. Shows each
    archive with its size, its biggest parts, its digest, and where it will be on the cluster of
    HADOOP_CONF_DIR, or that it is already there. Uploads nothing. Archives are kept in
    ~/.cache/howdah for the submission.

    Howdah's runtime contains a portable Python if uv has one. Otherwise it contains the Python in
    which Howdah runs, which needs nodes as new as this machine. With --runtime, uv fetches a
    portable one if needed. If you put the archive (-o) on HDFS and name it as [hadoop] runtime, all
    users of a cluster can share it.

    With --json: {"archives": [{"kind", "digest", "path", "size", "files", "unpacked_size",
    "python", "rows": [{"name", "size", "files"}, …], "notes", "url", "there"}, …], "seconds"}; with
    --clean {"removed": [{"url", "size"}, …]}.
    """
    from howdah.client.errors import ExitCode
    from howdah.client.submission.loading import load_file

    if runtime_only and (job is not None or clean):
        what = "--clean" if clean else "a job file"
        raise click.UsageError(f"--runtime packs Howdah's own runtime: leave out {what}")
    if job is None and not runtime_only and Path(DEFAULT_FILE).is_file():
        job = Path(DEFAULT_FILE)
    loaded = load_file(job, overrides) if job is not None else None
    if clean:
        _clean(loaded, as_json)
        return ExitCode.SUCCEEDED
    began = time.perf_counter()
    packs = _pack(loaded, fresh, quiet=as_json, portable=runtime_only)
    took_s = time.perf_counter() - began
    if output is not None:
        _keep(packs, output, runtime_only)
    store = _store(loaded)
    if as_json:
        _print_json(packs, store, took_s)
    else:
        for line in _explained(packs, store):
            click.echo(line)
    return ExitCode.SUCCEEDED


def _pack(loaded: LoadedJob | None, fresh: bool, *, quiet: bool, portable: bool) -> JobArchives:
    from howdah.packing.archives import cache_folder
    from howdah.packing.job_archives import JobArchives, pack
    from howdah.packing.python import interpreter, uv
    from howdah.packing.python.runtime import runtime

    cache = cache_folder()
    show = _Progress(enabled=not quiet and sys.stderr.isatty())
    try:
        if portable and interpreter.portable() is None:
            uv.install_portable(show)
        if loaded is None:
            return JobArchives(
                runtime=runtime(cache, show), environment=None, source=None, files={}
            )
        folder = loaded.folder
        return pack(loaded.job, folder, loaded.source, cache, show, fresh=fresh)
    finally:
        show.done()


class _Progress:
    """One line on a terminal, rewritten a few times a second."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._shown = 0.0
        self._what = ""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._enabled or (what == self._what and now - self._shown < 0.1):
            return
        self._shown, self._what = now, what
        share = f" {100 * done // total}%" if total else ""
        click.echo(f"\r\033[K{what}{share}", nl=False, err=True)

    def done(self) -> None:
        if self._enabled and self._what:
            click.echo("\r\033[K", nl=False, err=True)


def _store(loaded: LoadedJob | None) -> ArchiveStore | None:
    """The cluster's, where one is configured; what is wrong with it is told."""
    from howdah.backends.base import BackendError
    from howdah.backends.yarn import access
    from howdah.backends.yarn.client import staging
    from howdah.packing.store import ArchiveStore

    job = loaded.job if loaded else None
    try:
        cluster = access.shared(job.hadoop.conf if job else access.folder_of_site())
        base = staging.base_url(job.store if job else None, cluster.configuration, cluster.user)
        base = staging.cache_home(f"{base}/job", cluster.configuration, cluster.user)
    except BackendError as error:
        click.echo(f"There is no cluster to compare with. {error}", err=True)
        return None
    return ArchiveStore(
        cluster.hdfs,
        base,
        lambda url: staging.whole(url, cluster.configuration),
        user=cluster.user,
    )


def _places(
    packs: JobArchives, store: ArchiveStore | None
) -> Iterator[tuple[Archive, str, bool | None]]:
    """Each archive, where it is or will be, and whether it is there (None: not known)."""
    from howdah.packing.archives import PackingError

    problem = ""
    for archive in packs.archives():
        there: bool | None = None
        if store is not None and not problem:
            try:
                there = store.find(archive) is not None
            except (OSError, PackingError) as error:
                problem = str(error)
                click.echo(f"What is on the cluster cannot be seen: {problem}", err=True)
        url = archive.url or (store.url(archive) if store is not None else "")
        yield archive, url, there


def _explained(packs: JobArchives, store: ArchiveStore | None) -> Iterator[str]:
    from howdah.cli.display.formatting import Paint, wants_colour
    from howdah.packing.archives import quantity

    paint = Paint(wants_colour(sys.stdout))
    new = total = 0
    for archive, url, there in _places(packs, store):
        yield from _one(archive, paint)
        if archive.url is None:
            total += archive.size
            new += 0 if there else archive.size
            yield f"  here: {archive.path}"
        if url:
            told = {True: "there already", False: "will be uploaded", None: ""}[there]
            yield f"  cluster: {url}{f', {told}' if told else ''}"
        yield ""
    if packs.environment is None:
        yield "No environment is shipped: the programs use a Python of the nodes."
    if store is None:
        yield f"{quantity(total)} in all."
    else:
        yield f"{quantity(total)} in all, {quantity(new)} to upload."


def _one(archive: Archive, paint: Paint) -> Iterator[str]:
    from howdah.packing.archives import quantity

    title = paint(archive.kind.value, bold=True)
    if archive.url is not None:
        yield f"{title}: {archive.url}, as it is"
        return
    yield (
        f"{title}: {quantity(archive.size)}, unpacked {quantity(archive.unpacked_size)} in "
        f"{archive.files} files, sha256 {archive.digest[:12]}"
    )
    width = max([len(row.name) for row in archive.rows[:_ROWS]], default=0)
    for row in archive.rows[:_ROWS]:
        many = f"{row.files} files" if row.files > 1 else ""
        yield f"    {row.name.ljust(width)}  {quantity(row.size):>9}  {many}".rstrip()
    if (rest := len(archive.rows) - _ROWS) > 0:
        size = sum(row.size for row in archive.rows[_ROWS:])
        yield f"    {f'{rest} more'.ljust(width)}  {quantity(size):>9}"
    for note in archive.notes:
        yield f"  {note}"


def _keep(packs: JobArchives, output: Path, runtime_only: bool) -> None:
    archive = packs.runtime[0] if runtime_only else packs.environment or packs.source
    if archive is None or archive.path is None:
        raise click.UsageError("there is nothing to keep: the job ships no environment or source")
    shutil.copyfile(archive.path, output)


def _print_json(packs: JobArchives, store: ArchiveStore | None, took_s: float) -> None:
    import msgspec

    def document(archive: Archive, url: str, there: bool | None) -> dict[str, Any]:
        fields = msgspec.structs.asdict(archive)
        return {**fields, "url": url or None, "there": there}

    archives = [document(*place) for place in _places(packs, store)]
    text = msgspec.json.encode({"archives": archives, "seconds": round(took_s, 3)}, enc_hook=str)
    click.echo(text)


def _clean(loaded: LoadedJob | None, as_json: bool) -> None:
    from howdah.packing.archives import cache_folder, quantity
    from howdah.packing.cache import Cache
    from howdah.packing.store import UNUSED_S

    removed = [
        {"url": str(path), "size": size}
        for path, size in Cache(cache_folder()).sweep(unused_s=UNUSED_S)
    ]
    store = _store(loaded)
    if store is not None:
        try:
            removed += [
                {"url": store.hdfs.url(gone.path), "size": gone.size} for gone in store.prune()
            ]
        except OSError as error:
            raise click.ClickException(f"the cluster could not be cleaned: {error}") from error
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"removed": removed}))
        return
    for each in removed:
        click.echo(f"removed {each['url']} ({quantity(int(str(each['size'])))})")
    if not removed:
        click.echo("there is nothing that has not been used for 90 days")
