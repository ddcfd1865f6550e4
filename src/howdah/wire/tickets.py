"""One-time links, session cookies and readers' passes, all proven by the job's token. Standard library only.

Anyone who can read the job's token (`secrets/token`, owner only) can make a link without asking the
coordinator: a ticket is the time it was made at, a nonce, and a keyed hash of both. The coordinator
remembers the tickets it has seen, so a ticket opens one session and no more. The session cookie is made
in a similar way, so it outlives the coordinator that gave it: a browser stays signed in over a take-over.

A pass lets its holder look at the job as one of its readers, and no more. A portal for a team has the
token of each job; it asks with a pass, so that it is answered no more than its own readers may see.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

TICKET_LIFE_S = 600.0
"""A link is good this long, once."""

TICKET_LIFE_MAX_S = 3600.0
"""A long ticket that claims to be good for longer is refused."""

SESSION_LIFE_S = 7 * 86400.0
"""A browser stays signed in this long; then `howdah status` prints a new link."""

PASS_LIFE_S = 600.0
"""A reader's pass is good this long."""

PASS_LIFE_MAX_S = 3600.0
"""A pass that claims to be good for longer is refused; clocks may differ by the rest."""

_MAX_LENGTH = 256
_NONCE_BYTES = 12

# A short ticket: the second it was made in, a nonce, and the beginning of their keyed hash. These are
# 24 characters, so that a link fits into a line of most terminals.
_TIME_BYTES = 4
_SHORT_NONCE_BYTES = 3
_SHORT_PROOF_BYTES = 11
_SHORT_LENGTH = (_TIME_BYTES + _SHORT_NONCE_BYTES + _SHORT_PROOF_BYTES) * 4 // 3


def mint_ticket(token: str, now: float) -> str:
    """A ticket for ``/login?ticket=…``, good once and for `TICKET_LIFE_S`."""
    body = int(now).to_bytes(_TIME_BYTES, "big") + secrets.token_bytes(_SHORT_NONCE_BYTES)
    return base64.urlsafe_b64encode(body + _short_proof(token, body)).decode()


def mint_long_ticket(token: str, now: float) -> str:
    """A ticket of the same life for coordinators of releases that know no short ones."""
    return _mint("ticket", token, now, TICKET_LIFE_S)


def login_link(base_url: str, token: str, now: float, to: str = "", *, short: bool = True) -> str:
    """The whole one-time address of the job page, for a person to open.

    Args:
        base_url: the page's address, such as ``http://127.0.0.1:41234``.
        token: the job's token.
        now: seconds since the epoch.
        to: a page of the job to go on to, relative to the job page (a `WebLink.href` such as
            ``proxy/tensorboard:0/``); the job page itself if empty.
        short: whether the job's coordinator takes short tickets.
    """
    ticket = mint_ticket(token, now) if short else mint_long_ticket(token, now)
    link = f"{base_url.rstrip('/')}/login?ticket={ticket}"
    return f"{link}&to={to}" if to else link


def mint_session(token: str, now: float) -> str:
    """The value of a session cookie."""
    return _mint("session", token, now, SESSION_LIFE_S)


def session_is_good(value: str, token: str, now: float) -> bool:
    """Whether the cookie value was made with this token and has not expired."""
    return _check("session", value, token, now, SESSION_LIFE_S) is not None


def mint_pass(token: str, now: float) -> str:
    """What a reader shows as ``Authorization: Bearer``."""
    return _mint("pass", token, now, PASS_LIFE_S)


def pass_is_good(value: str, token: str, now: float) -> bool:
    """Whether the pass was made with this token and has not expired."""
    return _check("pass", value, token, now, PASS_LIFE_MAX_S) is not None


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
        if len(ticket) == _SHORT_LENGTH:
            found = _check_short(ticket, self._token, now)
        else:
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
) -> tuple[int, float, str] | None:
    """When a good value was made, when it expires, and its nonce."""
    if len(value) > _MAX_LENGTH or not value.isascii():
        return None
    body, _, proof = value.rpartition(".")
    if not hmac.compare_digest(proof, _proof(kind, token, body)):
        return None
    made, expires, nonce = body.split(".")
    return (int(made), int(expires), nonce) if _is_now(int(expires), now, life_max_s) else None


def _is_now(expires: float, now: float, life_max_s: float) -> bool:
    # One second of grace: times are cut to whole seconds.
    return now < expires <= now + life_max_s + 1


def _check_short(ticket: str, token: str, now: float) -> tuple[int, float, str] | None:
    """When a good short ticket was made, when it expires, and its nonce."""
    try:
        data = base64.b64decode(ticket, altchars=b"-_", validate=True)
    except ValueError:
        return None
    body, proof = data[:-_SHORT_PROOF_BYTES], data[-_SHORT_PROOF_BYTES:]
    if not hmac.compare_digest(proof, _short_proof(token, body)):
        return None
    made = int.from_bytes(body[:_TIME_BYTES], "big")
    expires = made + TICKET_LIFE_S
    # Not the text: the decoder takes some bytes in two spellings.
    return (made, expires, body.hex()) if _is_now(expires, now, TICKET_LIFE_MAX_S) else None


def _short_proof(token: str, body: bytes) -> bytes:
    # Neither a long ticket's nor a session's: what is hashed begins in another way.
    digest = hmac.new(token.encode(), b"howdah short ticket 1\n" + body, hashlib.sha256).digest()
    return digest[:_SHORT_PROOF_BYTES]


def _proof(kind: str, token: str, body: str) -> str:
    # The kind is part of what is hashed, so a ticket is never taken for a session.
    digest = hmac.new(token.encode(), f"howdah {kind} 1\n{body}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
