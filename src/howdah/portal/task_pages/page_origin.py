"""Where pages of jobs' tasks are served in a team's portal, and who is let in there.

A TensorBoard, a notebook or a dashboard is a program of the job's owner. Each job has a host name of its
own for them, so to a browser each job's pages are another site's: their scripts reach neither the portal
nor the pages of other jobs. The portal knows its readers, and sends one there with a ticket in the
address, which is good once. It is exchanged for a cookie of that host alone.

Tickets and sessions are in memory. When the portal starts again, readers go through the job's page once more.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from howdah.coordinator.web.security import COOKIE_PREFIX, LOGIN_PATH, cookies_of, host_name
from howdah.portal.access_control import Reader

TICKET_S = 60.0
"""An address that lets a reader in is good this long, once."""
SESSION_S = 8 * 3600.0
"""A reader who was let in stays so this long; then the job's page in the portal leads there again."""
MOST = 10_000
"""Tickets, and sessions, in memory. The oldest make room."""


class _Admission(msgspec.Struct, frozen=True):
    job_id: str
    reader: Reader
    until: float


class _Admissions:
    """What secrets are good for: the pages of one job, for one reader."""

    def __init__(self, life_s: float, clock: Callable[[], float]) -> None:
        self._life_s = life_s
        self._clock = clock
        self._known: dict[str, _Admission] = {}
        """The oldest first."""

    def issue(self, job_id: str, reader: Reader) -> str:
        now = self._clock()
        known = self._known
        while known and (len(known) >= MOST or next(iter(known.values())).until <= now):
            del known[next(iter(known))]
        secret = secrets.token_urlsafe(24)
        known[secret] = _Admission(job_id, reader, now + self._life_s)
        return secret

    def reader(self, secret: str, job_id: str) -> Reader | None:
        found = self._known.get(secret)
        if found is None or found.job_id != job_id or found.until <= self._clock():
            return None
        return found.reader

    def take(self, secret: str, job_id: str) -> Reader | None:
        """The reader, as `reader` gives it; the secret is good no more."""
        reader = self.reader(secret, job_id)
        if reader is not None:
            del self._known[secret]
        return reader


class PageOrigin:
    """The host names of jobs' pages, and who is let in there.

    Args:
        url: ``https://pages.example``; a job's pages are at ``https://JOB.pages.example``.
        clock: seconds, of which none is left out or comes twice.

    Raises:
        ValueError: there can be no host names below it.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        parts = urlsplit(url)
        self.name: str = host_name(parts.netloc)
        labels = self.name.split(".")
        # An address has no names below it.
        named = all(labels) and not labels[-1].isdecimal() and ":" not in self.name
        if parts.scheme not in ("http", "https") or not named or url.rstrip("/").count("/") != 2:
            raise ValueError(f"{url!r} is no address of a host; write it as https://pages.example")
        self.secure: bool = parts.scheme == "https"
        if not self.secure and labels[-1] != "localhost":
            raise ValueError(
                f"{url!r} has to be https: without it other hosts of the domain could set a reader's cookie, and "
                "their pages send requests in the reader's name"
            )
        # Over https no page of another job can set it, even below a domain that both have.
        self.cookie: str = ("__Host-" if self.secure else "") + f"{COOKIE_PREFIX}page"
        self._netloc = parts.netloc.lower()
        self._tickets = _Admissions(TICKET_S, clock)
        self._sessions = _Admissions(SESSION_S, clock)

    @property
    def url(self) -> str:
        """The address of all jobs' pages, with an asterisk for a job's id."""
        return self._at("*")

    def owns(self, host: str) -> bool:
        """Whether a ``Host`` is one for pages of jobs' tasks, or the name above them."""
        return f".{host_name(host)}".endswith(f".{self.name}")

    def job_of(self, host: str) -> str | None:
        """The id of the job that a ``Host`` is for."""
        job_id, _, rest = host_name(host).partition(".")
        return job_id if job_id and rest == self.name else None

    def link(self, job_id: str, reader: Reader, to: str) -> str:
        """An address that lets the reader in once; ``to``: the page, relative to the job's address."""
        ticket = self._tickets.issue(job_id, reader)
        return f"{self._at(job_id)}{LOGIN_PATH}?ticket={ticket}&to={to}"

    def take(self, ticket: str, job_id: str) -> str | None:
        """The value of the cookie that a ticket gives; None if it is not good."""
        reader = self._tickets.take(ticket, job_id)
        return None if reader is None else self._sessions.issue(job_id, reader)

    def reader(self, cookies: str, job_id: str) -> Reader | None:
        """Who was let in to that job's pages with these cookies."""
        return self._sessions.reader(cookies_of(cookies).get(self.cookie, ""), job_id)

    def _at(self, job_id: str) -> str:
        return f"{'https' if self.secure else 'http'}://{job_id}.{self._netloc}"
