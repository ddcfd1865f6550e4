"""Files that are in no checkpoint, because of several tasks with one place another's folder is saved.

Where every task writes the whole model, all have files of the same names, and one folder is enough. Where
each writes a shard of its own, the names differ, and what is saved is a part of a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import PurePath

from howdah.storage.checkpoints.versions import CheckpointSpec, Manifest, Versions
from howdah.storage.folders import Signature, Tree
from howdah.storage.stores.checkpoint_stores import CLAIM, open_store

REMEDY = (
    "one task's folder is the job's checkpoint, and several tasks write files of their own. Let them write "
    "to a folder that all tasks see (HOWDAH_SHARED_DIR); or name what is not needed in [checkpoint] ignore"
)

REPLACEABLE = ("rng_state_*.pth", "random_states_*.pkl")
"""A rank's random numbers, as Transformers and Accelerate save them. A rank that does not find its own goes
on with new ones."""

LOOK_S = 10.0
"""Between two looks at the store while the programs run."""
AGE_S = 30.0
"""A file that is so much older than a version it is not in will not be in a later one: more than tasks that
save together are apart."""
LONGEST_S = 60.0
"""At the end the task that is saved is waited for so long."""
_POLL_S = 0.1
_OVER = "-over"


def claim(spec: CheckpointSpec) -> str:
    """The name of the file that says that this task has something to save."""
    return f"{CLAIM}{spec.generation:06}-{spec.rank or 0:06}"


def over(spec: CheckpointSpec) -> str:
    """The name of the file that says that it saves no more."""
    return claim(spec) + _OVER


class UnsavedFiles:
    """Of a task whose folder is not the one that is saved.

    What is old is told by when this process saw it first: a version's own time is another machine's.
    """

    def __init__(
        self, spec: CheckpointSpec, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._store = open_store(spec.place, patience_s)
        self._versions = Versions(self._store)
        self._looked: float | None = None
        self._newest = ""
        """The newest version at the last look."""
        self._newest_since: float | None = None
        """It is no older than that; None where it was there at the first look."""
        self._seen: dict[str, tuple[Signature, float]] = {}
        """The folder's files, and when they were first seen so."""

    def look(self, tree: Tree) -> str:
        """What will be in no version, in words; empty if nothing is known of. Not at each call.

        Raises:
            OSError: the store can't be read.
        """
        now = self._clock()
        if self._looked is not None and now < self._looked + LOOK_S:
            return ""
        before = self._seen
        self._seen = {
            name: known
            if (known := before.get(name)) and known[0] == signature
            else (signature, now)
            for name, signature in tree.items()
        }
        newest = self._versions.newest()
        name = newest[0] if newest is not None else ""
        if name != self._newest:
            self._newest, self._newest_since = name, self._looked
        self._looked, since = now, self._newest_since
        if since is None:
            return ""
        old = {name: tree[name] for name, (_, seen) in self._seen.items() if seen + AGE_S < since}
        return _words(self._missing(old, newest) or ())

    def last(self, tree: Tree, deadline: float) -> str:
        """The same once the programs have ended by themselves: the last version of the task that is saved
        is waited for.

        Raises:
            OSError: the store can't be read.
        """
        deadline = min(deadline, time.monotonic() + LONGEST_S)
        while True:
            is_over = self._is_over()
            missing = self._missing(tree, self._versions.newest())
            nothing = missing is not None and not missing
            if nothing or is_over or time.monotonic() > deadline:
                return _words(missing or ())
            time.sleep(_POLL_S)

    def _is_over(self) -> bool:
        """Whether the task that is saved saves no more."""
        generation = f"{CLAIM}{self._spec.generation:06}-"
        here = sorted(name for name in self._store.claims() if name.startswith(generation))
        first = here[0].removesuffix(_OVER) if here else ""
        return first + _OVER in here

    def _missing(self, tree: Tree, newest: tuple[str, Manifest] | None) -> list[str] | None:
        """Files of this attempt's programs that the newest version lacks; None while there is no version."""
        if newest is None:
            return None
        saved = {file.path for file in newest[1].files}
        return [
            name
            for name, signature in tree.items()
            if name not in saved
            and signature.ctime_ns >= self._spec.began_ns
            and not any(map(PurePath(name).match, REPLACEABLE))
        ]


def _words(missing: Collection[str]) -> str:
    if not missing:
        return ""
    one = len(missing) == 1
    number = "one of its files is" if one else f"{len(missing)} of its files are"
    name = min(missing)
    return f"{number} in no checkpoint, {'' if one else 'such as '}{name}: {REMEDY}"
