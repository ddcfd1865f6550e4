"""Who somebody is on a cluster: short names of principals, tokens that say whose they are."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import AuthenticationError, ConfigurationError
from howdah.hadoop.security.credentials import (
    HDFS_TOKEN,
    RM_TOKEN,
    Credentials,
    CredentialsError,
    Token,
)
from howdah.hadoop.security.login import login
from howdah.hadoop.security.names import Principal, short_name
from howdah.hadoop.security.tokens import identifier, owner

REALM = "EXAMPLE.COM"


def short(principal: str, rules: str = "", **properties: str) -> str:
    values = {"hadoop.security.auth_to_local": rules} if rules else {}
    return short_name(principal, Configuration({**values, **properties}), REALM)


@pytest.mark.parametrize(
    ("principal", "rules", "name"),
    [
        ("alice@EXAMPLE.COM", "", "alice"),
        ("alice/admin@EXAMPLE.COM", "DEFAULT", "alice"),
        ("alice", "RULE:[1:$1]", "alice"),
        ("alice@OTHER", "RULE:[1:$1@$0](.*@OTHER)s/@.*// DEFAULT", "alice"),
        ("nn/host@OTHER", "RULE:[2:$1@$0](nn@.*OTHER)s/.*/hdfs/\nDEFAULT", "hdfs"),
        ("bob@EXAMPLE.COM", "RULE:[2:$1@$0](nn@.*)s/.*/hdfs/\nDEFAULT", "bob"),
        ("Alice@OTHER", "RULE:[1:$1@$0](.*)s/@.*///L", "alice"),
        ("a.b.c@OTHER", "RULE:[1:$1]s/[.]/_/g", "a_b_c"),
        ("a.b.c@OTHER", "RULE:[1:$1]s/[.]/_/", "a_b.c"),
        ("hive/host@X", "RULE:[2:$2-$1](host-.*)s/(.*)-(.*)/$2.$1/", "hive.host"),
    ],
)
def test_a_principal_has_the_name_that_the_clusters_rules_give_it(
    principal: str, rules: str, name: str
) -> None:
    assert short(principal, rules) == name


def test_rules_that_do_not_fit_or_cannot_be_read_are_said() -> None:
    for principal, rules, words in (
        ("alice@OTHER", "DEFAULT", "no rule"),
        ("alice@OTHER", "RULE:[2:$1]", "no rule"),
        ("alice@OTHER", "RULE:[1:$1@$0]", "without / and @"),
        ("alice@OTHER", "RULE:[1:$4]", "cannot be used"),
        ("alice@OTHER", "RULE:[1:$1](()", "cannot be used"),
        ("alice@OTHER", "NONSENSE", "must be"),
        ("@", "DEFAULT", "no Kerberos principal"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            short(principal, rules)
    mit = {"hadoop.security.auth_to_local.mechanism": "MIT"}
    assert short("alice@OTHER", "RULE:[1:$1@$0]", **mit) == "alice@OTHER"


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_principal_and_rule_gives_a_name_or_our_error(principal: str, rules: str) -> None:
    try:
        short(principal, rules)
    except ConfigurationError:
        pass


def test_a_principal_is_its_parts() -> None:
    assert Principal.parse("nn/host@X") == Principal("nn", "host", "X")
    assert [str(Principal.parse(text)) for text in ("a", "a@X", "a/b")] == ["a", "a@X", "a/b"]


HDFS = Token(
    b"\0\x05alice\4yarn\0" + bytes([138]) + (1795426692261).to_bytes(6, "big")
    + bytes([138]) + (1796031492261).to_bytes(6, "big") + b"\1\2",
    b"password",
    HDFS_TOKEN,
    "127.0.0.1:8020",
)  # fmt: skip
RM = Token(b"\x0a\5alice\x12\4yarn\x1a\0\x28\xa5\xe4\x01", b"password", RM_TOKEN)


def test_a_token_says_whose_it_is_and_when_it_ends() -> None:
    told = identifier(HDFS)
    assert (told.owner, told.renewer, told.real_user) == ("alice", "yarn", "")
    assert told.ends_at == datetime.fromtimestamp(1796031492.261, UTC)
    assert identifier(RM).owner == "alice"
    assert identifier(RM).ends_at == datetime.fromtimestamp(29.221, UTC)
    assert owner(Credentials({"a": HDFS})) == "alice"
    assert owner(Credentials()) == ""
    with pytest.raises(CredentialsError):
        identifier(Token(b"", b"", "other"))


@given(st.sampled_from([HDFS_TOKEN, RM_TOKEN]), st.binary(max_size=60))
def test_any_identifier_is_read_or_refused_in_our_words(kind: str, data: bytes) -> None:
    try:
        identifier(Token(data, b"", kind))
    except CredentialsError:
        pass


def test_without_kerberos_the_environment_says_who_we_are(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    Credentials({"a": HDFS}).write(file)
    plain = Configuration({})
    env = {"HADOOP_USER_NAME": "alice", "HADOOP_TOKEN_FILE_LOCATION": str(file)}
    found = login(plain, env)
    assert (found.user, found.kerberos, found.token(HDFS_TOKEN)) == ("alice", False, HDFS)
    assert found.token(HDFS_TOKEN, "elsewhere:8020") is None
    proxied = login(plain, {**env, "HADOOP_PROXY_USER": "bob"})
    assert (proxied.user, proxied.real_user) == ("bob", "alice")


def test_a_secure_cluster_without_ticket_key_or_token_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'none'}")
    secure = Configuration({"hadoop.security.authentication": "kerberos"})
    with pytest.raises(AuthenticationError, match="kinit"):
        login(secure, {})
    with pytest.raises(AuthenticationError, match="can't be read"):
        login(secure, {}, keytab=tmp_path / "no.keytab")
    file = tmp_path / "tokens"
    Credentials({"a": HDFS}).write(file)
    found = login(secure, {"HADOOP_TOKEN_FILE_LOCATION": str(file)})
    assert (found.user, found.kerberos) == ("alice", False)
