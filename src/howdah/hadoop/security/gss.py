"""The system's Kerberos library (``libgssapi_krb5``, MIT), through ctypes.

No package and no compiler is needed where Howdah runs, and hdfs-native uses the same library, so that
both have the same tickets. Sources: RFC 2744 (C bindings), MIT's ``gssapi_ext.h`` (credential stores).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from typing import Any, NamedTuple

_LIBRARIES = (
    ("libgssapi_krb5.dylib", "/opt/homebrew/opt/krb5/lib/libgssapi_krb5.dylib")
    if sys.platform == "darwin"
    else ("libgssapi_krb5.so.2",)
)
INSTALL = (
    "install the system's Kerberos library on this machine (Debian, Ubuntu: apt-get install"
    " libgssapi-krb5-2; RHEL, Fedora: dnf install krb5-libs; macOS: brew install krb5)"
)

_MUTUAL, _REPLAY, _SEQUENCE, _CONFIDENTIAL, _INTEGRITY = 2, 4, 8, 16, 32
_CONTINUE = 1
_ERROR_BITS = 0xFFFF0000
_OUT_OF_ORDER = 2 | 4 | 8 | 16  # duplicate, old, out of sequence, gap
_EXPIRED = 11 << 16
_INITIATE = 1
_MAJOR_TEXT, _MINOR_TEXT = 1, 2
_FOREVER = 0xFFFFFFFF

_KRB5 = bytes.fromhex("2a864886f712010202")
_NT_HOSTBASED_SERVICE = bytes.fromhex("2a864886f71201020104")
_NT_USER_NAME = bytes.fromhex("2a864886f71201020101")
_NT_PRINCIPAL = bytes.fromhex("2a864886f71201020201")


class GssError(Exception):
    """A call was refused.

    Attributes:
        major: what GSSAPI says of it, without its informative bits.
        code: Kerberos' own error number (``krb5_err.et``), as a signed number.
    """

    def __init__(self, text: str, major: int = 0, minor: int = 0) -> None:
        super().__init__(text)
        self.major: int = major & _ERROR_BITS
        self.code: int = minor - (1 << 32) if minor & 0x80000000 else minor


class Inquiry(NamedTuple):
    """What `gss_inquire_cred` says of a credential."""

    principal: str
    lifetime_s: float
    """Until its ticket expires, 0 (and no principal) if it has; infinite where there is no such time."""


class _Buffer(ctypes.Structure):
    _fields_ = [("length", c_size_t), ("value", c_void_p)]


class _Oid(ctypes.Structure):
    _fields_ = [("length", c_uint32), ("elements", c_void_p)]


class _OidSet(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("elements", POINTER(_Oid))]


class _Pair(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class _Store(ctypes.Structure):
    _fields_ = [("count", c_uint32), ("elements", POINTER(_Pair))]


class Credential:
    """The tickets of one principal: of a cache, or got with a keytab as often as needed."""

    def __init__(self, principal: str = "", store: Mapping[str, str] | None = None) -> None:
        """Without arguments: what ``KRB5CCNAME`` (else the system's default) holds.

        ``store`` is MIT's: ``ccache`` and ``client_keytab``, each a name as ``KRB5CCNAME`` has it.

        Raises:
            GssError: there is none, or it has expired, or the KDC does not give it.
        """
        self._library = _library()
        self._made_of = (principal, store)
        self.handle: c_void_p = c_void_p()
        minor = c_uint32()
        name = _import(principal, _NT_PRINCIPAL) if principal else c_void_p()
        pairs = [_Pair(key.encode(), value.encode()) for key, value in (store or {}).items()]
        listed = _Store(len(pairs), (_Pair * len(pairs))(*pairs))
        mechanisms = _OidSet(1, ctypes.pointer(_oid(_KRB5)))
        try:
            _check(
                self._library.gss_acquire_cred_from(
                    byref(minor), name, c_uint32(_FOREVER), byref(mechanisms), c_int(_INITIATE),
                    byref(listed) if pairs else None, byref(self.handle), None, None,
                ),
                minor,
            )  # fmt: skip
        finally:
            _release_name(name)

    def fresh(self) -> Credential:
        """The same with a ticket that is good: the library gets one with a keytab only when a credential is
        made, at the latest when the last one has ended.

        Raises:
            GssError: as for the constructor.
        """
        return Credential(*self._made_of) if self._made_of[1] else self

    def inquire(self) -> Inquiry:
        """Whose it is, and for how long. A ticket of a keytab is got here, where there is none yet.

        Raises:
            GssError: as for the constructor, but for a ticket that has expired.
        """
        minor, name, lifetime = c_uint32(), c_void_p(), c_uint32()
        major = self._library.gss_inquire_cred(
            byref(minor), self.handle, byref(name), byref(lifetime), None, None
        )
        if major & _ERROR_BITS == _EXPIRED:
            return Inquiry("", 0.0)  # nor does it tell whose it was
        _check(major, minor)
        try:
            principal = _display(name)
        finally:
            _release_name(name)
        endless = lifetime.value == _FOREVER
        return Inquiry(principal, float("inf") if endless else float(lifetime.value))

    def __del__(self) -> None:
        if self.handle:
            self._library.gss_release_cred(byref(c_uint32()), byref(self.handle))


class GssContext:
    """One authentication to a server, as its client."""

    def __init__(self, service: str, host: str, realm: str, credential: Credential | None) -> None:
        """The server's principal is ``service/host@realm``; without a realm the library finds it.

        Raises:
            GssError: that is no name, or there is no ticket.
        """
        self._library = _library()
        self._handle = c_void_p()
        self._name = c_void_p()
        self._credential = credential.fresh() if credential is not None else None
        self._name = (
            _import(f"{service}/{host}@{realm}", _NT_PRINCIPAL)
            if realm
            else _import(f"{service}@{host}", _NT_HOSTBASED_SERVICE)
        )
        self.complete: bool = False

    def step(self, token: bytes) -> bytes:
        """The next token for the server; the first comes after an empty one.

        Raises:
            GssError: there is no ticket, or the server is not the one that is meant.
        """
        minor, given, made = c_uint32(), _buffer(token), _Buffer()
        # Sequence: a layer must notice pieces that are lost or repeated (RFC 4752, 3.1).
        flags = _MUTUAL | _REPLAY | _SEQUENCE | _CONFIDENTIAL | _INTEGRITY
        major = self._library.gss_init_sec_context(
            byref(minor),
            self._credential.handle if self._credential is not None else None,
            byref(self._handle), self._name, byref(_oid(_KRB5)), c_uint32(flags), c_uint32(0),
            None, byref(given), None, byref(made), None, None,
        )  # fmt: skip
        answer = _take(made)
        _check(major, minor)
        self.complete = not major & _CONTINUE
        return answer

    def wrap(self, data: bytes, encrypt: bool) -> bytes:
        """``data`` signed, and encrypted if told."""
        minor, given, made, done = c_uint32(), _buffer(data), _Buffer(), c_int()
        major = self._library.gss_wrap(
            byref(minor), self._handle, c_int(encrypt), c_uint32(0), byref(given), byref(done),
            byref(made),
        )  # fmt: skip
        wrapped = _take(made)
        _check(major, minor)
        if encrypt and not done.value:
            raise GssError("the Kerberos library does not encrypt")
        return wrapped

    def unwrap(self, data: bytes) -> tuple[bytes, bool]:
        """The reverse of `wrap`, and whether it was encrypted.

        Raises:
            GssError: it is not what the server sent, or one before it is missing.
        """
        minor, given, made, encrypted = c_uint32(), _buffer(data), _Buffer(), c_int()
        major = self._library.gss_unwrap(
            byref(minor), self._handle, byref(given), byref(made), byref(encrypted), None
        )
        plain = _take(made)
        _check(major, minor)
        if major & _OUT_OF_ORDER:
            raise GssError("a protected piece came twice, or one before it is missing")
        return plain, bool(encrypted.value)

    def __del__(self) -> None:
        if self._handle:
            self._library.gss_delete_sec_context(byref(c_uint32()), byref(self._handle), None)
        _release_name(self._name)


def default_realm() -> str:
    """The realm of names without one, by ``krb5.conf``; empty if there is none.

    Raises:
        GssError: the library is missing.
    """
    library, minor, made = _library(), c_uint32(), c_void_p()
    name = _import("any", _NT_USER_NAME)
    try:
        _check(
            library.gss_canonicalize_name(byref(minor), name, byref(_oid(_KRB5)), byref(made)),
            minor,
        )
        return _display(made).rpartition("@")[2]
    except GssError:
        return ""
    finally:
        _release_name(name)
        _release_name(made)


@functools.cache
def _library() -> Any:
    """Raises GssError if it is not on this machine."""
    problem: OSError | None = None
    for name in _LIBRARIES:
        try:
            found = ctypes.CDLL(name)
            break
        except OSError as error:
            problem = problem or error
    else:
        raise GssError(f"the Kerberos library is missing ({problem}); {INSTALL}")
    for call in (
        "acquire_cred_from", "canonicalize_name", "delete_sec_context", "display_name",
        "display_status", "import_name", "init_sec_context", "inquire_cred", "release_buffer",
        "release_cred", "release_name", "unwrap", "wrap",
    ):  # fmt: skip
        getattr(found, f"gss_{call}").restype = c_uint32
    return found


@functools.cache
def _oid(data: bytes) -> _Oid:
    return _Oid(len(data), ctypes.cast(ctypes.c_char_p(data), c_void_p))


def _buffer(data: bytes) -> _Buffer:
    # A view of the caller's bytes, which live as long as the call.
    return _Buffer(len(data), ctypes.cast(ctypes.c_char_p(data), c_void_p))


def _take(buffer: _Buffer) -> bytes:
    """The bytes of a buffer the library made; it is released."""
    data = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
    _library().gss_release_buffer(byref(c_uint32()), byref(buffer))
    return data


def _import(text: str, kind: bytes) -> c_void_p:
    minor, name, data = c_uint32(), c_void_p(), text.encode()
    given = _buffer(data)
    _check(
        _library().gss_import_name(byref(minor), byref(given), byref(_oid(kind)), byref(name)),
        minor,
    )
    return name


def _display(name: c_void_p) -> str:
    minor, made = c_uint32(), _Buffer()
    _check(_library().gss_display_name(byref(minor), name, byref(made), None), minor)
    return _take(made).decode(errors="replace")


def _release_name(name: c_void_p) -> None:
    if name:
        _library().gss_release_name(byref(c_uint32()), byref(name))


def _check(major: int, minor: c_uint32) -> None:
    if not major & _ERROR_BITS:
        return
    texts = [_status(minor.value, _MINOR_TEXT)] if minor.value else []
    if not any(texts):
        texts = [_status(major, _MAJOR_TEXT)]
    raise GssError("; ".join(filter(None, texts)), major, minor.value)


def _status(value: int, kind: int) -> str:
    minor, more, made = c_uint32(), c_uint32(), _Buffer()
    texts: list[str] = []
    while True:
        major = _library().gss_display_status(
            byref(minor), c_uint32(value), c_int(kind), byref(_oid(_KRB5)), byref(more), byref(made)
        )
        if major & _ERROR_BITS:
            break
        texts.append(_take(made).decode(errors="replace"))
        if not more.value:
            break
    return "; ".join(texts)
