"""Clusters that processes use together, and that end with their last user."""

from __future__ import annotations

from pathlib import Path

from tests.hadoop import guard
from tests.hadoop.cluster import Cluster
from tests.hadoop.locks import Lock, take_current
from tests.hadoop.options import Options


class Use:
    """This process's use of the cluster in a folder. The first user starts it, the last stops it."""

    def __init__(self, folder: Path, options: Options) -> None:
        """Raises ClusterError if the cluster cannot be started."""
        self._folder = folder
        self._door = take_current(guard.door(folder))
        self._users = Lock(guard.users(folder))
        try:
            self._users.share()
            self.cluster = self._join(options)
        except BaseException:
            self._users.close()  # and the guard, if there is one, tidies up
            raise
        finally:
            self._door.release()

    def _join(self, options: Options) -> Cluster:
        if (self._folder / "up").exists():
            return Cluster.open(self._folder)
        guard.begin(self._folder)
        cluster = Cluster.create(self._folder, options)
        cluster.up()
        (self._folder / "up").touch()
        return cluster

    def end(self) -> None:
        """Stop using it."""
        self._door.take()
        try:
            if self._users.try_take():
                self.cluster.remove()
                guard.forget(self._folder)
        finally:
            self._users.close()
            self._door.close()
