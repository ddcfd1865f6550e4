"""TensorFlowOnSpark's ``reservation``: nodes register with a server and learn of each other.

`TFCluster` does not need it: the coordinator does that. It is here for programs that use it, in a
safe form. There messages were pickles that anyone could send. Here they are msgpack, both sides
prove a secret key before anything else, and every message carries a code made with it.

The key is in the address that `Server.start` returns (`KeyedAddress`), which goes with a pickled function
to the executors. A client that has only host and port takes the key from ``TFOS_SERVER_KEY``.

Messages are not encrypted, only proven: nothing secret belongs into a reservation.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from howdah.compat.tensorflowonspark import util

logger: logging.Logger = logging.getLogger(__name__)

TFOS_SERVER_PORT = "TFOS_SERVER_PORT"
TFOS_SERVER_HOST = "TFOS_SERVER_HOST"
TFOS_SERVER_KEY = "TFOS_SERVER_KEY"
MAX_MESSAGE = 4 << 20
"""Bytes; a longer message closes its connection."""
POLL_S = 0.2
_NONCE = 32
_CODE = 32


class KeyedAddress(tuple[str, int]):
    """``(host, port)`` that also carries the server's key."""

    key: bytes

    def __new__(cls, host: str, port: int, key: bytes) -> KeyedAddress:
        made = super().__new__(cls, (host, port))
        made.key = key
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (KeyedAddress, (self[0], self[1], self.key))

    def __repr__(self) -> str:
        return f"({self[0]!r}, {self[1]})"


def _is_own(host: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind((host, 0))
        except OSError:
            return False
    return True


class Reservations:
    """What nodes have said of themselves. Thread-safe."""

    def __init__(self, required: int) -> None:
        """``required``: how many nodes there will be."""
        self.required = required
        self.lock: Any = threading.RLock()
        self.reservations: list[Any] = []
        self._changed = threading.Condition(self.lock)

    def add(self, meta: Any) -> None:
        """One node more; one that says the same again (a retry) is counted once."""
        with self._changed:
            if meta not in self.reservations:
                self.reservations.append(meta)
            self._changed.notify_all()

    def done(self) -> bool:
        """Whether all are there."""
        with self.lock:
            return len(self.reservations) >= self.required

    def get(self) -> list[Any]:
        """Those that are there."""
        with self.lock:
            return list(self.reservations)

    def remaining(self) -> int:
        """How many are missing."""
        with self.lock:
            return self.required - len(self.reservations)

    def wait(self, timeout_s: float) -> bool:
        """Wait until all are there; whether they are."""
        with self._changed:
            return self._changed.wait_for(
                lambda: len(self.reservations) >= self.required, timeout_s
            )


class MessageSocket:
    """Messages with their length before and a proof behind, over one proven connection."""

    def receive(self, sock: _Proven) -> Any:
        """The next message.

        Raises:
            ConnectionError: closed, too long, or not proven.
        """
        return sock.receive()

    def send(self, sock: _Proven, msg: Any) -> None:
        """Send a message (what msgpack can say: numbers, strings, bytes, lists, dictionaries)."""
        sock.send(msg)


class _Proven:
    """A connection whose two ends have shown each other that they know the key."""

    def __init__(self, sock: socket.socket, key: bytes, *, server: bool) -> None:
        self.sock = sock
        mine = secrets.token_bytes(_NONCE)
        sock.sendall(mine)
        theirs = _exactly(sock, _NONCE)
        both = theirs + mine if server else mine + theirs
        self._send_key = hmac.digest(key, both + (b"server" if server else b"client"), "sha256")
        self._receive_key = hmac.digest(key, both + (b"client" if server else b"server"), "sha256")
        self._sent = self._received = 0
        if server:  # the client proves itself first: a stranger learns nothing
            self._expect_hello()
            self.send("hello")
        else:
            self.send("hello")
            self._expect_hello()

    def send(self, msg: Any) -> None:
        data = msgspec.msgpack.encode(msg)
        code = self._code(self._send_key, self._sent, data)
        self._sent += 1
        self.sock.sendall(struct.pack(">I", len(data)) + data + code)

    def receive(self) -> Any:
        (size,) = struct.unpack(">I", _exactly(self.sock, 4))
        if size > MAX_MESSAGE:
            raise ConnectionError(f"a message of {size} bytes; {MAX_MESSAGE} are the most")
        data = _exactly(self.sock, size)
        expected = self._code(self._receive_key, self._received, data)
        self._received += 1
        if not hmac.compare_digest(expected, _exactly(self.sock, _CODE)):
            raise ConnectionError("the other side does not know the key of this reservation server")
        return msgspec.msgpack.decode(data)

    def close(self) -> None:
        self.sock.close()

    def _expect_hello(self) -> None:
        if self.receive() != "hello":
            raise ConnectionError("the other side does not greet as it should")

    @staticmethod
    def _code(key: bytes, number: int, data: bytes) -> bytes:
        return hmac.digest(key, struct.pack(">Q", number) + data, "sha256")


class Server(MessageSocket):
    """Takes the reservations of a fixed number of nodes."""

    def __init__(self, count: int) -> None:
        """``count``: nodes that will register."""
        assert count > 0, "Expected number of reservations should be greater than zero"
        self.reservations: Reservations = Reservations(count)
        self.done: bool = False
        self.key: bytes = secrets.token_bytes(32)
        self._threads: list[threading.Thread] = []

    def await_reservations(
        self, sc: Any, status: Mapping[str, Any] | None = None, timeout: float = 600
    ) -> list[Any]:
        """Wait for all.

        Args:
            sc: its jobs are cancelled when ``status`` has an error; may be None.
            status: ``error`` in it ends the waiting.
            timeout: seconds.

        Raises:
            RuntimeError: ``status`` has an error; its text.
            TimeoutError: they are not there in time.
        """
        deadline = time.monotonic() + timeout
        while not self.reservations.wait(min(POLL_S, max(deadline - time.monotonic(), 0))):
            if status and "error" in status:
                if sc is not None:
                    sc.cancelAllJobs()
                raise RuntimeError(f"a node failed before all were there: {status['error']}")
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    "timed out waiting for reservations to complete: "
                    f"{self.reservations.remaining()} of {self.reservations.required} are missing "
                    f"after {timeout:g} s"
                )
        return self.reservations.get()

    def start(self) -> KeyedAddress:
        """Listen, in threads of its own; the address, which carries the key."""
        listening = self.start_listening_socket()
        address = KeyedAddress(self.get_server_ip(), listening.getsockname()[1], self.key)
        thread = threading.Thread(target=self._accept, args=(listening,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return address

    def stop(self) -> None:
        """Stop listening; nodes that are connected may go on asking."""
        self.done = True

    def join(self, timeout_s: float = 5.0) -> None:
        """Wait until it listens no more, after `stop` or a client's `Client.request_stop`."""
        for thread in self._threads:
            thread.join(timeout_s)

    def get_server_ip(self) -> str:
        """``TFOS_SERVER_HOST``, or this machine's address."""
        return os.environ.get(TFOS_SERVER_HOST) or util.get_ip_address()

    def get_server_ports(self) -> list[int]:
        """Ports of ``TFOS_SERVER_PORT`` (``8888`` or ``9997-9999``); 0, any, where it is not set.

        Raises:
            ValueError: it is neither.
        """
        text = os.environ.get(TFOS_SERVER_PORT, "0")
        first, dash, last = text.partition("-")
        try:
            return list(range(int(first), int(last) + 1)) if dash else [int(first)]
        except ValueError:
            raise ValueError(
                f"Invalid {TFOS_SERVER_PORT}: {text}. Give a port (8888) or a range (9997-9999)"
            ) from None

    def start_listening_socket(self) -> socket.socket:
        """A listening socket on the first free of `get_server_ports`, at `get_server_ip` alone if that
        is an address of this machine.

        Raises:
            OSError: none is free.
        """
        ports = self.get_server_ports()
        host = self.get_server_ip()
        if not _is_own(host):  # TFOS_SERVER_HOST may be known to others only, as of a container
            host = ""
        for port in ports:
            listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind((host, port))
                listening.listen(128)
            except OSError as error:
                listening.close()
                logger.warning("reservation server: port %s is not to be had: %s", port, error)
            else:
                return listening
        raise OSError(f"Reservation server unable to bind to any ports, port_list = {ports}")

    def _accept(self, listening: socket.socket) -> None:
        with listening:
            while not self.done:
                if select.select([listening], [], [], POLL_S)[0]:
                    try:
                        sock, _ = listening.accept()
                    except OSError as error:  # it broke meanwhile, or there are no more files
                        logger.warning("reservation server: a node is not heard: %s", error)
                        time.sleep(POLL_S)
                        continue
                    threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                sock.settimeout(10.0)  # for the proof: a stranger holds no thread for long
                proven = _Proven(sock, self.key, server=True)
                sock.settimeout(None)
                while True:
                    self._handle_message(proven, self.receive(proven))
            except (OSError, msgspec.DecodeError) as error:
                logger.debug("reservation server: a connection ends: %s", error)

    def _handle_message(self, sock: _Proven, msg: Any) -> None:
        match msg:
            case {"type": "REG", "data": meta}:
                self.reservations.add(meta)
                self.send(sock, "OK")
            case {"type": "QUERY"}:
                self.send(sock, self.reservations.done())
            case {"type": "QINFO"}:
                self.send(sock, self.reservations.get())
            case {"type": "STOP"}:
                self.done = True
                self.send(sock, "OK")
            case _:
                self.send(sock, "ERR")


class Client(MessageSocket):
    """A node's side of it."""

    def __init__(self, server_addr: tuple[str, int]) -> None:
        """
        Args:
            server_addr: what `Server.start` returned; or host and port, with the key (hexadecimal)
                in ``TFOS_SERVER_KEY``.

        Raises:
            ValueError: no key is known.
            ConnectionError: the server does not know the key.
        """
        key = getattr(server_addr, "key", None)
        if key is None and (text := os.environ.get(TFOS_SERVER_KEY)):
            key = bytes.fromhex(text)
        if key is None:
            raise ValueError(
                f"{server_addr} has no key: pass on what Server.start() returned, or set "
                f"{TFOS_SERVER_KEY} to server.key.hex()"
            )
        self.server_addr = server_addr
        self.sock: _Proven = _Proven(
            socket.create_connection((server_addr[0], server_addr[1])), key, server=False
        )

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def register(self, reservation: Any) -> Any:
        """Say what this node is; ``OK``."""
        return self._request({"type": "REG", "data": reservation})

    def get_reservations(self) -> Any:
        """Those that are there now."""
        return self._request({"type": "QINFO"})

    def await_reservations(self) -> Any:
        """Wait until all are there, for ever; all of them."""
        while not self._request({"type": "QUERY"}):
            time.sleep(POLL_S)
        return self.get_reservations()

    def request_stop(self) -> Any:
        """Tell the server to stop: its ``done`` becomes true."""
        return self._request({"type": "STOP"})

    def _request(self, msg: Mapping[str, Any]) -> Any:
        self.send(self.sock, msg)
        return self.receive(self.sock)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        if not (got := sock.recv(count - len(parts))):
            raise ConnectionError("socket closed")
        parts += got
    return bytes(parts)
