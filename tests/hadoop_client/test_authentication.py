"""Ways to authenticate: which is chosen, DIGEST-MD5, and what protects the connection then."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import AuthenticationError, ConfigurationError
from howdah.hadoop.protos import common
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.digest import DigestLayer, DigestMd5, Rc4, parse_challenge
from howdah.hadoop.security.identity import Identity
from howdah.hadoop.security.sasl import check_simple, choose, server_principal

CHALLENGE = (
    b'realm="default",nonce="abc+/=",qop="auth,auth-int,auth-conf",charset=utf-8,'
    b'cipher="3des,rc4,des,rc4-56,rc4-40",algorithm=md5-sess,maxbuf=65536'
)


def exchange(challenge: bytes = CHALLENGE, *qops: str) -> tuple[DigestMd5, dict[str, str]]:
    digest = DigestMd5(b"id", b"password", "rm/default", qops or ("auth",))
    return digest, parse_challenge(digest.evaluate(challenge))


def proof(said: dict[str, str], password: bytes, method: str) -> str:
    """What RFC 2831 wants, written down a second time."""
    user, word = base64.b64encode(b"id"), base64.b64encode(password)
    secret = hashlib.md5(user + b":default:" + word).digest()
    a1 = hashlib.md5(secret + f":{said['nonce']}:{said['cnonce']}".encode()).hexdigest()
    tail = "" if said["qop"] == "auth" else ":" + "0" * 32
    a2 = hashlib.md5(f"{method}:rm/default{tail}".encode()).hexdigest()
    text = f"{a1}:{said['nonce']}:00000001:{said['cnonce']}:{said['qop']}:{a2}"
    return hashlib.md5(text.encode()).hexdigest()


@pytest.mark.parametrize("qop", ["auth", "auth-int", "auth-conf"])
def test_the_response_proves_the_password_and_the_server_must_too(qop: str) -> None:
    digest, said = exchange(CHALLENGE, qop)
    assert said["response"] == proof(said, b"password", "AUTHENTICATE")
    assert said["qop"] == qop
    with pytest.raises(AuthenticationError, match="prove"):
        digest.finish(b"rspauth=" + proof(said, b"wrong", "").encode())
    digest.finish(b"rspauth=" + proof(said, b"password", "").encode())
    assert (digest.layer is None) == (qop == "auth")


def test_the_most_wanted_protection_that_is_offered_is_taken() -> None:
    assert exchange(CHALLENGE, "auth-conf", "auth")[1]["qop"] == "auth-conf"
    weak = CHALLENGE.replace(b"auth,auth-int,auth-conf", b"auth")
    assert exchange(weak, "auth-conf", "auth")[1]["qop"] == "auth"
    with pytest.raises(AuthenticationError, match="hadoop.rpc.protection"):
        exchange(weak, "auth-conf")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nonsense",
        b'realm="default"',
        b"\xff\xfe",
        CHALLENGE.replace(b"md5-sess", b"sha-256"),
        CHALLENGE.replace(b"maxbuf=65536", b"maxbuf=many"),
        CHALLENGE.replace(b"maxbuf=65536", b"maxbuf=1"),
        CHALLENGE.replace(b"3des,rc4,des,rc4-56,rc4-40", b"des"),
    ],
)
def test_a_challenge_that_can_not_be_met_is_refused(challenge: bytes) -> None:
    with pytest.raises(AuthenticationError):
        exchange(challenge, "auth-conf")


@given(st.binary(max_size=200))
def test_any_challenge_is_met_or_refused_in_our_words(challenge: bytes) -> None:
    try:
        exchange(challenge)
    except AuthenticationError:
        pass


def kerberos(principal: str = "", pattern: str = "") -> Identity:
    return Identity("a", kerberos=True, server_principal=principal, server_pattern=pattern)


def test_a_server_with_kerberos_must_be_the_one_that_is_configured() -> None:
    def accept(principal: str, claimed: str, *hosts: str, pattern: str = "") -> str:
        return str(server_principal(kerberos(principal, pattern), claimed, lambda: hosts))

    assert accept("rm/_HOST@X", "rm/host.example", "HOST.example") == "rm/host.example@X"
    # An alias or an address in the configuration: its canonical name counts too, as for Java.
    assert accept("rm/_HOST@X", "rm/real", "10.0.0.1", "real") == "rm/real@X"
    assert accept("rm/fixed@X", "rm/fixed", "other") == "rm/fixed@X"
    assert accept("rm/_HOST@X", "rm/far", "near", pattern="rm/*@Y") == "rm/far@Y"
    assert accept("rm/_HOST@X", "rm/far", "near", pattern="rm/f*@*") == "rm/far@X"
    for principal, claimed, pattern in (
        ("rm/_HOST@X", "rm/evil", ""),
        ("rm/_HOST@X", "nn/host", ""),
        ("rm/_HOST@X", "nn/host", "rm/*@X"),
    ):
        with pytest.raises(AuthenticationError, match=claimed):
            accept(principal, claimed, "host", pattern=pattern)
    with pytest.raises(AuthenticationError, match="principal"):
        accept("", "rm/evil", "evil")


def offers(*methods: str) -> list[common.RpcSaslProto.SaslAuth]:
    mechanisms = {"TOKEN": "DIGEST-MD5", "KERBEROS": "GSSAPI", "SIMPLE": ""}
    auth = common.RpcSaslProto.SaslAuth
    return [auth(method=m, mechanism=mechanisms[m], protocol="p", serverId="s") for m in methods]


def test_the_first_way_to_authenticate_that_is_usable_is_chosen() -> None:
    token = Token(b"i", b"p", "kind")
    both = Identity("alice", token=token, kerberos=True, allow_simple=False)
    assert choose(both, offers("TOKEN", "KERBEROS")).method == "TOKEN"
    assert choose(both, offers("KERBEROS", "TOKEN")).method == "KERBEROS"
    assert choose(Identity("alice"), offers("TOKEN", "SIMPLE")).method == "SIMPLE"
    with pytest.raises(
        AuthenticationError, match="takes SIMPLE; here there is a token and Kerberos"
    ):
        choose(both, offers("SIMPLE"))
    with pytest.raises(AuthenticationError, match="takes nothing"):
        choose(both, [])


def test_a_server_without_security_is_accepted_only_where_that_is_meant() -> None:
    check_simple(Identity("alice"))
    with pytest.raises(AuthenticationError, match="fallback-to-simple"):
        check_simple(Identity("alice", kerberos=True, allow_simple=False))


def test_a_secure_configuration_wants_kerberos_and_its_protection() -> None:
    secure = Configuration(
        {
            "hadoop.security.authentication": "kerberos",
            "hadoop.rpc.protection": "privacy,integrity",
            "yarn.resourcemanager.principal": "rm/_HOST@X",
        }
    )
    found = Identity.from_configuration(secure, "alice", None, "yarn.resourcemanager.principal")
    assert found.kerberos and found.negotiates and not found.allow_simple
    assert found.qops == ("auth-conf", "auth-int")
    assert found.server_principal == "rm/_HOST@X"
    wrong = secure.with_values({"hadoop.rpc.protection": "secret"})
    with pytest.raises(ConfigurationError, match="privacy"):
        Identity.from_configuration(wrong, "alice")
    # Without Kerberos only tokens are protected, as much as the server wants.
    plain = Identity.from_configuration(Configuration({}), "alice")
    assert plain.qops == ("auth", "auth-int", "auth-conf")
    assert plain.allow_simple and not plain.negotiates


def test_rc4_is_what_everybody_else_has() -> None:
    """The vectors of RFC 6229, at the beginning of the stream, for keys of 5 and 16 bytes."""
    zeros = bytes(16)
    assert Rc4(bytes(range(1, 6))).update(zeros).hex() == "b2396305f03dc027ccc3524a0a1118a8"
    assert Rc4(bytes(range(1, 17))).update(zeros).hex() == "9ac7cc9a609d1ef7b2932899cde41b97"


def pair(encrypt: bool) -> tuple[DigestLayer, DigestLayer]:
    secret = bytes(range(16))
    return DigestLayer(secret, encrypt), DigestLayer(secret, encrypt, server=True)


@pytest.mark.parametrize("encrypt", [False, True])
@given(pieces=st.lists(st.binary(max_size=100), max_size=5))
def test_pieces_survive_in_both_directions(encrypt: bool, pieces: list[bytes]) -> None:
    client, server = pair(encrypt)
    for piece in pieces:
        wrapped = client.wrap(piece)
        assert not encrypt or len(piece) < 8 or piece not in wrapped
        assert server.unwrap(wrapped) == piece
        assert client.unwrap(server.wrap(piece)) == piece


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_changed_piece_is_refused(encrypt: bool) -> None:
    client, server = pair(encrypt)
    wrapped = bytearray(client.wrap(b"some message"))
    wrapped[3] ^= 1
    with pytest.raises(AuthenticationError):
        server.unwrap(bytes(wrapped))


def test_a_piece_that_comes_twice_is_refused() -> None:
    client, server = pair(False)
    wrapped = client.wrap(b"once")
    server.unwrap(wrapped)
    with pytest.raises(AuthenticationError, match="twice"):
        server.unwrap(wrapped)


@pytest.mark.parametrize("encrypt", [False, True])
@given(noise=st.binary(max_size=60))
def test_noise_is_refused(encrypt: bool, noise: bytes) -> None:
    with pytest.raises(AuthenticationError):
        pair(encrypt)[1].unwrap(noise)
