"""A sound state of a task's folder that the store does not take, kept on the local disk.

While a store is away the program goes on and writes over what was complete; when it is then killed
in the midst of writing, this copy is the newest sound state there is. It is saved in place of the
torn folder, or before the next attempt in the same container restores (`take_over`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from howdah.storage.checkpoints.upload import CheckpointUploader
from howdah.storage.checkpoints.versions import CheckpointProblem, CheckpointSpec, Saved
from howdah.storage.errors import Outdated, is_transient, lacks_room, not_written
from howdah.storage.folders import FolderChanged, Tree, copy_proven, set_aside

_FILES, _SPEC = "files", "spec.json"


def keep(spec: CheckpointSpec, tree: Tree) -> CheckpointSpec | None:
    """Copy the folder, in which ``tree`` was seen, in place of an earlier copy; what saves it, as `kept`.

    None without a place for it, without room, or if the folder changes meanwhile.
    """
    if not spec.spare:
        return None
    spare, folder = Path(spec.spare), Path(spec.folder)
    fresh = spare.with_name(f"{spare.name}.tmp")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        (fresh / _FILES).mkdir(mode=0o700, parents=True)
        for path, signature in tree.items():
            target = fresh / _FILES / path
            if signature.link:
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                target.symlink_to(signature.link)
            else:
                copy_proven(folder / path, target)
                shutil.copymode(folder / path, target)
                os.utime(target, ns=(signature.mtime_ns, signature.mtime_ns))
        if spec.look() != tree:
            raise FolderChanged(str(folder))
        own = msgspec.structs.replace(spec, folder=str(spare / _FILES), version=None, given="")
        (fresh / _SPEC).write_bytes(msgspec.json.encode(own))
        forget(spec)
        fresh.rename(spare)
    except (OSError, FolderChanged):
        shutil.rmtree(fresh, ignore_errors=True)
        return None
    return own


def kept(spec: CheckpointSpec) -> CheckpointSpec | None:
    """What saves the copy, as the attempt it is of; None if there is none of this folder."""
    try:
        data = Path(spec.spare, _SPEC).read_bytes() if spec.spare else b""
        own = msgspec.json.decode(data, type=CheckpointSpec)
    except (OSError, msgspec.DecodeError):
        return None
    return own if (own.place, own.job_id) == (spec.place, spec.job_id) else None


def forget(spec: CheckpointSpec) -> None:
    """There is something newer in the store."""
    if spec.spare:
        shutil.rmtree(spec.spare, ignore_errors=True)


def rescue(spec: CheckpointSpec) -> str:
    """Put the folder's files where they outlive the container; returns where they are, empty if nowhere."""
    files = {name: name for name in spec.look()}
    place = set_aside(Path(spec.folder), files, Path(spec.unsaved)) if spec.unsaved else None
    return str(place or "")


def take_over(spec: CheckpointSpec) -> Saved | CheckpointProblem | None:
    """Save what an earlier attempt in this container kept, unless a later one has saved since.

    Where the store has no room or refuses it for good, the job does not wait for that.

    Raises:
        Exception: the store is away; the copy stays for the next try.
    """
    own = kept(spec)
    saved = None
    if own is not None:
        try:
            saved = CheckpointUploader(own).publish()
        except Outdated:
            pass
        except Exception as error:
            if is_transient(error) and not lacks_room(error):
                raise
            text = f"{not_written(spec.place, error)}; a newer state is in "
            return CheckpointProblem(problem=text + (rescue(own) or own.folder), unsaved=True)
    forget(spec)
    return saved
