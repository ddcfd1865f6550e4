"""Ways to authenticate: which is chosen, DIGEST-MD5, and what protects the connection then."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.credentials import Token
from howdah.hadoop.digest import DigestLayer, DigestMd5, parse_challenge
from howdah.hadoop.errors import AuthenticationError, ConfigurationError
from howdah.hadoop.identity import Identity
from howdah.hadoop.protos import common
from howdah.hadoop.sasl import check_principal, check_simple, choose

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


def test_a_server_with_kerberos_must_be_the_one_that_is_configured() -> None:
    check_principal("rm/_HOST@EXAMPLE.COM", "rm/host.example", "HOST.example")
    check_principal("rm/fixed@EXAMPLE.COM", "rm/fixed", "other")
    with pytest.raises(AuthenticationError, match="rm/evil"):
        check_principal("rm/_HOST@EXAMPLE.COM", "rm/evil", "host.example")
    with pytest.raises(AuthenticationError, match="principal"):
        check_principal("", "rm/evil", "evil")


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


def pair(cipher: str) -> tuple[DigestLayer, DigestLayer]:
    secret = bytes(range(16))
    return DigestLayer(secret, cipher), DigestLayer(secret, cipher, server=True)


@pytest.mark.parametrize("cipher", ["", "rc4", "3des"])
@given(pieces=st.lists(st.binary(max_size=100), max_size=5))
def test_pieces_survive_in_both_directions(cipher: str, pieces: list[bytes]) -> None:
    client, server = pair(cipher)
    for piece in pieces:
        wrapped = client.wrap(piece)
        assert not cipher or len(piece) < 8 or piece not in wrapped
        assert server.unwrap(wrapped) == piece
        assert client.unwrap(server.wrap(piece)) == piece


@pytest.mark.parametrize("cipher", ["", "rc4", "3des"])
def test_a_changed_piece_is_refused(cipher: str) -> None:
    client, server = pair(cipher)
    wrapped = bytearray(client.wrap(b"some message"))
    wrapped[3] ^= 1
    with pytest.raises(AuthenticationError):
        server.unwrap(bytes(wrapped))


def test_a_piece_that_comes_twice_is_refused() -> None:
    client, server = pair("")
    wrapped = client.wrap(b"once")
    server.unwrap(wrapped)
    with pytest.raises(AuthenticationError, match="twice"):
        server.unwrap(wrapped)


@pytest.mark.parametrize("cipher", ["", "rc4", "3des"])
@given(noise=st.binary(max_size=60))
def test_noise_is_refused(cipher: str, noise: bytes) -> None:
    with pytest.raises(AuthenticationError):
        pair(cipher)[1].unwrap(noise)
