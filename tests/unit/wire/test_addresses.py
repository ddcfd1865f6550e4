"""Which address peers are told."""

from __future__ import annotations

import asyncio
import socket

import pytest

from howdah.wire.addresses import AddressError, advertised, listening

HERE = ("127.0.0.1", 1)


def test_the_address_that_was_set_wins() -> None:
    assert advertised("10.1.2.3", "nosuch0", HERE) == "10.1.2.3"


def test_an_interface_gives_its_address() -> None:
    assert advertised(None, "lo", HERE) == "127.0.0.1"


def test_an_unknown_interface_is_explained_with_those_there_are() -> None:
    with pytest.raises(AddressError, match=r"no network interface 'eth77'.*it has .*lo"):
        advertised(None, "eth77", HERE)


def test_else_it_is_the_one_that_faces_the_coordinator() -> None:
    assert advertised(None, None, HERE) == "127.0.0.1"


def test_a_coordinator_nobody_can_reach_is_explained() -> None:
    with pytest.raises(AddressError, match="no way to the coordinator"):
        advertised(None, None, ("no.such.host.invalid", 1))


def test_small_writes_on_what_was_accepted_are_sent_at_once() -> None:
    with listening("127.0.0.1") as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()

        async def is_sent_at_once() -> int:
            _, writer = await asyncio.open_connection(sock=accepted)
            own = writer.get_extra_info("socket")
            try:
                return own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            finally:
                writer.close()

        assert asyncio.run(is_sent_at_once())
