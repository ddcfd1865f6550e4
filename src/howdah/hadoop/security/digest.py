"""DIGEST-MD5 as Hadoop uses it for tokens (RFC 2831), client side. No I/O.

User name and password are the token's identifier and password in base 64; the realm is the
server's (``default``). After authentication with ``auth-int`` or ``auth-conf`` every piece of the
stream is signed, or signed and encrypted.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import os
import re
import struct
from collections.abc import Callable
from typing import Protocol

from howdah.hadoop.errors import AuthenticationError

QOPS = ("auth", "auth-int", "auth-conf")
"""Qualities of protection, the weakest first."""

PROTECTION = {"authentication": "auth", "integrity": "auth-int", "privacy": "auth-conf"}
"""SASL's names for what ``hadoop.rpc.protection`` says."""

_CIPHER = "rc4"
"""Of those a Java server offers (all are outdated), the one that needs no library: see `Rc4`."""
_OVERHEAD = 64  # more than any signature and padding adds
_DIRECTIVE = re.compile(r'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|$)')


class Layer(Protocol):
    """What protects a connection after authentication."""

    max_plain_bytes: int

    def wrap(self, data: bytes) -> bytes:
        """A piece to send, protected; at most `max_plain_bytes` of it."""
        ...

    def unwrap(self, data: bytes) -> bytes:
        """A piece received; `AuthenticationError` if it is not the server's."""
        ...


class Rc4:
    """The stream cipher, one direction; to encrypt is to decrypt.

    3 MB/s: it protects calls, not files. Kept here so that a job's runtime needs no library of ciphers.
    """

    def __init__(self, key: bytes) -> None:
        state = list(range(256))
        j = 0
        for i in range(256):
            j = (j + state[i] + key[i % len(key)]) & 255
            state[i], state[j] = state[j], state[i]
        self._state, self._i, self._j = state, 0, 0

    def update(self, data: bytes) -> bytes:
        """The next bytes of the stream."""
        state, i, j = self._state, self._i, self._j
        done = bytearray(data)
        for at, byte in enumerate(data):
            i = (i + 1) & 255
            x = state[i]
            j = (j + x) & 255
            state[i] = y = state[j]
            state[j] = x
            done[at] = byte ^ state[(x + y) & 255]
        self._i, self._j = i, j
        return bytes(done)


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()


def parse_challenge(challenge: bytes) -> dict[str, str]:
    """The directives of a challenge; a repeated one has its values joined by commas.

    Raises:
        AuthenticationError: it is malformed.
    """
    try:
        text = challenge.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise AuthenticationError("the server's DIGEST-MD5 challenge is not text") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None:
            raise AuthenticationError(f"the server's DIGEST-MD5 challenge is malformed: {text!r}")
        name = match[1].lower()
        value = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        found[name] = f"{found[name]},{value}" if name in found else value
        at = match.end()
    return found


@dataclasses.dataclass(frozen=True)
class _Session:
    """What a finished exchange leaves: the secret for the keys, and the choices made."""

    secret: bytes
    qop: str
    expected: bytes
    max_bytes: int


class DigestMd5:
    """One authentication with a token."""

    name = "DIGEST-MD5"

    def __init__(
        self,
        identifier: bytes,
        password: bytes,
        uri: str,
        qops: tuple[str, ...] = QOPS,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """``uri`` is the service's protocol and server id as it named them, ``qops`` what is
        accepted, the most wanted first."""
        self._user = base64.b64encode(identifier).decode()
        self._password = base64.b64encode(password).decode()
        self._uri = uri
        self._qops = qops
        self._random = random
        self._session: _Session | None = None
        self._proved = False

    def initial(self) -> bytes:
        """Nothing: the server begins."""
        return b""

    def evaluate(self, challenge: bytes) -> bytes:
        """The response to the server's challenge.

        Raises:
            AuthenticationError: it is malformed, or offers no protection that is accepted here.
        """
        if self._session is not None:
            self.finish(challenge)
            return b""
        said = parse_challenge(challenge)
        if not said.get("nonce"):
            raise AuthenticationError("the server's DIGEST-MD5 challenge has no nonce")
        if said.get("algorithm", "md5-sess").lower() != "md5-sess":
            raise AuthenticationError(f"the server wants the algorithm {said['algorithm']!r}")
        qop = self._choose_qop(said)
        if qop == "auth-conf":
            _check_cipher(said)
        realm = said.get("realm", "")
        nonce, cnonce = said["nonce"], base64.b64encode(self._random(18)).decode()
        secret = _md5(
            _md5(f"{self._user}:{realm}:{self._password}".encode()) + f":{nonce}:{cnonce}".encode()
        )
        tail = ":" + "0" * 32 if qop != "auth" else ""

        def proof(method: str) -> bytes:
            rest = _hex(f"{method}:{self._uri}{tail}".encode())
            numbers = f":{nonce}:00000001:{cnonce}:{qop}:".encode()
            return _hex(secret.hex().encode() + numbers + rest)

        try:
            max_bytes = int(said.get("maxbuf", "65536"))
        except ValueError:
            raise AuthenticationError(f"the server's maxbuf is {said['maxbuf']!r}") from None
        if not 1024 <= max_bytes < 1 << 24:
            raise AuthenticationError(f"the server's maxbuf is {max_bytes}")
        self._session = _Session(secret, qop, proof(""), max_bytes)
        answer = [
            "charset=utf-8",
            f'username="{self._user}"',
            f'realm="{_quoted(realm)}"',
            f'nonce="{_quoted(nonce)}"',
            "nc=00000001",
            f'cnonce="{cnonce}"',
            f'digest-uri="{_quoted(self._uri)}"',
            "maxbuf=65536",
            f"response={proof('AUTHENTICATE').decode()}",
            f"qop={qop}",
        ]
        if qop == "auth-conf":
            answer.append(f'cipher="{_CIPHER}"')
        return ",".join(answer).encode()

    def finish(self, token: bytes) -> None:
        """Check the server's own proof.

        Raises:
            AuthenticationError: it does not know the password.
        """
        said = parse_challenge(token).get("rspauth", "").encode()
        if self._proved and not token:
            return  # it came with a challenge before
        if self._session is None or not hmac.compare_digest(said, self._session.expected):
            raise AuthenticationError(
                "the server did not prove that it knows the token's password; is the address right?"
            )
        self._proved = True

    @property
    def layer(self) -> Layer | None:
        """What protects the connection from now on."""
        session = self._session
        if session is None or session.qop == "auth":
            return None
        return DigestLayer(session.secret, session.qop == "auth-conf", session.max_bytes)

    def _choose_qop(self, said: dict[str, str]) -> str:
        offered = [q.strip().lower() for q in said.get("qop", "auth").split(",")]
        for qop in self._qops:
            if qop in offered:
                return qop
        raise AuthenticationError(
            f"the server offers the protection {', '.join(offered)}, accepted here is"
            f" {', '.join(self._qops)}; compare hadoop.rpc.protection of both"
        )


def _check_cipher(said: dict[str, str]) -> None:
    offered = [c.strip().lower() for c in said.get("cipher", "").split(",")]
    if _CIPHER not in offered:
        raise AuthenticationError(
            f"the server offers the ciphers {', '.join(offered)}; known here is {_CIPHER}"
        )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class DigestLayer:
    """Signs, and encrypts if told, what goes over a connection (RFC 2831, 2.3-2.4).

    ``server`` turns the direction around, for tests.
    """

    def __init__(
        self, secret: bytes, encrypt: bool, max_bytes: int = 65536, server: bool = False
    ) -> None:
        ours, theirs = "client-to-server", "server-to-client"
        if server:
            ours, theirs = theirs, ours
        self._send_key = _integrity_key(secret, ours)
        self._receive_key = _integrity_key(secret, theirs)
        self._encrypt = self._decrypt = None
        if encrypt:
            self._encrypt = Rc4(_sealing_key(secret, ours))
            self._decrypt = Rc4(_sealing_key(secret, theirs))
        self._sent = self._received = 0
        self.max_plain_bytes: int = max_bytes - _OVERHEAD

    def wrap(self, data: bytes) -> bytes:
        """A piece to send, protected."""
        number = struct.pack(">I", self._sent)
        self._sent = (self._sent + 1) & 0xFFFFFFFF
        mac = hmac.digest(self._send_key, number + data, "md5")[:10]
        if self._encrypt is None:
            return data + mac + b"\0\1" + number
        return self._encrypt.update(data + mac) + b"\0\1" + number

    def unwrap(self, data: bytes) -> bytes:
        """A piece received.

        Raises:
            AuthenticationError: its signature or its number is wrong.
        """
        if len(data) < 16 or data[-6:-4] != b"\0\1":
            raise AuthenticationError("a protected piece from the server is malformed")
        number, body = data[-4:], data[:-6]
        if self._decrypt is not None:
            body = self._decrypt.update(body)
        plain, mac = body[:-10], body[-10:]
        expected = hmac.digest(self._receive_key, number + plain, "md5")[:10]
        if not hmac.compare_digest(mac, expected):
            raise AuthenticationError("a protected piece has a wrong signature")
        if struct.unpack(">I", number)[0] != self._received:
            raise AuthenticationError("a protected piece came twice, or one before it is missing")
        self._received = (self._received + 1) & 0xFFFFFFFF
        return plain


def _integrity_key(secret: bytes, direction: str) -> bytes:
    return _md5(secret + f"Digest session key to {direction} signing key magic constant".encode())


def _sealing_key(secret: bytes, direction: str) -> bytes:
    return _md5(secret + f"Digest H(A1) to {direction} sealing key magic constant".encode())
