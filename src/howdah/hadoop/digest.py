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

_CIPHERS = ("rc4", "3des")  # of those a Java server offers; the weaker ones are refused
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


class _Cipher(Protocol):
    def update(self, data: bytes) -> bytes: ...


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Session:
    """What a finished exchange leaves: the secret for the keys, and the choices made."""

    secret: bytes
    qop: str
    cipher: str
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
        cipher = _choose_cipher(said) if qop == "auth-conf" else ""
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
        self._session = _Session(secret, qop, cipher, proof(""), max_bytes)
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
        if cipher:
            answer.append(f'cipher="{cipher}"')
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
        return DigestLayer(session.secret, session.cipher, session.max_bytes)

    def _choose_qop(self, said: dict[str, str]) -> str:
        offered = [q.strip().lower() for q in said.get("qop", "auth").split(",")]
        for qop in self._qops:
            if qop in offered:
                return qop
        raise AuthenticationError(
            f"the server offers the protection {', '.join(offered)}, accepted here is"
            f" {', '.join(self._qops)}; compare hadoop.rpc.protection of both"
        )


def _choose_cipher(said: dict[str, str]) -> str:
    offered = [c.strip().lower() for c in said.get("cipher", "").split(",")]
    for cipher in _CIPHERS:
        if cipher in offered:
            return cipher
    raise AuthenticationError(
        f"the server offers the ciphers {', '.join(offered)}; known here are {', '.join(_CIPHERS)}"
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class DigestLayer:
    """Signs, and encrypts if a cipher is given, what goes over a connection (RFC 2831, 2.3-2.4).

    ``server`` turns the direction around, for tests.
    """

    def __init__(
        self, secret: bytes, cipher: str, max_bytes: int = 65536, server: bool = False
    ) -> None:
        ours, theirs = "client-to-server", "server-to-client"
        if server:
            ours, theirs = theirs, ours
        self._send_key = _integrity_key(secret, ours)
        self._receive_key = _integrity_key(secret, theirs)
        self._block = 8 if cipher == "3des" else 1
        self._encrypt = self._decrypt = None
        if cipher:
            self._encrypt = _cipher(cipher, _sealing_key(secret, ours), encrypt=True)
            self._decrypt = _cipher(cipher, _sealing_key(secret, theirs), encrypt=False)
        self._sent = self._received = 0
        self.max_plain_bytes = max_bytes - _OVERHEAD

    def wrap(self, data: bytes) -> bytes:
        """A piece to send, protected."""
        number = struct.pack(">I", self._sent)
        self._sent = (self._sent + 1) & 0xFFFFFFFF
        mac = hmac.digest(self._send_key, number + data, "md5")[:10]
        if self._encrypt is None:
            return data + mac + b"\0\1" + number
        padding = b""
        if self._block > 1:
            count = self._block - (len(data) + len(mac)) % self._block
            padding = bytes([count]) * count
        return self._encrypt.update(data + padding + mac) + b"\0\1" + number

    def unwrap(self, data: bytes) -> bytes:
        """A piece received.

        Raises:
            AuthenticationError: its signature or its number is wrong.
        """
        if len(data) < 16 or data[-6:-4] != b"\0\1":
            raise AuthenticationError("a protected piece from the server is malformed")
        number, body = data[-4:], data[:-6]
        if self._decrypt is not None:
            if len(body) % self._block:
                raise AuthenticationError("an encrypted piece is no whole number of blocks")
            body = self._decrypt.update(body)
        plain, mac = body[:-10], body[-10:]
        if self._block > 1:
            if not plain or not 1 <= plain[-1] <= self._block:
                raise AuthenticationError("an encrypted piece has a wrong padding")
            plain = plain[: -plain[-1]]
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


def _cipher(name: str, key: bytes, encrypt: bool) -> _Cipher:
    # Both are outdated; they are what the mechanism has. Imported late: few clusters encrypt.
    from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4, TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

    if name == "rc4":
        made = Cipher(ARC4(key), mode=None)
    else:
        first, second = _des_key(key[:7]), _des_key(key[7:14])
        made = Cipher(TripleDES(first + second + first), modes.CBC(key[8:]))
    return made.encryptor() if encrypt else made.decryptor()


def _des_key(seven: bytes) -> bytes:
    """Seven bytes spread over eight, the lowest bit of each free (for parity)."""
    bits = int.from_bytes(seven, "big")
    return bytes((bits >> (49 - 7 * i) & 0x7F) << 1 for i in range(8))
