"""What can go wrong with HDFS, as `OSError`s whose text says what, which path and what to do.

`hdfs_native` raises ``OSError`` for connections and ``RuntimeError`` with the Java class and its
message for the rest; `translate` turns either into one of these.
"""

from __future__ import annotations

import re


class HdfsError(OSError):
    """An operation on HDFS failed; the message is for the user."""

    transient = False
    """Whether the same call may succeed later without anybody's doing."""


class NotFound(HdfsError, FileNotFoundError):
    """There is no such file or folder."""


class AlreadyThere(HdfsError, FileExistsError):
    """There is one of that name already."""


class NotAFolder(HdfsError, NotADirectoryError):
    """A part of the path is a file."""


class NotEmpty(HdfsError):
    """A folder with something in it can only be removed recursively."""


class NoPermission(HdfsError, PermissionError):
    """The user may not do that."""


class TokenRefused(NoPermission):
    """The delegation token is expired or was cancelled."""


class HdfsQuotaExceeded(HdfsError):
    """The folder's quota of names or space is used up, until something is removed."""

    transient = True


class NoNameNode(HdfsError, ConnectionError):
    """No active NameNode answers: it is down, restarts, or the address is wrong."""

    transient = True


class HdfsSafeMode(HdfsError):
    """HDFS is read-only for now."""

    transient = True


class NoDataNode(HdfsError):
    """No DataNode takes or gives the data: all full, down, or excluded."""

    transient = True


class LeaseLost(HdfsError):
    """Another process has taken over the right to write this file."""


class BeingWritten(HdfsError):
    """Another process writes the file, or its lease is being recovered."""

    transient = True


class NotClosedInTime(HdfsError, TimeoutError):
    """A file was still open for its former writer when the time was up."""

    transient = True


_JAVA = re.compile(r'RPCError\("(?P<name>[\w.$]+)", "(?P<text>.*)"\)\Z', re.DOTALL)

_LEASE_LOST = (
    "LeaseExpiredException",
    "No lease on",
    "is not the lease owner",
    "does not have any open files",
    "whereas it is under recovery",
)
_NO_DATA_NODE = (
    "could only be written to",
    "could only be replicated to",
    "All nodes failed for write",
    "Block writer is closed",
    "NotReplicatedYetException",
    "No live nodes",
    "All DataNodes failed",
    "DataTransferError",
)
_CONNECTION = (
    "connection refused",
    "connection reset",
    "broken pipe",
    "timed out",
    "failed to lookup",
    "lookup address",
    "unexpected eof",
    "early eof",
    "connection closed",
    "channel closed",
    "os error",
)


def translate(error: BaseException, what: str, path: str, where: str) -> HdfsError:
    """The error as one of this module's.

    Args:
        error: what `hdfs_native` raised.
        what: the operation in words, ``read``.
        path: what it was about.
        where: the file system, ``hdfs://namenode:8020``.
    """
    if isinstance(error, HdfsError):
        return error
    name, text = _java(str(error))
    place = f"{where}{path}"
    first = text.splitlines()[0].strip() if text.strip() else type(error).__name__

    def has(*parts: str) -> bool:
        return any(part in name or part in text for part in parts)

    if has("SecretManager$InvalidToken"):
        return TokenRefused(
            f"Can't {what} {place}: HDFS does not take this job's token any more ({first}). It has"
            " expired or was cancelled; submit the job again (`howdah rerun --resume`)"
        )
    if has("AccessControlException"):
        return NoPermission(
            f"HDFS does not let this user {what} {place}: {first}. Ask for the permission, use"
            " another folder, or set HADOOP_USER_NAME on a cluster without Kerberos"
        )
    if has("QuotaExceeded"):
        return HdfsQuotaExceeded(
            f"Can't {what} {place}: the quota is used up ({first}). Remove what is not needed,"
            " or have the quota raised (`hdfs dfsadmin -setQuota/-setSpaceQuota`)"
        )
    if has("SafeModeException", "Name node is in safe mode"):
        return HdfsSafeMode(
            f"Can't {what} {place}: HDFS is read-only, its NameNode is in safe mode ({first})."
            " It leaves it by itself after a start; else `hdfs dfsadmin -safemode leave`"
        )
    if has(*_LEASE_LOST):
        return LeaseLost(f"Can't {what} {place}: another process has taken it over ({first})")
    if has(
        "AlreadyBeingCreated", "RecoveryInProgress", "Failed to APPEND_FILE", "Failed to CREATE"
    ):
        return BeingWritten(
            f"Can't {what} {place}: another process writes it, or its lease is being recovered"
            f" ({first})"
        )
    if isinstance(error, FileNotFoundError) or has("FileNotFoundException"):
        return NotFound(f"Can't {what} {place}: there is no such file or folder")
    if isinstance(error, FileExistsError) or has("FileAlreadyExistsException"):
        return AlreadyThere(f"Can't {what} {place}: it exists already")
    if has("PathIsNotEmptyDirectoryException"):
        return NotEmpty(f"Can't {what} {place}: the folder is not empty")
    if has("ParentNotDirectoryException", "is not a directory"):
        return NotAFolder(f"Can't {what} {place}: {first}")
    if has(*_NO_DATA_NODE):
        return NoDataNode(
            f"Can't {what} {place}: no DataNode takes or gives the data ({first}). HDFS is full, or its"
            " DataNodes are down or out of reach from this machine; see `hdfs dfsadmin -report`"
        )
    if has("StandbyException", "No NameNode hosts found", "RetriableException"):
        return _no_name_node(what, place, where, first)
    if isinstance(error, OSError) or any(part in text.lower() for part in _CONNECTION):
        return _no_name_node(what, place, where, first)
    return HdfsError(f"Can't {what} {place}: {first}{f' ({name})' if name else ''}")


def _no_name_node(what: str, place: str, where: str, reason: str) -> NoNameNode:
    return NoNameNode(
        f"Can't {what} {place}: no active NameNode of {where or 'the default file system'} answers"
        f" ({reason}). Check fs.defaultFS and the NameNodes in HADOOP_CONF_DIR's core-site.xml and"
        " hdfs-site.xml, and whether HDFS runs"
    )


def _java(text: str) -> tuple[str, str]:
    """Class and message of a Java exception; an empty class for what is none."""
    match = _JAVA.search(text)
    if match is None:
        return "", text
    message = match["text"].replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    return match["name"], message
