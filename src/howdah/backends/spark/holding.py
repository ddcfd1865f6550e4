"""A holder's life, once its process is its own: see `howdah.backends.spark.holder`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import time
from functools import partial
from pathlib import Path

import msgspec

from howdah.agent.processes import become_subreaper
from howdah.backends.local.containers import Containers
from howdah.backends.local.loop import Loop, Timer
from howdah.backends.local.messages import Ended
from howdah.backends.local.messages import Launch as LocalLaunch
from howdah.backends.local.notes import note
from howdah.backends.spark import luggage
from howdah.backends.spark.homeward import Homeward
from howdah.backends.spark.line import Line, dial
from howdah.backends.spark.messages import (
    ON_DRIVER,
    Cut,
    Here,
    Known,
    Launch,
    Leave,
    Order,
    Over,
    Release,
    ToHolder,
    Welcome,
)
from howdah.core.messages import ContainerEndKind
from howdah.storage import layout
from howdah.storage.files import write_private
from howdah.wire.frames import FrameError
from howdah.wire.tls import PeerRole, certificate_name, client_context

DIAL_S = 5.0
"""For one attempt to connect. Meanwhile nothing else happens, which nothing minds."""
REACH_S = 20.0
"""For the first connection: the coordinator's process is starting, the socket is there before."""
NAME_S = 3.0
"""The same for one whose name nobody knows."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.5
HOME_S = 0.5
"""Between two looks for what has to be brought home."""
FULL_BYTES = 4 << 20
"""Nothing more is brought home while so much waits to be sent."""
LAST_S = 60.0
"""For the last files to come home."""
CUT_GRACE_S = 2.0
"""For the agent, once Spark has ended the task."""
LEAVE_GRACE_S = 1.0


class Holder:
    """One holder's life."""

    def __init__(self, base: Path, order: Order, task: int, answer: int) -> None:
        """``task`` and ``answer`` are the descriptors of the pipes from and to the Spark task."""
        self._base = base
        self._task = task
        self._answer = answer
        self._order = order
        self._sees = luggage.sees(order)
        self._tls = client_context(base / luggage.SECRETS, PeerRole.AGENT)
        self._loop = Loop()
        self._containers = Containers(
            self._loop, order.job_id, base, order.agent, self._container_ended
        )
        self._line: Line[ToHolder] | None = None
        self._container_id = ""
        """The container that has, or had, an agent, until its end is known."""
        self._over: Over | None = None
        self._homeward: Homeward | None = None
        self._last_words_until = 0.0
        self._began = self._lonely_since = time.monotonic()
        self._welcomed = False
        self._address = b""
        self._staying = False
        """The Spark task has said that it will end, or there is none."""
        self._leaving = ""
        self._pause_s = FIRST_PAUSE_S
        self._homing: Timer | None = None
        self._word = b""

    def run(self) -> None:
        """Until nobody needs it."""
        become_subreaper()
        self._loop.on_signal(signal.SIGTERM, partial(self._leave, "SIGTERM"))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.set_blocking(self._task, False)
        self._loop.watch(self._task, self._task_says)
        self._loop.later(0.0, self._connect)
        self._loop.run()
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.socket.settimeout(1.0)
                self._line.flush()
        if not self._order.keep:
            shutil.rmtree(self._base, ignore_errors=True)
        if self._line is not None:
            self._line.close()  # after the folder: who waits for the end finds nothing left
        with contextlib.suppress(OSError):
            self._base.parent.rmdir()

    # -- the Spark task ------------------------------------------------------------------------

    def _task_says(self) -> None:
        try:
            data = os.read(self._task, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._word += data
            self._staying = self._staying or luggage.GO in self._word
            return
        self._loop.unwatch(self._task)
        if self._staying:
            return
        note("the Spark task was ended")
        self._tell(Cut(reason="Spark has ended the task that held its place"))
        self._leave("its Spark task was ended", CUT_GRACE_S)

    def _say(self, word: str) -> None:
        """To the Spark task, if it still listens."""
        with contextlib.suppress(OSError):
            os.write(self._answer, word.replace("\n", " ").encode() + b"\n")

    # -- the coordinator -----------------------------------------------------------------------

    def _connect(self) -> None:
        if self._leaving:
            return
        order = self._order
        name = certificate_name(PeerRole.COORDINATOR, order.job_id)
        try:
            line = dial(order.coordinator, self._tls, name, ToHolder, DIAL_S)
        except OSError as error:
            self._not_reached(error)
            return
        self._line = line
        self._pause_s = FIRST_PAUSE_S
        self._loop.watch(line.socket, partial(self._readable, line))
        self._tell(self._here())
        if self._over is not None and self._homeward is not None:
            self._bring_home()
        if line is self._line:
            self._readable(line)  # what came with the handshake is in no socket any more

    def _here(self) -> Here:
        order = self._order
        return Here(
            holder=order.holder,
            ticket=order.ticket,
            host=order.host,
            base=str(self._base),
            gpus=order.gpus,
            sees=self._sees,
            container_id=self._container_id,
            # Its files, all of which are sent anew, come before the word of its end.
            over=self._over if self._homeward is None else None,
        )

    def _not_reached(self, error: OSError) -> None:
        now = time.monotonic()
        host, port = self._order.coordinator
        patience_s = NAME_S if isinstance(error, socket.gaierror) else REACH_S
        if (not self._welcomed and now - self._began > patience_s) or _hopeless(error):
            problem = f"{self._order.host} does not reach the coordinator at {host}:{port}: {error}"
            self._say(problem)
            note(problem)
            self._leave(problem)
        elif self._welcomed and now - self._lonely_since > self._order.lease_s:
            self._leave(f"no coordinator for {self._order.lease_s:g} s")
        else:
            self._loop.later(self._pause_s, self._connect)
            self._pause_s = min(self._pause_s * 1.5, LONGEST_PAUSE_S)

    def _readable(self, line: Line[ToHolder]) -> None:
        try:
            messages, there = line.receive()
            for message in messages:
                self._handle(message)
        except FrameError as error:
            note(f"the coordinator is not understood: {error}")
            there = False
        if not there:
            self._lost(line)

    def _writable(self, line: Line[ToHolder]) -> None:
        try:
            done = line.flush()
        except OSError:
            self._lost(line)
            return
        if done:
            self._loop.watch(line.socket, partial(self._readable, line))

    def _tell(self, message: msgspec.Struct) -> bool:
        """Say it, if somebody is connected: who comes later is told everything."""
        line = self._line
        if line is None:
            return False
        try:
            done = line.send(message)
        except OSError:
            self._lost(line)
            return False
        if not done:
            self._loop.watch(
                line.socket, partial(self._readable, line), partial(self._writable, line)
            )
        return True

    def _lost(self, line: Line[ToHolder]) -> None:
        if line is not self._line:
            return
        self._loop.unwatch(line.socket)
        line.close()
        self._line = None
        self._lonely_since = time.monotonic()
        if self._homeward is not None:
            self._homeward.forget()
        if not self._leaving:
            self._loop.later(FIRST_PAUSE_S, self._connect)

    def _handle(self, message: ToHolder) -> None:
        match message:
            case Welcome():
                self._welcome(message)
            case Launch():
                self._launch(message)
            case Release():
                self._containers.release(message.container_id, message.grace_s)
            case Known():
                self._known(message.container_id)
            case Leave():
                self._leave("nobody needs it")

    def _welcome(self, message: Welcome) -> None:
        self._order = msgspec.structs.replace(self._order, lease_s=message.lease_s)
        self._address = message.address
        self._write_address()
        if not self._welcomed:
            self._welcomed = True
            self._say(luggage.READY)
            if self._order.ticket == ON_DRIVER:
                self._staying = True

    def _write_address(self) -> None:
        """For an agent that does not see the job directory."""
        if self._sees or not self._container_id or not self._address:
            return
        place = self._base / self._container_id / luggage.HOME / layout.COORDINATOR
        with contextlib.suppress(OSError):
            temporary = place.with_name(f".{place.name}")
            write_private(temporary, self._address)
            temporary.replace(place)

    # -- the container -------------------------------------------------------------------------

    def _launch(self, message: Launch) -> None:
        if self._container_id == message.container_id:
            if self._over is not None:
                self._tell(self._over)
            return
        self._container_id = message.container_id
        try:
            here = luggage.lay_out(self._base, message.container_id, self._order, seen=self._sees)
            self._write_address()
        except OSError as error:
            kind = ContainerEndKind.LAUNCH_FAILED
            text = f"its folder could not be made: {error}"
            self._over = Over(container_id=message.container_id, kind=kind, detail=text)
            self._tell(self._over)
            return
        if not self._sees:
            self._homeward = Homeward(here / luggage.HOME)
            self._homing = self._loop.later(HOME_S, self._bring_home)
        self._containers.launch(
            LocalLaunch(
                container_id=message.container_id, role=message.role, launch=message.launch
            ),
            (),
        )

    def _container_ended(self, ended: Ended) -> None:
        self._over = Over(container_id=ended.container_id, kind=ended.kind, detail=ended.detail)
        self._last_words_until = time.monotonic() + LAST_S
        if self._leaving:
            self._bring_last()
            self._loop.stop()
            return
        self._bring_home()

    def _bring_home(self) -> None:
        """What is new; with the container's end, all of it and then the word of the end."""
        if self._homing is not None:
            self._homing.cancel()
            self._homing = None
        done = self._send_news()
        late = time.monotonic() > self._last_words_until
        if self._over is not None and self._line is not None and (done or late):
            over = self._over
            if self._homeward is not None and self._homeward.cut_short:
                detail = f"{over.detail} (not all of its files came home: too much)".strip()
                over = msgspec.structs.replace(over, detail=detail)
            self._tell(over)
        elif self._homeward is not None or self._over is not None:
            pause_s = HOME_S if self._over is None else 0.02
            self._homing = self._loop.later(pause_s, self._bring_home)

    def _send_news(self) -> bool:
        """True if all there is has been handed to the connection."""
        line = self._line
        if self._homeward is None:
            return True
        if line is None or line.waiting_bytes > FULL_BYTES:
            return False
        for part in self._homeward.news():
            self._tell(part)
            if self._line is None or self._line.waiting_bytes > FULL_BYTES:
                return False
        return True

    def _bring_last(self) -> None:
        if self._line is None or self._over is None:
            return
        self._send_news()
        self._tell(self._over)

    def _known(self, container_id: str) -> None:
        """The end is known: the place is free for another container."""
        if container_id != self._container_id or self._over is None:
            return
        self._containers.acknowledge(container_id)
        if not self._order.keep:
            shutil.rmtree(self._base / container_id, ignore_errors=True)
        self._container_id = ""
        self._over = None
        self._homeward = None

    # -- the end -------------------------------------------------------------------------------

    def _leave(self, reason: str, grace_s: float = LEAVE_GRACE_S) -> None:
        if self._leaving:
            return
        self._leaving = reason
        note(f"leaving: {reason}")
        running = self._containers.running()
        for container in running:
            self._containers.release(container.container_id, grace_s)
        if not running:
            self._loop.stop()


def _hopeless(error: OSError) -> bool:
    """Trying again will not help: somebody else is there, or there is no such host."""
    return isinstance(error, ssl.SSLCertVerificationError)
