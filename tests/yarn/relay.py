"""A connection to the ResourceManager that breaks when a test wants it to."""

from __future__ import annotations

import asyncio


class Relay:
    """Between a master or client and the ResourceManager; it may be cut."""

    def __init__(
        self, target: tuple[str, int], method: str, *, loses_answers: bool = False
    ) -> None:
        """Calls of the method are counted. ``loses_answers``: the call at which it is cut gets through, and its
        answer does not."""
        self._target = target
        self._method = method.encode()
        self._loses_answers = loses_answers
        self._ways: set[asyncio.Task[None]] = set()
        self.calls = 0
        self.cut_at: int | None = None
        """The call that does not get through or is not answered, nor any after it."""

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._ways:
            task.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)

    @property
    def cut(self) -> bool:
        return self.cut_at is not None and self.calls >= self.cut_at

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(*self._target)
        ways = {
            asyncio.create_task(self._pass(reader, requests, counts=True)),
            asyncio.create_task(self._pass(answers, writer, counts=False)),
        }
        self._ways |= ways
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        writer.close()
        requests.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool
    ) -> None:
        while data := await reader.read(65536):
            already = self.cut
            self.calls += counts and self._method in data
            if already or (self.cut and not self._loses_answers):
                return
            writer.write(data)
