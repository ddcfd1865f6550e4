"""What `hdfs_native` raises, in our words."""

from __future__ import annotations

import pytest

from howdah.storage.hdfs.errors import HdfsError, NoNameNode, NoPermission, TokenRefused, translate

INVALID = 'RPCError("org.apache.hadoop.security.token.SecretManager$InvalidToken", "token (…) is expired")'


@pytest.mark.parametrize("kind", [RuntimeError, OSError])
def test_a_worthless_token_is_no_reason_to_wait(kind: type[Exception]) -> None:
    found = translate(kind(INVALID), "read", "/a", "hdfs://nn:8020")
    assert isinstance(found, TokenRefused) and isinstance(found, NoPermission)
    assert not found.transient
    assert "hdfs://nn:8020/a" in str(found) and "howdah rerun --resume" in str(found)


def test_a_name_node_that_does_not_answer_is_waited_for() -> None:
    found = translate(OSError("Connection refused (os error 111)"), "read", "/a", "hdfs://nn:8020")
    assert isinstance(found, NoNameNode) and found.transient


def test_what_nobody_has_foreseen_is_passed_on() -> None:
    found = translate(RuntimeError('RPCError("java.lang.Odd", "so so")'), "list", "/a", "")
    assert type(found) is HdfsError
    assert "so so (java.lang.Odd)" in str(found)
