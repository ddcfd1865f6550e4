"""A signal without content: something changed, look again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


class Pulse:
    """Calls its listeners whenever it is fired.

    Carrying nothing, any number of firings may be answered by one look, so a slow listener costs
    no memory and stalls nobody. Listeners must return at once and not raise: they set an
    `asyncio.Event`.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def fire(self) -> None:
        """Tell everybody."""
        for listener in tuple(self._listeners):
            listener()

    def add(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` from now on."""
        self._listeners.append(listener)

    def remove(self, listener: Callable[[], None]) -> None:
        """Stop calling it; harmless if it is not known."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    @contextlib.contextmanager
    def calling(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` inside the ``with`` block."""
        self.add(listener)
        try:
            yield
        finally:
            self.remove(listener)
