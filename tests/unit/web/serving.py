"""A real server over a fake job, in a thread of its own, and a small HTTP client for it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from howdah.coordinator.web.app import JobApp, create_app
from howdah.coordinator.web.server import WebServer, serve
from howdah.wire import tickets
from howdah.wire.addresses import listening
from tests.unit.web.fake_job import TOKEN, FakeJob

DEADLINE_S = 60.0
BEARER = {"Authorization": f"Bearer {TOKEN}"}

T = TypeVar("T")


class Answer(NamedTuple):
    """One HTTP answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> str:
        return self.json()["error"]

    @property
    def cookie(self) -> str:
        """The cookie it sets, as a browser sends it back."""
        return self.headers["Set-Cookie"].partition(";")[0]


class Served:
    """A job's app on a free port of this machine."""

    def __init__(self, job: FakeJob, **options: Any) -> None:
        self.job = job
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.app: JobApp
        self.server: WebServer

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        self.app = create_app(self.job, **self._options)
        self.server = self.run(serve(self.app, listening("127.0.0.1")))

    def restart(self, port: int) -> None:
        """A new server, as the next coordinator's, where the last one was."""
        self.app = create_app(self.job, **self._options)
        self.server = self.run(serve(self.app, listening("127.0.0.1", wanted=port)))

    def stop(self) -> None:
        self.run(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def run(self, work: Any) -> Any:
        """Await something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def do(self, change: Callable[[FakeJob], T]) -> T:
        """Change the job on the server's loop, where its listeners are."""

        async def changing() -> T:
            return change(self.job)

        return self.run(changing())

    def login_link(self) -> str:
        return tickets.login_link(self.url, self.job.token, time.time())

    def log_in(self) -> dict[str, str]:
        """Headers of a browser that has opened the one-time link."""
        path = self.login_link().removeprefix(self.url)
        answer = self.get(path, headers={})
        assert answer.status == 200
        return {"Cookie": answer.cookie}

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, content: Any = None, headers: dict[str, str] | None = None) -> Answer:
        body = b"" if content is None else msgspec.json.encode(content)
        given = BEARER if headers is None else headers
        return self.ask(
            "POST", path, body=body, headers={"Content-Type": "application/json", **given}
        )

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            given = BEARER if headers is None else headers
            connection.request(method, path, body=body, headers=given, **options)
            response = connection.getresponse()
            return Answer(response.status, response.msg, response.read())
        finally:
            connection.close()

    @contextlib.contextmanager
    def stream(self, path: str, headers: dict[str, str] | None = None) -> Iterator[Events]:
        """An open event stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path, headers=BEARER if headers is None else headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield Events(response)
        finally:
            connection.close()


class Events:
    """Events of a stream as they come."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> tuple[str, Any]:
        """Name and content of the next event.

        Raises:
            EOFError: the stream has ended.
        """
        name = ""
        while line := self._response.readline():
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                return name, msgspec.json.decode(line[6:])
        raise EOFError

    def until(self, name: str, accept: Callable[[Any], bool] = lambda _: True) -> Any:
        """The next event of that name that is accepted."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            found, content = self.next()
            if found == name and accept(content):
                return content
        raise AssertionError(f"no {name} event came that was looked for")


@contextlib.contextmanager
def serving(job: FakeJob | None = None, **options: Any) -> Iterator[Served]:
    """A running server."""
    served = Served(job or FakeJob(), **options)
    served.start()
    try:
        yield served
    finally:
        served.stop()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again, for a while."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)
