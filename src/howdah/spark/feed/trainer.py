"""The feed's side in a training process: server, control connection, feeds."""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from howdah import task
from howdah.client.submission.function_script import Pickled, pickled
from howdah.spark.context import Context, Wiring
from howdah.spark.errors import FeedError
from howdah.spark.feed.connections import DataConnection
from howdah.spark.feed.controller_connection import LEASE_S, Control
from howdah.spark.feed.feed import Feed
from howdah.spark.feed.ingest import take
from howdah.spark.feed.messages import (
    Begin,
    Broken,
    Endpoint,
    FeedRefused,
    Returned,
    TrainerHello,
    TrainerLoad,
)
from howdah.spark.feed.server import FeedServer
from howdah.spark.feed.state import FeedState, SharedState
from howdah.storage.folders import has_files
from howdah.wire.tls import PeerRole, client_context

WIRING = "HOWDAH_SPARK_WIRING"
"""Environment variable: path of `Wiring` as JSON."""
SECRETS = "HOWDAH_SPARK_SECRETS"
"""Environment variable: folder with ``ca.pem``, ``agent.pem`` and ``agent.key``."""
FOLDER = "HOWDAH_SPARK_FOLDER"
"""Environment variable: working folder of the executor the process was started from."""
LARGEST_ERROR = 1 << 20
"""Bytes of a pickled exception that are sent to the driver."""
ANSWERS_S = 1.0
"""What was given last to queries that score is given so long to be sent."""


class Trainer:
    """A context manager: leaving it tells the controller `Returned`, or `Broken` with the trace."""

    context: Context

    def __init__(
        self,
        me: task.Context,
        wiring: Wiring | None,
        secrets: Path | None,
        folder: str = "",
        *,
        lease_s: float = LEASE_S,
    ) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, FeedState] = {}
        self._feeds: dict[str, Feed] = {}
        self._server: FeedServer | None = None
        self._control: Control | None = None
        self._all_ended = False
        self._closed = False
        self.context = Context(me, wiring, self.feed)
        if wiring is None or secrets is None or me.rank is None:
            return
        self._checkpoint = me.restored is not None or has_files(me.checkpoint_dir)
        self._control = Control(
            wiring.host,
            wiring.port,
            client_context(secrets, PeerRole.AGENT),
            wiring.job_id,
            hello=self._hello,
            state=self._state,
            states=self._all_states,
            end_all=self._end_all,
            lost=self._lost,
            lease_s=lease_s,
        )
        self._shared = SharedState(self._control.tell, me.rank, _spill_folder(folder))
        self._shared.greet = self._control.greet
        self._server = FeedServer(
            self._take,
            TrainerLoad(rank=me.rank, generation=me.generation),
            name=f"feed-{me.rank}-{me.generation}-{os.getpid()}",
            folder=secrets.parent,
            secrets=secrets,
            job_id=wiring.job_id,
            host="127.0.0.1" if me.host in ("127.0.0.1", "localhost") else "",
            ports=wiring.ports,
        )
        self._endpoint = Endpoint(
            rank=me.rank,
            role=me.role,
            index=me.index,
            generation=me.generation,
            host=socket.gethostname(),
            folder=folder,
            socket=self._server.socket,
            address=me.host,
            port=self._server.port,
        )
        self._control.start()

    def feed(self, name: str = "train", ranks: Sequence[int] | None = None) -> Feed:
        """The feed of that name.

        Args:
            ranks: only these read it. The others are not waited for, and get none of its rows.

        Raises:
            FeedError: there are no feeds here.
        """
        if self._control is None:
            raise FeedError(
                "This process is not fed: feeds are for the ranks of a cluster started by "
                'howdah.spark.Cluster.start with mode="feed". In mode="foreground", and in roles '
                "such as ps, the program reads its data itself"
            )
        state = self._state(name)
        if ranks is not None:
            state.readers = sorted(set(ranks))
        with self._lock:
            return self._feeds.setdefault(name, Feed(state))

    def close(self, last_message: Returned | Broken | None = None) -> None:
        """End server and connections. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._server is None or self._control is None:
            return
        reason = (
            f"The training function has raised: {last_message.error}"
            if isinstance(last_message, Broken)
            else ""
        )
        with self._shared.changed:
            self._shared.gone = FeedRefused(reason=reason, again=True)
            streams = [stream for state in self._all_states() for stream in state.streams]
            self._end_all()
            for state in self._all_states():
                state.leave(whole=not reason)
            for stream in streams:
                if reason:
                    stream.refuse(reason, again=True)
                elif not stream.ended and not stream.discard:
                    stream.stop()
            self._shared.changed.notify_all()
        if isinstance(last_message, Returned):
            last_message = Returned(
                offsets=[reply for state in self._all_states() for reply in state.offsets()]
            )
        self._control.close(last_message)
        deadline = time.monotonic() + ANSWERS_S
        for stream in streams:
            stream.end(max(0.0, deadline - time.monotonic()))
        self._server.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.close(Returned())
            return
        text = "".join(traceback.format_exception(error))
        last = traceback.format_exception_only(error)[-1].strip()
        self.close(Broken(error=last, trace=text[-100_000:], sent=_sent(error)))

    # -- called by threads -----------------------------------------------------------------------

    def _state(self, name: str) -> FeedState:
        with self._lock:
            state = self._states.get(name)
            if state is None:
                state = self._states[name] = FeedState(name, self._shared)
                state.ended = self._all_ended
            return state

    def _all_states(self) -> list[FeedState]:
        with self._lock:
            return list(self._states.values())

    def _take(self, begin: Begin, connection: DataConnection) -> None:
        take(begin, connection, self._state(begin.feed))

    def _hello(self, connection: int) -> TrainerHello:
        states = self._all_states()
        return TrainerHello(
            endpoint=self._endpoint,
            connection=connection,
            positions={
                state.name: state.restored for state in states if state.restored is not None
            },
            checkpoint=self._checkpoint,
            asks=[state.name for state in states if state.asks],
            readers={state.name: state.readers for state in states if state.readers},
        )

    def _end_all(self) -> None:
        """No rows of any feed come any more, also of those nobody has asked for yet."""
        self._all_ended = True

    def _lost(self, reason: str) -> None:
        with self._shared.changed:
            if self._shared.lost == reason:
                return
            self._shared.lost = reason
            for state in self._all_states():
                state.urgent = True
            self._shared.changed.notify_all()


def connect(env: Mapping[str, str] | None = None) -> Trainer:
    """Start the server of this rank's feeds, in threads of its own.

    Reads ``HOWDAH_SPARK_WIRING`` (path of ``wiring.json``), ``HOWDAH_SPARK_SECRETS`` and
    ``HOWDAH_SPARK_FOLDER`` from ``env`` (default `os.environ`), and `howdah.task.context`. Without
    wiring (foreground mode), or in a role without ranks, there is a context but no feed.

    Raises:
        FeedError: the wiring or the certificates cannot be read.
    """
    env = os.environ if env is None else env
    path, secrets = env.get(WIRING), env.get(SECRETS)
    me = task.context()
    if not path:
        return Trainer(me, None, None)
    try:
        wiring = msgspec.json.decode(Path(path).read_bytes(), type=Wiring)
        return Trainer(me, wiring, Path(secrets) if secrets else None, env.get(FOLDER, ""))
    except (OSError, msgspec.DecodeError) as error:
        raise FeedError(
            f"The feeds of this process could not be set up from {path} and {secrets}: {error}"
        ) from error


def run(
    train: Callable[[Any, Context], Any], args: Any = None, env: Mapping[str, str] | None = None
) -> Any:
    """In a training process: connect, call ``train(args, ctx)``, tell the controller of its end.

    Returns:
        What unpickles to its value: whether that can be pickled is known before the end is told.

    Raises:
        BaseException: what ``train`` raised, after the controller was told.
    """
    with connect(env) as trainer:
        return Pickled(train(args, trainer.context))


def _sent(error: BaseException) -> bytes:
    """The exception for `Broken`, if it can be pickled and is of a reasonable size."""
    try:
        content = pickled(error)
    except Exception:
        return b""
    return content if len(content) <= LARGEST_ERROR else b""


def _spill_folder(folder: str) -> Path | None:
    """Where rows go that do not fit into memory: the executor's disk, else the temporary folder."""
    path = Path(folder) if folder else None
    return path if path is not None and os.access(path, os.W_OK) else None
