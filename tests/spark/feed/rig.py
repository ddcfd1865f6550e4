"""A trainer in this process, with a controller and feeders that do as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from howdah import task
from howdah.spark.context import Wiring
from howdah.spark.feed.messages import (
    Begin,
    Broken,
    Close,
    Credit,
    Endpoint,
    EpochFed,
    FromControl,
    FromTrainer,
    Heard,
    Open,
    Options,
    Purpose,
    Returned,
    RowsScored,
    Stop,
    TrainerHello,
    TrainerLoad,
)
from howdah.spark.feed.tasks.feeder_client import FeederAccess
from howdah.spark.feed.trainer import Trainer
from howdah.wire.channel import Channel, serve
from howdah.wire.frames import encode
from howdah.wire.tls import PeerRole, certificate_name, client_context, server_context

JOB = "feeding-1"
DEADLINE_S = 50.0


def access(secrets: Path, port: int) -> FeederAccess:
    """What feeders of this job are let in with."""
    ca, certificate, key = (
        (secrets / name).read_text() for name in ("ca.pem", "feeder.pem", "feeder.key")
    )
    return FeederAccess(
        job_id=JOB, host="127.0.0.1", port=port, ca=ca, certificate=certificate, key=key
    )


class FeedController:
    """Takes down what trainers say, and says what it is told to say."""

    def __init__(self, secrets: Path) -> None:
        self.said: list[Any] = []
        self.changed = threading.Condition()
        self.channels: list[Channel[Any]] = []
        self._loop = asyncio.new_event_loop()
        self._secrets = secrets
        self.port = 0
        self.cuts = 0
        """So many last words are lost with their connection."""
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.listen()

    def listen(self, port: int = 0) -> None:
        self._server = self._do(
            serve(
                self._talk,
                "127.0.0.1",
                port,
                server_context(self._secrets),
                receives={PeerRole.AGENT: FromControl},
            )
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def vanish(self) -> None:
        """Stop listening and end all connections."""

        async def end() -> None:
            self._server.close()
            for channel in self.channels:
                channel.abort()
            self.channels.clear()

        self._do(end())

    async def _talk(self, channel: Channel[Any]) -> None:
        self.channels.append(channel)

        def handle(message: Any) -> None:
            if isinstance(message, Returned | Broken):
                if self.cuts:
                    self.cuts -= 1
                    channel.abort()
                    return
                channel.send(Heard())
            with self.changed:
                self.said.append(message)
                self.changed.notify_all()

        await channel.dispatch(handle)

    def say(self, message: msgspec.Struct) -> None:
        self.wait(TrainerHello)

        def send() -> None:
            for channel in self.channels:
                channel.send(message)

        self._loop.call_soon_threadsafe(send)

    def wait(self, kind: type, when: Callable[[Any], bool] = lambda message: True) -> Any:
        """The first message of that kind for which ``when`` is true."""
        found: list[Any] = []

        def look() -> bool:
            found[:] = [each for each in self.said if isinstance(each, kind) and when(each)]
            return bool(found)

        with self.changed:
            assert self.changed.wait_for(look, DEADLINE_S), f"no such {kind}: {self.said}"
        return found[0]

    def heard(self, kind: type) -> list[Any]:
        with self.changed:
            return [each for each in self.said if isinstance(each, kind)]

    def close(self) -> None:
        self.vanish()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)


class Feeder:
    """One data connection."""

    def __init__(
        self, endpoint: Endpoint, secrets: Path | None = None, role: PeerRole = PeerRole.FEEDER
    ) -> None:
        """Over mutual TLS if ``secrets`` are given."""
        if secrets is None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(endpoint.socket)
        else:
            plain = socket.create_connection(("127.0.0.1", endpoint.port))
            context = client_context(secrets, role)
            self.socket = context.wrap_socket(
                plain, server_hostname=certificate_name(PeerRole.AGENT, JOB)
            )
        self.socket.settimeout(DEADLINE_S)
        self.load = self.hear()
        assert isinstance(self.load, TrainerLoad)

    def begin(self, feed: str = "train", run: int = 1, **fields: Any) -> Feeder:
        fields = {"partition": 0, **fields}
        self.socket.sendall(encode(Begin(feed=feed, run=run, **fields)))
        self._file = self.socket.makefile("wb")
        return self

    def send(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Feeder:
        """A whole segment."""
        with pa.ipc.new_stream(self._file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self._file.flush()
        return self

    def open(self, schema: pa.Schema) -> Any:
        """A writer, to send batch by batch."""
        return pa.ipc.new_stream(self._file, schema)

    def flush(self) -> None:
        self._file.flush()

    def hear(self) -> Any:
        header = self._exactly(4)
        return msgspec.msgpack.decode(
            self._exactly(struct.unpack(">I", header)[0]), type=FromTrainer
        )

    def answer(self) -> pa.Table:
        scored = self.hear()
        assert isinstance(scored, RowsScored), scored
        return pa.ipc.open_stream(self._exactly(scored.size)).read_all()

    def gone(self) -> bool:
        """Whether the trainer has closed the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that sends
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, f"the trainer closed the connection after {data!r}"
            data += piece
        return data


class Rig:
    """A controller, and trainers as they are asked for."""

    def __init__(self, secrets: Path, folder: Path) -> None:
        self.secrets = secrets
        self.folder = folder
        self.controller = FeedController(secrets)
        self.trainers: list[Trainer] = []
        self._purposes: dict[int, Purpose] = {}

    def trainer(self, rank: int = 0, lease_s: float = 10.0, **fields: Any) -> Trainer:
        me = task.context()._replace(rank=rank, index=rank, host="127.0.0.1", **fields)
        wiring = Wiring(job_id=JOB, host="127.0.0.1", port=self.controller.port)
        trainer = Trainer(me, wiring, self.secrets, str(self.folder), lease_s=lease_s)
        self.trainers.append(trainer)
        return trainer

    def endpoint(self, rank: int = 0) -> Endpoint:
        return self.controller.wait(
            TrainerHello, lambda hello: hello.endpoint.rank == rank
        ).endpoint

    def open(self, run: int = 1, purpose: Purpose = Purpose.TRAIN, **fields: Any) -> None:
        self._purposes[run] = purpose
        extra = {
            name: fields.pop(name)
            for name in ("first_epoch", "cached_epoch", "readers")
            if name in fields
        }
        options = Options(**{"feed": "train", **fields})
        self.controller.say(Open(run=run, purpose=purpose, options=options, **extra))

    def feeder(self, rank: int = 0, *, far: bool = False, **fields: Any) -> Feeder:
        purpose = self._purposes.get(fields.get("run", 1), Purpose.TRAIN)
        feeder = Feeder(self.endpoint(rank), self.secrets if far else None)
        return feeder.begin(purpose=purpose, **fields)

    def fed(self, run: int = 1, epoch: int = 0, feed: str = "train") -> None:
        self.controller.say(EpochFed(feed=feed, run=run, epoch=epoch))

    def credit(self, batches: int, *, final: bool = False, epoch: int = 0, run: int = 1) -> None:
        self.controller.say(
            Credit(feed="train", run=run, epoch=epoch, batches=batches, final=final)
        )

    def end(self, feed: str = "train") -> None:
        self.controller.say(Close(feed=feed, end=True))

    def close(self) -> None:
        for trainer in self.trainers:
            trainer.close()
        self.controller.close()


__all__ = ["JOB", "Feeder", "FeedController", "Rig", "Stop", "access"]
