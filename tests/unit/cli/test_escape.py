"""What is typed at a shell of ``howdah exec``: the way out of it."""

from __future__ import annotations

import pytest

from howdah.cli.commands.exec import Escape


@pytest.mark.parametrize(
    ("typed", "sent", "leave"),
    [
        (b"ls\r~.", b"ls\r", True),
        (b"~.", b"", True),
        (b"a~.\r", b"a~.\r", False),
        (b"\r~~.", b"\r~.", False),
        (b"\r~x~.", b"\r~x~.", False),
        (b"cd ~\r", b"cd ~\r", False),
        (b"\r~\r~.", b"\r~\r", True),
    ],
)
def test_a_tilde_and_a_dot_at_the_beginning_of_a_line_leave(
    typed: bytes, sent: bytes, leave: bool
) -> None:
    assert Escape().take(typed) == (sent, leave)
    by_key = Escape()
    taken = [by_key.take(bytes([byte])) for byte in typed]
    assert (b"".join(part for part, _ in taken), taken[-1][1]) == (sent, leave)
