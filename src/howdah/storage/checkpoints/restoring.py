"""Bring a saved version back into a task's folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from howdah.storage.checkpoints.versions import (
    CheckpointSpec,
    Damaged,
    Manifest,
    Restored,
    Skipped,
    Versions,
    damage,
)
from howdah.storage.folders import sha256
from howdah.storage.stores.checkpoint_stores import Store, is_version, open_store, version_number


class NoVersion(LookupError):
    """The checkpoint that was named is gone or damaged, and there is no other."""

    transient = False


def restore(spec: CheckpointSpec) -> Restored:
    """Bring ``spec.version``, or the newest sound version, into the folder, and nothing else.

    Every file is compared with its checksum; a damaged version is skipped and named. The folder is
    replaced whole, but for what ``spec.given`` names; without any version it is empty afterwards.

    Raises:
        NoVersion: there is none at all although ``spec.version`` names one: beginning from nothing
            would throw away what the job has saved.
        OSError: the store can't be read, or the folder not be written.
    """
    store = open_store(spec.place)
    folder = Path(spec.folder)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    versions = Versions(store)
    skipped: list[Skipped] = []
    for version in candidates(versions.look(), spec.version):
        fresh = _beside(folder)
        try:
            manifest = versions.manifest(version)
            _bring(store, version, manifest, fresh)
        except Damaged as error:
            shutil.rmtree(fresh, ignore_errors=True)
            skipped.append(Skipped(version=version, reason=str(error)))
            continue
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        _replace(spec, fresh)
        return Restored(
            version=version,
            files=len(manifest.files),
            bytes=manifest.size,
            checksum=manifest.checksum,
            origin=manifest.origin,
            skipped=tuple(skipped),
        )
    if spec.version is not None:
        raise NoVersion(
            f"checkpoint {spec.version}, which the job has saved, is not in {spec.place}"
            f" ({damage(skipped) or 'nor is any other'}). Bring it back, or begin anew with a new job"
        )
    fresh = _beside(folder)
    fresh.mkdir(mode=0o700)
    _replace(spec, fresh)
    return Restored(version=None, skipped=tuple(skipped))


def candidates(versions: list[str], wanted: str | None) -> list[str]:
    """The versions (oldest first) in the order they are tried.

    The wanted one, then older ones, newest first; then those that came after it, for the wanted
    one may have been removed in their favour.
    """
    newest_first = versions[::-1]
    if wanted is None or not is_version(wanted):
        return newest_first
    number = version_number(wanted)
    older = [v for v in newest_first if v == wanted or version_number(v) < number]
    return older + [v for v in newest_first if v not in older]


def _bring(store: Store, version: str, manifest: Manifest, fresh: Path) -> None:
    fresh.mkdir(mode=0o700)
    for name in manifest.folders:
        (fresh / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    # Links come last: no file is ever written below one.
    for file in sorted(manifest.files, key=lambda file: bool(file.link)):
        target = fresh / file.path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.link:
            target.symlink_to(file.link)
            continue
        try:
            store.fetch(version, file.name, target)
        except FileNotFoundError as error:
            # Any other error is the store's, not the version's: it must not cost the checkpoint.
            raise Damaged(f"{file.path} is missing") from error
        if target.stat().st_size != file.size or sha256(target) != file.sha256:
            raise Damaged(f"{file.path} does not fit its checksum")
        os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
        if file.mode:
            target.chmod(file.mode)


def _beside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-{secrets.token_hex(4)}.tmp")


def _replace(spec: CheckpointSpec, fresh: Path) -> None:
    folder = Path(spec.folder)
    if spec.given:
        _replace_news(spec, folder, fresh)
        return
    old = _beside(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(old)
    fresh.rename(folder)
    if old.is_symlink() or old.is_file():
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


def _replace_news(spec: CheckpointSpec, folder: Path, fresh: Path) -> None:
    """The same among files that stay."""
    for name in spec.look():
        (folder / name).unlink()
    for place, _, names in os.walk(fresh):
        target = folder / Path(place).relative_to(fresh)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in names:
            (Path(place) / name).replace(target / name)
    shutil.rmtree(fresh)
