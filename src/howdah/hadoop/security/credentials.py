"""Credential files: tokens and secret keys, as ``HADOOP_TOKEN_FILE_LOCATION`` names one.

A file is ``HDTS``, a format byte and the content: format 0 is Hadoop's Writable serialisation,
format 1 a protobuf message after its length. Both are read and written. Source:
``org.apache.hadoop.security.Credentials``.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from google.protobuf.message import DecodeError

from howdah.hadoop import frames
from howdah.hadoop.errors import HadoopError, ProtocolError
from howdah.hadoop.protos import common

MAGIC = b"HDTS"
TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"
"""Environment variable with the path of such a file."""
AMRM_TOKEN = "YARN_AM_RM_TOKEN"
NM_TOKEN = "NMToken"
HDFS_TOKEN = "HDFS_DELEGATION_TOKEN"
RM_TOKEN = "RM_DELEGATION_TOKEN"


class CredentialsError(HadoopError, ValueError):
    """Bytes that are no credential file."""


class Format(enum.IntEnum):
    """How the content is serialised."""

    WRITABLE = 0
    PROTOBUF = 1


@dataclasses.dataclass(frozen=True)
class Token:
    """A token: who it is for (identifier) and what proves it (password)."""

    identifier: bytes
    password: bytes = dataclasses.field(repr=False)
    kind: str
    service: str = ""

    @classmethod
    def from_proto(cls, proto: common.TokenProto) -> Token:
        """From an answer of a server."""
        return cls(proto.identifier, proto.password, proto.kind, proto.service)

    def to_proto(self) -> common.TokenProto:
        """For a request to a server."""
        return common.TokenProto(
            identifier=self.identifier,
            password=self.password,
            kind=self.kind,
            service=self.service,
        )

    @classmethod
    def from_url_text(cls, text: str) -> Token:
        """From what ``Token.encodeToUrlString`` makes, as Hadoop's web services hand tokens out.

        Raises:
            CredentialsError: the text is something else.
        """
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError as error:
            raise CredentialsError(f"not a token's URL text: {error}") from None
        return WritableReader(data).token()


@dataclasses.dataclass(frozen=True)
class Credentials:
    """Tokens by alias and secret keys by name."""

    tokens: Mapping[str, Token] = dataclasses.field(default_factory=dict[str, Token])
    secrets: Mapping[str, bytes] = dataclasses.field(default_factory=dict[str, bytes], repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", MappingProxyType(dict(self.tokens)))
        object.__setattr__(self, "secrets", MappingProxyType(dict(self.secrets)))

    @classmethod
    def read(cls, source: str | Path | bytes) -> Credentials:
        """From a file, or from its bytes, in either format.

        Raises:
            CredentialsError: it is no credential file.
            OSError: the file can't be read.
        """
        if isinstance(source, bytes):
            return _parse(source)
        try:
            return _parse(Path(source).read_bytes())
        except CredentialsError as error:
            raise CredentialsError(f"{source}: {error}") from None

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Credentials:
        """From the file that ``HADOOP_TOKEN_FILE_LOCATION`` names; none if it names none."""
        location = (os.environ if env is None else env).get(TOKEN_FILE)
        return cls.read(location) if location else cls()

    def of_kind(self, kind: str) -> tuple[Token, ...]:
        """The tokens of one kind, such as `AMRM_TOKEN`."""
        return tuple(token for token in self.tokens.values() if token.kind == kind)

    def merged(self, other: Credentials) -> Credentials:
        """Both; where a name is in both, the other's."""
        return Credentials({**self.tokens, **other.tokens}, {**self.secrets, **other.secrets})

    def to_bytes(self, format: Format = Format.WRITABLE) -> bytes:
        """As a file holds it; every Hadoop reads the Writable format, from 3.0 on both."""
        body = self._writable() if format is Format.WRITABLE else self._protobuf()
        return MAGIC + bytes([format]) + body

    def write(self, path: str | Path, format: Format = Format.WRITABLE) -> None:
        """To a file that only its owner can read; an existing file is replaced.

        Raises:
            OSError: it can't be written.
        """
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.to_bytes(format))
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _writable(self) -> bytes:
        parts = [_vint(len(self.tokens))]
        for alias, token in self.tokens.items():
            parts += (
                _sized(alias.encode()),
                _sized(token.identifier),
                _sized(token.password),
                _sized(token.kind.encode()),
                _sized(token.service.encode()),
            )
        parts.append(_vint(len(self.secrets)))
        for name, secret in self.secrets.items():
            parts += (_sized(name.encode()), _sized(secret))
        return b"".join(parts)

    def _protobuf(self) -> bytes:
        proto = common.CredentialsProto(
            tokens=[
                common.CredentialsKVProto(alias=alias, token=token.to_proto())
                for alias, token in self.tokens.items()
            ],
            secrets=[
                common.CredentialsKVProto(alias=name, secret=secret)
                for name, secret in self.secrets.items()
            ],
        ).SerializeToString()
        return frames.varint(len(proto)) + proto


def _parse(data: bytes) -> Credentials:
    if data[:4] != MAGIC or len(data) < 5:
        raise CredentialsError("it does not begin with HDTS, as a credential file does")
    if data[4] == Format.WRITABLE:
        return WritableReader(data[5:]).credentials()
    if data[4] != Format.PROTOBUF:
        raise CredentialsError(f"its format is {data[4]}; known are 0 and 1")
    try:
        length, at = frames.read_varint(data, 5)
        if at + length > len(data):
            raise CredentialsError("it ends too early")
        proto = common.CredentialsProto.FromString(data[at : at + length])
    except (DecodeError, ProtocolError) as error:
        raise CredentialsError(f"its content is malformed: {error}") from None
    return Credentials(
        {item.alias: Token.from_proto(item.token) for item in proto.tokens},
        {item.alias: item.secret for item in proto.secrets},
    )


def _vint(value: int) -> bytes:
    """A number that is not negative, as ``WritableUtils.writeVInt`` writes it."""
    if value <= 127:
        return bytes([value])
    size = (value.bit_length() + 7) // 8
    return bytes([256 - 112 - size]) + value.to_bytes(size, "big")


def _sized(data: bytes) -> bytes:
    return _vint(len(data)) + data


class WritableReader:
    """Reads the Writable serialisation."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def credentials(self) -> Credentials:
        tokens: dict[str, Token] = {}
        for _ in range(self.number()):
            alias = self.text()
            tokens[alias] = self.token()
        secrets: dict[str, bytes] = {}
        for _ in range(self.number()):
            name = self.text()
            secrets[name] = self._sized()
        return Credentials(tokens, secrets)

    def token(self) -> Token:
        identifier, password = self._sized(), self._sized()
        return Token(identifier, password, self.text(), self.text())

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise CredentialsError("it ends too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        first = int.from_bytes(self._take(1), "big", signed=True)
        if first >= 0:
            return first
        if not -120 <= first <= -113:
            raise CredentialsError("it holds a negative length")
        return int.from_bytes(self._take(-112 - first), "big")

    def _sized(self) -> bytes:
        return self._take(self.number())

    def text(self) -> str:
        try:
            return self._sized().decode()
        except UnicodeDecodeError:
            raise CredentialsError("a name in it is no UTF-8 text") from None
