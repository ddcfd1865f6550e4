"""A feeder's two kinds of connection: to a trainer, and to the controller. Blocking code, in Spark's
Python workers.

The connection to a trainer is read whenever it is written to, and while it is waited for: a trainer
that wants no more says so while the feeder is held back by it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from howdah.spark.feed.messages import (
    AssignmentResponse,
    Endpoint,
    FeedRefused,
    FromTrainer,
    RowsScored,
    Stop,
    Taken,
    TrainerLoad,
)
from howdah.wire.bulk_tls import BulkTls
from howdah.wire.decoders import message_decoder
from howdah.wire.frames import FrameDecoder, encode
from howdah.wire.sockets import NoAnswer, dial_bulk_tls, dial_tls
from howdah.wire.tls import PeerRole, certificate_name, client_context_from

T = TypeVar("T")

_HEADER = struct.Struct(">I")
_PIECE = 1 << 20
CONNECT_S = 10.0
LOST_S = 60.0
"""A controller that does not answer for so long is gone."""


class EnoughRows(Exception):
    """No more rows of the epoch are wanted: by this trainer, or by none of them.

    Args:
        rows: of the segment that the trainer has taken.
    """

    def __init__(self, rows: int = 0) -> None:
        super().__init__(rows)
        self.rows = rows


class NotTaken(Exception):
    """The trainer does not take the partition; ``again`` as in `Refused`."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


class FeederAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What lets a feeder in: where the controller is, and the feeders' certificate (PEM)."""

    job_id: str
    host: str
    port: int
    ca: str
    certificate: str
    key: str


class TrainerConnection:
    """A connection to a trainer. Usable as a file that pyarrow writes to."""

    closed: bool = False

    def __init__(self, endpoint: Endpoint, access: FeederAccess, host: str) -> None:
        """Connect; raises OSError if it cannot be reached."""
        self.rank: int = endpoint.rank
        self.answers: deque[bytes] = deque()
        """Encapsulated Arrow streams, one for each `RowsScored`."""
        self.taken: int | None = None
        self.load: TrainerLoad | None = None
        self._buffer = bytearray()
        self._raw = 0  # bytes of an answer that follow
        self._decoder = message_decoder(FromTrainer)
        self._socket = _dial(endpoint, access, host)
        self._socket.setblocking(False)
        self._poll = select.poll()

    # -- as pyarrow's file -----------------------------------------------------------------------

    def write(self, data: Any) -> int:
        """All of it, however long the trainer holds us back.

        Raises:
            EnoughRows, NotTaken, ConnectionError: as `look`.
        """
        view = memoryview(data).cast("B")
        size = len(view)
        done = 0
        while done < size:
            try:
                done += self._socket.send(view[done : done + _PIECE])
            except BlockingIOError:
                self._wait(select.POLLIN | select.POLLOUT, None)
            except OSError as error:
                with contextlib.suppress(ConnectionError):
                    self.look()  # it may have said why before it went
                raise self._lost(error) from error
        return size

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    # -- otherwise -------------------------------------------------------------------------------

    def stream(self, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        """What writes rows of these columns to it."""
        return pa.ipc.new_stream(pa.PythonFile(self, "w"), schema)

    def send(self, message: msgspec.Struct) -> None:
        """One frame."""
        self.write(encode(message))

    def look(self) -> None:
        """Take in what has come, without waiting.

        Raises:
            EnoughRows: no more rows are wanted.
            NotTaken: the partition is refused.
            ConnectionError: the trainer is gone.
        """
        while True:
            try:
                data = self._socket.recv(_PIECE)
            except BlockingIOError:
                return
            except OSError as error:
                raise self._lost(error) from error
            if not data:
                raise ConnectionError(f"rank {self.rank} has closed the connection")
            self._buffer += data
            self._parse()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for anything to come and take it in; False if nothing did in time."""
        return self._wait(select.POLLIN, timeout_s)

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self._socket.close()

    def _wait(self, events: int, timeout_s: float | None) -> bool:
        self._poll.register(self._socket, events)
        ready = self._poll.poll(None if timeout_s is None else timeout_s * 1000)
        if any(found & ~select.POLLOUT for _, found in ready):
            self.look()
        return bool(ready)

    def _lost(self, error: OSError) -> ConnectionError:
        """One kind of error however the connection broke: a host that vanished is a time-out."""
        return ConnectionError(f"the connection to rank {self.rank} broke: {error}")

    def _parse(self) -> None:
        while True:
            if self._raw:
                if len(self._buffer) < self._raw:
                    return
                self.answers.append(bytes(memoryview(self._buffer)[: self._raw]))
                del self._buffer[: self._raw]
                self._raw = 0
            if len(self._buffer) < _HEADER.size:
                return
            (length,) = _HEADER.unpack_from(self._buffer)
            if len(self._buffer) < _HEADER.size + length:
                return
            message = self._decoder.decode(self._buffer[_HEADER.size : _HEADER.size + length])
            del self._buffer[: _HEADER.size + length]
            self._handle(message)

    def _handle(self, message: FromTrainer) -> None:
        match message:
            case TrainerLoad():
                self.load = message
            case Stop():
                raise EnoughRows(message.rows)
            case FeedRefused():
                raise NotTaken(message.reason, message.again)
            case Taken():
                self.taken = message.rows
            case RowsScored():
                self._raw = message.size


class ControllerConnection:
    """A connection to the controller, kept for the life of the Python worker: tasks come and go."""

    _known: dict[tuple[str, int, str], ControllerConnection] = {}

    def __init__(self, access: FeederAccess) -> None:
        self._access = access
        self._socket: ssl.SSLSocket | None = None
        self._decoder: FrameDecoder[Any] = FrameDecoder(AssignmentResponse)

    @classmethod
    def of(cls, access: FeederAccess) -> ControllerConnection:
        """The one of this process."""
        key = (access.host, access.port, access.job_id)
        if key not in cls._known:
            for other in cls._known.values():
                other.close()
            cls._known.clear()
            cls._known[key] = cls(access)
        return cls._known[key]

    def ask(self, message: msgspec.Struct) -> AssignmentResponse:
        """Send it and wait for the answer.

        Raises:
            OSError: the controller is not there.
        """

        def ask() -> AssignmentResponse:
            self._send(message)
            return self._answer()

        return self._retried(ask)

    def tell(self, message: msgspec.Struct) -> None:
        """Send it.

        Raises:
            OSError: the controller is not there.
        """
        self._retried(lambda: self._send(message))

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None
        self._decoder = FrameDecoder(AssignmentResponse)

    def _retried(self, talk: Callable[[], T]) -> T:
        """Over a new connection if need be: this one may have been idle for hours."""
        try:
            return talk()
        except OSError:
            self.close()
            return talk()

    def _send(self, message: msgspec.Struct) -> None:
        if self._socket is None:
            self._socket = self._dial()
        self._socket.sendall(encode(message))

    def _answer(self) -> AssignmentResponse:
        assert self._socket is not None
        while True:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the driver program has closed the connection")
            if found := self._decoder.feed(data):
                return found[0]

    def _dial(self) -> ssl.SSLSocket:
        access = self._access
        name = certificate_name(PeerRole.COORDINATOR, access.job_id)
        secured = dial_tls((access.host, access.port), tls(access), name, CONNECT_S)
        secured.settimeout(LOST_S)
        return secured


def _dial(endpoint: Endpoint, access: FeederAccess, host: str) -> socket.socket | BulkTls:
    if endpoint.host == host and endpoint.socket and Path(endpoint.socket).exists():
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            local.settimeout(CONNECT_S)
            local.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            local.connect(endpoint.socket)
        except OSError:
            local.close()
            raise
        return local
    address = (endpoint.address or endpoint.host, endpoint.port)
    name = certificate_name(PeerRole.AGENT, access.job_id)
    return dial_bulk_tls(address, tls(access), name, CONNECT_S)


_contexts: dict[str, ssl.SSLContext] = {}


def tls(access: FeederAccess) -> ssl.SSLContext:
    """The job's TLS context as a client, made once per process."""
    if access.job_id not in _contexts:
        with ExitStack() as stack:
            texts = (access.ca, access.certificate, access.key)
            files = [stack.enter_context(_file_of(text)) for text in texts]
            _contexts.clear()
            _contexts[access.job_id] = client_context_from(*files)
    return _contexts[access.job_id]


@contextmanager
def _file_of(text: str) -> Iterator[Path]:
    """A file with that text, for the ssl module, which takes certificates from files only.

    In memory where the system has that (memfd_create(2)): Spark kills its Python workers, and a key
    must not stay on a disk for it.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="howdah-", suffix=".pem"
        ) as file:
            file.write(text)
            file.flush()
            yield Path(file.name)
        return
    with os.fdopen(os.memfd_create("howdah"), "w") as file:
        file.write(text)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")


def first_word(trainer: TrainerConnection) -> TrainerLoad:
    """Wait for what a trainer says first.

    Raises:
        NoAnswer: it says nothing.
        OSError: it is gone.
    """
    end = time.monotonic() + CONNECT_S
    while trainer.load is None:
        if not trainer.wait(max(0.0, end - time.monotonic())):
            raise NoAnswer(f"no answer in {CONNECT_S:g} s after it was connected to")
    return trainer.load
