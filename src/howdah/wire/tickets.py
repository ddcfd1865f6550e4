"""One-time links and session cookies, both proven by the job's token. Standard library only.

Anyone who can read the job's token (`secrets/token`, owner only) can make a link without asking the
coordinator: a ticket is its times, a nonce, and a keyed hash of them. The coordinator remembers
the nonces it has seen, so a ticket opens one session and no more. The session cookie is made the
same way, so it outlives the coordinator that gave it: a browser stays signed in over a take-over.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

TICKET_LIFE_S = 600.0
"""A link is good this long, once."""

TICKET_LIFE_MAX_S = 3600.0
"""A ticket that claims to be good for longer is refused."""

SESSION_LIFE_S = 7 * 86400.0
"""A browser stays signed in this long; then `howdah status` prints a new link."""

_MAX_LENGTH = 256
_NONCE_BYTES = 12


def mint_ticket(token: str, now: float, life_s: float = TICKET_LIFE_S) -> str:
    """A ticket for ``/login?ticket=…``, good once and until ``now + life_s``."""
    return _mint("ticket", token, now, min(life_s, TICKET_LIFE_MAX_S))


def login_link(base_url: str, token: str, now: float, to: str = "") -> str:
    """The whole one-time address of the job page, for a person to open.

    Args:
        base_url: the page's address, such as ``http://127.0.0.1:41234``.
        token: the job's token.
        now: seconds since the epoch.
        to: a page of the job to go on to, relative to the job page (a `WebLink.href` such as
            ``proxy/tensorboard:0/``); the job page itself if empty.
    """
    link = f"{base_url.rstrip('/')}/login?ticket={mint_ticket(token, now)}"
    return f"{link}&to={to}" if to else link


def mint_session(token: str, now: float) -> str:
    """The value of a session cookie."""
    return _mint("session", token, now, SESSION_LIFE_S)


def session_is_good(value: str, token: str, now: float) -> bool:
    """Whether the cookie value was made with this token and has not expired."""
    return _check("session", value, token, now, SESSION_LIFE_S) is not None


def session_cookie(job_id: str) -> str:
    """The cookie's name. One for each job: cookies know hosts, not ports."""
    return f"howdah-{job_id}"


class TicketStore:
    """Takes tickets and remembers those that are used.

    ``opened`` is when a successor of an earlier coordinator began: what its predecessor has taken
    is not known, so tickets older than that are refused. The first coordinator passes 0.
    """

    def __init__(self, token: str, opened: float = 0.0) -> None:
        self._token = token
        self._opened = opened
        self._used: dict[str, float] = {}

    def take(self, ticket: str, now: float) -> bool:
        """Whether the ticket is good; it is not a second time."""
        found = _check("ticket", ticket, self._token, now, TICKET_LIFE_MAX_S)
        if found is None:
            return False
        made, expires, nonce = found
        if made < int(self._opened):
            return False
        for old in [seen for seen, until in self._used.items() if until <= now]:
            del self._used[old]
        if nonce in self._used:
            return False
        self._used[nonce] = expires
        return True


def _mint(kind: str, token: str, now: float, life_s: float) -> str:
    body = f"{int(now)}.{int(now + life_s)}.{secrets.token_hex(_NONCE_BYTES)}"
    return f"{body}.{_proof(kind, token, body)}"


def _check(
    kind: str, value: str, token: str, now: float, life_max_s: float
) -> tuple[int, int, str] | None:
    """When a good value was made, when it expires, and its nonce."""
    if len(value) > _MAX_LENGTH or not value.isascii():
        return None
    body, _, proof = value.rpartition(".")
    if not hmac.compare_digest(proof, _proof(kind, token, body)):
        return None
    made, expires, nonce = body.split(".")
    # One second of grace: both times are cut to whole seconds.
    if not now < int(expires) <= now + life_max_s + 1:
        return None
    return int(made), int(expires), nonce


def _proof(kind: str, token: str, body: str) -> str:
    # The kind is part of what is hashed, so a ticket is never taken for a session.
    digest = hmac.new(token.encode(), f"howdah {kind} 1\n{body}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
