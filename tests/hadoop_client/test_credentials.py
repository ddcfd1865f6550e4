"""Credential files in both formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.hadoop.security.credentials import Credentials, CredentialsError, Format, Token

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
secrets = st.binary(max_size=300)
tokens = st.builds(Token, secrets, secrets, names, names)
credentials = st.builds(
    Credentials,
    st.dictionaries(names, tokens, max_size=4),
    st.dictionaries(names, secrets, max_size=4),
)

LONG = bytes(range(200))
# Written by org.apache.hadoop.security.Credentials of Hadoop 3.4.3: one token, one secret key (LONG).
JAVA = {
    Format.WRITABLE: bytes.fromhex(
        "48445453000106c3a46c696173020102027077044b494e440a686f73743a313233343501046c6f6e678fc8"
    )
    + LONG,
    Format.PROTOBUF: bytes.fromhex(
        "4844545301fa010a240a06c3a46c696173121a0a020102120270771a044b494e44220a686f73743a313233343512d1010a046c6f6e671ac801"
    )
    + LONG,
}
JAVA_URL_TEXT = "AgECAnB3BEtJTkQKaG9zdDoxMjM0NQ"
SAME = Credentials({"älias": Token(b"\1\2", b"pw", "KIND", "host:12345")}, {"long": LONG})


@pytest.mark.parametrize("format", Format)
def test_java_writes_the_same_bytes(format: Format) -> None:
    assert Credentials.read(JAVA[format]) == SAME
    assert SAME.to_bytes(format) == JAVA[format]


def test_the_url_text_of_java_is_read() -> None:
    assert Token.from_url_text(JAVA_URL_TEXT) == SAME.tokens["älias"]


@given(credentials, st.sampled_from(Format))
def test_what_is_written_is_read_back(given: Credentials, format: Format) -> None:
    assert Credentials.read(given.to_bytes(format)) == given


@given(st.text(max_size=40))
def test_other_url_texts_are_refused_in_our_words(text: str) -> None:
    try:
        Token.from_url_text(text)
    except CredentialsError:
        pass


def test_a_file_is_its_owners_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    Credentials(secrets={"a": b"1"}).write(path)
    Credentials({"t": Token(b"i", b"p", "kind", "service")}).write(path, Format.PROTOBUF)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["tokens"]
    assert Credentials.read(path).of_kind("kind")[0].service == "service"


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"something else")
    with pytest.raises(CredentialsError, match=r"tokens: .*HDTS"):
        Credentials.read(path)


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    Credentials(secrets={"a": b"1"}).write(path)
    found = Credentials.from_environment({"HADOOP_TOKEN_FILE_LOCATION": str(path)})
    assert found.secrets == {"a": b"1"}
    assert Credentials.from_environment({}) == Credentials()


def test_merging_prefers_the_other() -> None:
    one = Credentials(secrets={"a": b"1", "b": b"1"})
    other = Credentials(secrets={"b": b"2"})
    assert one.merged(other).secrets == {"a": b"1", "b": b"2"}


def test_passwords_are_not_shown() -> None:
    shown = repr(Credentials({"t": Token(b"i", b"hidden", "k")}, {"s": b"hidden"}))
    assert "hidden" not in shown
