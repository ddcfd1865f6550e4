"""One-time links and sessions."""

from __future__ import annotations

import subprocess
import sys

import pytest

from howdah.wire import tickets

TOKEN = "secret"
NOW = 1_000_000.5


def test_a_ticket_opens_once() -> None:
    store = tickets.TicketStore(TOKEN)
    ticket = tickets.mint_ticket(TOKEN, NOW)
    assert store.take(ticket, NOW + 1)
    assert not store.take(ticket, NOW + 2)


def test_two_tickets_of_the_same_second_both_open() -> None:
    store = tickets.TicketStore(TOKEN)
    assert store.take(tickets.mint_ticket(TOKEN, NOW), NOW)
    assert store.take(tickets.mint_ticket(TOKEN, NOW), NOW)


def test_a_ticket_is_over_after_its_life() -> None:
    ticket = tickets.mint_ticket(TOKEN, NOW)
    assert not tickets.TicketStore(TOKEN).take(ticket, NOW + tickets.TICKET_LIFE_S + 1)


def test_a_ticket_of_another_token_does_not_open() -> None:
    assert not tickets.TicketStore(TOKEN).take(tickets.mint_ticket("other", NOW), NOW)


def test_a_ticket_opens_once_however_it_is_spelled() -> None:
    """Base 64 has two alphabets, and Python's decoder takes both."""
    store = tickets.TicketStore(TOKEN)
    ticket = next(t for t in iter(lambda: tickets.mint_ticket(TOKEN, NOW), "") if "-" in t)
    assert store.take(ticket, NOW)
    assert not store.take(ticket.replace("-", "+"), NOW)


def test_no_character_of_a_ticket_can_be_another_one() -> None:
    ticket = tickets.mint_ticket(TOKEN, NOW)
    for place, character in enumerate(ticket):
        other = "A" if character != "A" else "B"
        changed = ticket[:place] + other + ticket[place + 1 :]
        assert not tickets.TicketStore(TOKEN).take(changed, NOW), place


def test_a_link_with_a_ticket_is_short() -> None:
    link = tickets.login_link("http://digits-20261121-142045-cw7f.localhost:39621", TOKEN, NOW)
    assert len(link) <= 90


def test_a_coordinator_takes_the_tickets_of_older_clients() -> None:
    store = tickets.TicketStore(TOKEN)
    ticket = tickets.mint_long_ticket(TOKEN, NOW)
    assert store.take(ticket, NOW + 1)
    assert not store.take(ticket, NOW + 2)
    late = tickets.mint_long_ticket(TOKEN, NOW)
    assert not store.take(late, NOW + tickets.TICKET_LIFE_S + 1)
    assert not store.take(tickets.mint_long_ticket("other", NOW), NOW)


def test_a_ticket_that_claims_a_longer_life_does_not_open() -> None:
    ticket = tickets.mint_long_ticket(TOKEN, NOW)
    made, expires, rest = ticket.split(".", 2)
    assert not tickets.TicketStore(TOKEN).take(f"{made}.{int(expires) + 60}.{rest}", NOW)


@pytest.mark.parametrize(
    "ticket", ["", ".", "..", "...", "a.b.c.d", "9" * 5000, "1.2.3.é", "\x00" * 10, "1.2.3." * 40]
)
def test_rubbish_is_no_ticket(ticket: str) -> None:
    assert not tickets.TicketStore(TOKEN).take(ticket, NOW)


def test_a_successor_takes_no_ticket_its_predecessor_may_have_taken() -> None:
    old = tickets.mint_ticket(TOKEN, NOW)
    new = tickets.mint_ticket(TOKEN, NOW + 5)
    successor = tickets.TicketStore(TOKEN, opened=NOW + 4)
    assert not successor.take(old, NOW + 6)
    assert successor.take(new, NOW + 6)


def test_a_ticket_is_no_session_and_a_session_no_ticket() -> None:
    for ticket in (tickets.mint_ticket(TOKEN, NOW), tickets.mint_long_ticket(TOKEN, NOW)):
        assert not tickets.session_is_good(ticket, TOKEN, NOW)
    assert not tickets.TicketStore(TOKEN).take(tickets.mint_session(TOKEN, NOW), NOW)


def test_a_session_lasts_a_week_and_survives_the_coordinator() -> None:
    session = tickets.mint_session(TOKEN, NOW)
    assert tickets.session_is_good(session, TOKEN, NOW + 6 * 86400)
    assert not tickets.session_is_good(session, TOKEN, NOW + 7 * 86400 + 1)
    assert not tickets.session_is_good(session, "other", NOW)


def test_neither_holds_the_token() -> None:
    made = (tickets.mint_ticket, tickets.mint_long_ticket, tickets.mint_session)
    assert not any(TOKEN in mint(TOKEN, NOW) for mint in made)


def test_used_tickets_are_forgotten_when_they_expire() -> None:
    store = tickets.TicketStore(TOKEN)
    for second in range(0, 10_000, 100):
        assert store.take(tickets.mint_ticket(TOKEN, NOW + second), NOW + second)
    assert len(store._used) < 10


@pytest.mark.nightly
def test_making_a_link_needs_neither_starlette_nor_msgspec() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from howdah.wire import tickets; "
            "print(tickets.login_link('http://h:1/', 'x', 1.0)); "
            "assert not {'starlette', 'uvicorn', 'msgspec'} & set(sys.modules)",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("http://h:1/login?ticket=AAAAA")
