"""What delegation tokens say in their identifiers: whose they are, and until when at most."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from howdah.hadoop import frames
from howdah.hadoop.errors import ProtocolError
from howdah.hadoop.security.credentials import (
    HDFS_TOKEN,
    RM_TOKEN,
    Credentials,
    CredentialsError,
    Token,
    WritableReader,
)

_KINDS = (HDFS_TOKEN, RM_TOKEN)


@dataclasses.dataclass(frozen=True)
class Identifier:
    """``AbstractDelegationTokenIdentifier``.

    Attributes:
        owner: the user, by principal or short name.
        renewer: who may prolong it, by short name.
        real_user: who got it for the owner; empty if the owner did.
        ends_at: no renewal goes beyond this time.
    """

    owner: str
    renewer: str
    real_user: str
    ends_at: datetime


def identifier(token: Token) -> Identifier:
    """What a delegation token's identifier says.

    Raises:
        CredentialsError: it is of another kind, or malformed.
    """
    if token.kind == HDFS_TOKEN:
        return _writable(token.identifier)
    if token.kind == RM_TOKEN:
        return _protobuf(token.identifier)
    raise CredentialsError(f"{token.kind} is no kind of token whose content is known")


def owner(credentials: Credentials) -> str:
    """Whose the tokens are; empty where none says it."""
    for kind in _KINDS:
        for token in credentials.of_kind(kind):
            return identifier(token).owner
    return ""


def _writable(data: bytes) -> Identifier:
    reader = WritableReader(data[1:])
    owner, renewer, real_user = reader.text(), reader.text(), reader.text()
    reader.number()  # issued
    return Identifier(owner, renewer, real_user, _time(reader.number()))


def _protobuf(data: bytes) -> Identifier:
    """``YARNDelegationTokenIdentifierProto``: texts 1-3, the latest time 5."""
    texts, ends_at, at = {1: "", 2: "", 3: ""}, 0, 0
    try:
        while at < len(data):
            key, at = frames.read_varint(data, at)
            value, at = frames.read_varint(data, at)
            if key & 7 == 2:
                texts[key >> 3], at = data[at : at + value].decode(), at + value
            elif key >> 3 == 5:
                ends_at = value
    except (ProtocolError, UnicodeDecodeError) as error:
        raise CredentialsError(f"a token's identifier is malformed: {error}") from None
    return Identifier(texts[1], texts[2], texts[3], _time(ends_at))


def _time(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise CredentialsError(f"a token ends at {milliseconds} ms, which is no time") from None
