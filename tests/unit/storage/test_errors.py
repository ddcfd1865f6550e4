"""Which errors may pass by themselves."""

from __future__ import annotations

import errno
import socket

import pytest

from howdah.storage.errors import is_transient
from howdah.storage.hdfs import errors as hdfs_errors


def os_error(number: int) -> OSError:
    return OSError(number, "x", "/some/path")


MAY_PASS: list[Exception] = [
    # Machines, networks and room; a mount that is away leaves whatever is below it.
    *map(
        os_error,
        [
            *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
            *(errno.EIO, errno.ESTALE, errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT),
            *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRINUSE, errno.EEXIST, errno.ENOTDIR),
        ],
    ),
    TimeoutError(),
    ConnectionResetError("peer"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    MemoryError(),
    hdfs_errors.HdfsSafeMode("read-only"),
    hdfs_errors.NoNameNode("standby"),
    hdfs_errors.NoDataNode("full"),
    hdfs_errors.HdfsQuotaExceeded("used up"),
]
FINAL: list[Exception] = [
    # Rights and bad paths, refusals and defects.
    *map(os_error, [errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENAMETOOLONG]),
    os_error(errno.ELOOP),
    PermissionError("no"),
    ValueError("Protocol not known: nosuch"),
    ImportError("Please install s3fs"),
    hdfs_errors.NoPermission("no"),
    hdfs_errors.TokenRefused("expired"),
    hdfs_errors.NotFound("no such file"),
    hdfs_errors.HdfsError("something new"),
]


@pytest.mark.parametrize(
    ("error", "transient"),
    [*((error, True) for error in MAY_PASS), *((error, False) for error in FINAL)],
    ids=repr,
)
def test_what_may_pass_by_itself_is_told_from_what_is_final(
    error: Exception, transient: bool
) -> None:
    assert is_transient(error) is transient


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
