"""Tickets to pages of jobs' tasks and sessions there, by a clock that is set."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from howdah.portal.access_control import Reader
from howdah.portal.task_pages import page_origin
from howdah.portal.task_pages.page_origin import SESSION_S, TICKET_S, PageOrigin

JOB = "digits-20261121-143502-k3f9"
VERA = Reader("vera")


def ticket(origin: PageOrigin) -> str:
    link = urlsplit(origin.link(JOB, VERA, "proxy/worker:0/"))
    assert link.netloc == f"{JOB}.pages.example"
    return parse_qs(link.query)["ticket"][0]


def test_tickets_and_sessions_are_good_for_as_long_as_is_said() -> None:
    now = 1000.0
    origin = PageOrigin("https://pages.example/", lambda: now)
    late, kept = ticket(origin), origin.take(ticket(origin), JOB)
    cookies = f"a=b; __Host-howdah-page={kept}"
    now += TICKET_S
    assert origin.take(late, JOB) is None
    now += SESSION_S - TICKET_S - 1
    assert origin.reader(cookies, JOB) == VERA
    now += 1
    assert origin.reader(cookies, JOB) is None


def test_tickets_that_nobody_uses_take_no_more_room_than_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_origin, "MOST", 3)
    origin = PageOrigin("https://pages.example", lambda: 0.0)
    made = [ticket(origin) for _ in range(5)]
    assert [origin.take(each, JOB) is not None for each in made] == [False, False, True, True, True]


def test_pages_are_served_without_https_on_this_machine_only() -> None:
    assert PageOrigin("http://pages.localhost:8081").url == "http://*.pages.localhost:8081"
    with pytest.raises(ValueError, match="has to be https"):
        PageOrigin("http://pages.example")
