"""Which errors may pass by themselves."""

from __future__ import annotations

import errno
import socket

import pytest

from howdah.storage.errors import is_transient
from howdah.storage.hdfs import errors as hdfs_errors


def os_error(number: int) -> OSError:
    return OSError(number, "x", "/some/path")


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EIO,
        errno.ESTALE,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EADDRINUSE,
        errno.EEXIST,
        errno.ENOTDIR,  # a mount that is away leaves whatever is below it
    ],
)
def test_machines_networks_and_room_may_pass(number: int) -> None:
    assert is_transient(os_error(number))


@pytest.mark.parametrize(
    "number",
    [errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP],
)
def test_rights_and_bad_paths_are_final(number: int) -> None:
    assert not is_transient(os_error(number))


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError("peer"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        MemoryError(),
        hdfs_errors.HdfsSafeMode("read-only"),
        hdfs_errors.NoNameNode("standby"),
        hdfs_errors.NoDataNode("full"),
        hdfs_errors.HdfsQuotaExceeded("used up"),
    ],
)
def test_stores_that_are_away_may_pass(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError("no"),
        ValueError("Protocol not known: nosuch"),
        ImportError("Please install s3fs"),
        hdfs_errors.NoPermission("no"),
        hdfs_errors.TokenRefused("expired"),
        hdfs_errors.NotFound("no such file"),
        hdfs_errors.HdfsError("something new"),
    ],
)
def test_refusals_and_defects_are_final(error: Exception) -> None:
    assert not is_transient(error)


class HttpError(Exception):
    """As gcsfs and others raise."""

    def __init__(self, code: int) -> None:
        super().__init__(f"HTTP {code}")
        self.code = code


class ClientError(Exception):
    """As botocore raises."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class ConnectTimeoutError(Exception):
    pass


class EndpointError(ConnectTimeoutError):
    pass


@pytest.mark.parametrize("kind", [HttpError, ClientError])
@pytest.mark.parametrize(
    ("status", "transient"), [(503, True), (429, True), (403, False), (404, False)]
)
def test_a_cloud_store_is_believed_by_its_status(
    kind: type[Exception], status: int, transient: bool
) -> None:
    assert is_transient(kind(status)) is transient


def test_a_library_s_own_names_for_what_passes_are_understood() -> None:
    assert is_transient(EndpointError("unreachable"))
