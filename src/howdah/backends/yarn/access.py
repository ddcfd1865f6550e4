"""A cluster's services for callers without an event loop, and its errors in words.

`howdah.hadoop` is asyncio; a client's threads are not. An `Access` has a loop in a thread of its
own, in which one connection to the ResourceManager serves all callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from howdah.backends.base import BackendError
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import (
    AccessControl,
    AuthenticationError,
    ConfigurationError,
    ConnectFailed,
    HadoopError,
    TransportError,
)
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.credentials import TOKEN_FILE
from howdah.hadoop.security.login import Login, login

if TYPE_CHECKING:
    from howdah.storage.hdfs.files import Hdfs

ANSWER_S = 20.0
"""A client does not wait longer for a cluster's answer. A fail-over of the ResourceManager takes
some seconds."""
POLICY = RetryPolicy(max_wait_s=ANSWER_S, try_timeout_s=ANSWER_S, max_delay_s=1.0)

T = TypeVar("T")


class Access:
    """One user's access to one cluster. To be closed; may be used from any thread."""

    def __init__(self, configuration: Configuration, who: Login) -> None:
        self.configuration = configuration
        self.login = who
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="howdah-hadoop", daemon=True
        )
        self._thread.start()
        self._lock = threading.Lock()
        self._manager: ResourceManager | None = None
        self._hdfs: dict[str, Hdfs] = {}
        self._closed = False

    @classmethod
    def open(cls, folder: str | Path | None = None, env: Mapping[str, str] = os.environ) -> Access:
        """Access to the cluster of that configuration folder, else of the environment's.

        Nothing is connected yet.

        Raises:
            BackendError: there is no usable configuration; says where was looked.
        """
        configuration = load(folder, env)
        return cls(configuration, log_in(configuration, env))

    @property
    def folder(self) -> str:
        """The configuration's folder."""
        return str(self.configuration.folder)

    @property
    def user(self) -> str:
        """Our name on the cluster."""
        return self.login.user

    @property
    def manager(self) -> ResourceManager:
        """The ResourceManager's client; its calls are for `call`."""
        with self._lock:
            if self._manager is None:
                self._manager = ResourceManager(self.configuration, self.login, retry=POLICY)
            return self._manager

    def hdfs(self, url: str) -> Hdfs:
        """The file system of that URL, as this user."""
        from howdah.storage.hdfs.files import Hdfs, split

        fs = split(url)[0] or self.configuration.default_fs
        with self._lock:
            if fs not in self._hdfs:
                # With Kerberos the ticket says who we are, and a name in the environment nothing.
                user = None if self.configuration.security_enabled else self.user
                self._hdfs[fs] = Hdfs(fs, conf_dir=self.folder, user=user, patience_s=ANSWER_S)
            return self._hdfs[fs]

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it on the loop, now."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait for its result.

        Raises:
            BackendError: the cluster cannot be reached or refuses us, in words.
            RemoteError: a service answered with an exception of another kind.
        """
        future = self.start(work)
        try:
            return future.result()
        except (TransportError, AuthenticationError, ConfigurationError, AccessControl) as error:
            raise self.in_words(error) from error
        except BaseException:
            future.cancel()
            raise

    def in_words(self, error: HadoopError) -> BackendError:
        """An error of `howdah.hadoop` for the user."""
        if isinstance(error, ConnectFailed):
            return BackendError(
                f"The cluster cannot be reached: {error}. Is it up, and is {self.folder} its "
                "configuration (HADOOP_CONF_DIR)? 'howdah doctor --backend yarn' looks closer"
            )
        if isinstance(error, AuthenticationError):
            return BackendError(
                f"The cluster does not accept {self.login.principal or self.user}: {error}"
            )
        return BackendError(f"The cluster: {error}")

    def close(self) -> None:
        """End all connections. May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            manager = self._manager

        async def end() -> None:
            if manager is not None:
                await manager.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        with contextlib.suppress(Exception):
            self.start(end()).result(5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.close()


_shared: dict[tuple[str | int, ...], Access] = {}
_sharing = threading.Lock()
_by_keytab: dict[str, str] = {}
"""``keytab`` and ``principal`` of `use_keytab`."""


def use_keytab(keytab: str, principal: str) -> None:
    """Be somebody by a keytab, for the whole process, as the system's Kerberos library has it: for
    hdfs-native too, which takes what the environment says.

    Raises:
        BackendError: the process is somebody else already.
    """
    wanted = {"KRB5_CLIENT_KTNAME": f"FILE:{keytab}", "KRB5CCNAME": f"MEMORY:howdah-{principal}"}
    former = os.environ.get("KRB5CCNAME", "")
    if former.startswith("MEMORY:howdah-") and any(
        os.environ.get(n) != v for n, v in wanted.items()
    ):
        raise BackendError(
            f"This process has submitted by {os.environ.get('KRB5_CLIENT_KTNAME')} already and cannot be"
            f" {principal or keytab} too: submit from another one"
        )
    os.environ.update(wanted)
    _by_keytab.update(keytab=keytab, principal=principal)


def shared(folder: str | Path | None = None, env: Mapping[str, str] = os.environ) -> Access:
    """The process's one access to the cluster of that configuration folder (or the environment's),
    for those who come and go. It is never closed: unused connections end by themselves. Once the
    folder's files say something else, there is a new one.

    Raises:
        BackendError: there is no usable configuration.
    """
    configuration = load(folder, env)
    # A child made by os.fork has none of its parent's threads.
    who = log_in(configuration, env)
    folder = str(Path(str(configuration.folder)).resolve())
    key = (folder, who.user, who.real_user, who.principal, env.get(TOKEN_FILE, ""), os.getpid())
    with _sharing:
        access = _shared.get(key)
        if access is None or not access.configuration.says_the_same(configuration):
            access = _shared[key] = Access(configuration, who)
        return access


def folder_of_site(env: Mapping[str, str] = os.environ) -> str | None:
    """The configuration's folder as the site file has it, if it does: what submits a job goes by that, and so
    does what looks for one.

    Raises:
        BackendError: the site file cannot be read.
    """
    return of_site(env, "hadoop", "conf")


def of_site(env: Mapping[str, str], *path: str) -> str | None:
    """A text of the site file; None where it has none, or names a variable that is not set.

    Raises:
        BackendError: the site file cannot be read.
    """
    from howdah.spec import site
    from howdah.spec.problems import JobFileError, Problems
    from howdah.spec.substitute import in_environment

    file = site.find(env)
    try:
        value: Any = {} if file is None else site.read(file, env).table
    except JobFileError as error:
        raise BackendError(f"The site file cannot be read: {error}") from error
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    unset = Problems()
    value = in_environment({path[-1]: value}, env, unset)[path[-1]]
    return value if isinstance(value, str) and value and not unset else None


def load(folder: str | Path | None = None, env: Mapping[str, str] = os.environ) -> Configuration:
    """The cluster's configuration.

    Raises:
        BackendError: there is none, or it cannot be read.
    """
    try:
        return Configuration.load(folder, env)
    except ConfigurationError as error:
        named = " (that is `conf` under [hadoop])" if folder is not None else ""
        raise BackendError(
            f"The Hadoop cluster's configuration cannot be used{named}: {error}. A job file or the site "
            "file can name it too, as `conf` under [hadoop]"
        ) from error


def log_in(configuration: Configuration, env: Mapping[str, str] = os.environ) -> Login:
    """Who we are on that cluster.

    Raises:
        BackendError: it demands Kerberos, and there is neither a ticket nor a token.
    """
    try:
        return login(configuration, env, **_by_keytab)
    except (HadoopError, OSError) as error:
        raise BackendError(
            f"You are not logged in to the cluster of {configuration.folder}: {error}"
        ) from error
