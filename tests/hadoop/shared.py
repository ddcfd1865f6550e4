"""Clusters that processes use together, and that end with their last user."""

from __future__ import annotations

import warnings
from pathlib import Path

from tests.hadoop import daemons, guard
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


def mend(cluster: Cluster) -> None:
    """Start what has died of a shared cluster: one test's fault is not to fail all that come later.

    Raises ClusterError if it cannot be started.
    """
    site = cluster.site
    if all(cluster.is_running(each.name) for each in site.daemons):
        return
    door = take_current(guard.door(cluster.folder))
    try:
        dead = [each for each in site.daemons if not cluster.is_running(each.name)]
        for daemon in dead:
            story = daemons.last_lines(site, daemon)
            warnings.warn(f"{daemon.name} was dead; its log ends with:\n{story}", stacklevel=2)
            cluster.start(daemon.name)
        if dead:
            cluster.wait_ready()
    finally:
        door.close()
