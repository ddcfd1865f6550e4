"""What can go wrong between us and Hadoop, as classes.

Three families below `HadoopError`:

* the configuration is wrong: `ConfigurationError`;
* the call did not get through: `ConnectFailed`, `ConnectionLost`, `CallTimeout`, `ProtocolError`,
  `AuthenticationError`;
* the server answered with an exception: `RemoteError` and its subclasses, which keep Hadoop's
  class name and message.

`remote_error` maps the name of a Java class to a subclass. Names that are not known here become
plain `RemoteError`.
"""

from __future__ import annotations

import re


class HadoopError(Exception):
    """Any error of this library."""


class ConfigurationError(HadoopError):
    """A configuration file can't be read, or a value in it can't be used; names file and key."""


class TransportError(HadoopError):
    """A call did not come to an answer."""


class ConnectFailed(TransportError):
    """No server could be reached at any address; nothing was sent."""


class ConnectionLost(TransportError):
    """The connection ended while a call waited for its answer: it may or may not have been done."""


class CallTimeout(TransportError, TimeoutError):
    """No answer within the call's time-out: it may or may not have been done."""


class ProtocolError(TransportError):
    """Bytes came that are not Hadoop's RPC, or more of them than is allowed."""


class AuthenticationError(HadoopError):
    """Client and server found no common way to authenticate, or the server's proof is wrong."""


class RemoteError(HadoopError):
    """The server answered with an exception.

    Attributes:
        class_name: the Java class, such as ``org.apache.hadoop.yarn.exceptions.YarnException``.
        message: its message, without class name and stack trace.
        details: all that the server sent, stack trace included.
    """

    def __init__(self, class_name: str, details: str = "") -> None:
        self.class_name = class_name
        self.details = details
        self.message: str = first_part(class_name, details)
        simple = class_name.rsplit(".", 1)[-1].rsplit("$", 1)[-1]
        super().__init__(f"{simple}: {self.message}" if self.message else simple)

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str, str]]:
        return type(self), (self.class_name, self.details)


class ApplicationNotFound(RemoteError):
    """The ResourceManager does not know the application (any more)."""


class ApplicationAttemptNotFound(RemoteError):
    """The attempt is unknown: ended, or the RM restarted and waits for it to register again."""


class ContainerNotFound(RemoteError):
    """The container is unknown, or gone."""


class ApplicationMasterNotRegistered(RemoteError):
    """The RM (after a restart or fail-over) wants the master to register again and resync."""


class InvalidApplicationMasterRequest(RemoteError):
    """The master's request is out of order: registered twice, or its response id is stale."""


class InvalidResourceRequest(RemoteError):
    """More is asked for than a container may ever have, or an unknown resource or label."""


class InvalidContainerRelease(RemoteError):
    """A container was released that is not the application's."""


class InvalidBlacklist(RemoteError):
    """A blacklist names a rack or node in a way that is not allowed."""


class AccessControl(RemoteError):
    """The user may not do that, or the server refuses this kind of authentication."""


class InvalidToken(RemoteError):
    """The token is expired, cancelled, or signed with a key the server no longer has."""


class AuthenticationRefused(RemoteError, AuthenticationError):
    """The server refused the proof of who we are."""


class StandbyError(RemoteError):
    """This server of a pair is not the active one; the call was not executed."""


class RetriableError(RemoteError):
    """The server asks for the call to be made again later; it was not executed."""


class ServerTooBusy(RetriableError):
    """The server's queue is full; the call was not executed."""


class SafeMode(RemoteError):
    """The NameNode does not take changes now."""


class QuotaExceeded(RemoteError):
    """A folder's quota of names or space is used up."""


class DiskQuotaExceeded(QuotaExceeded):
    """A folder's quota of space is used up."""


class NameQuotaExceeded(QuotaExceeded):
    """A folder's quota of names is used up."""


class RemoteFileNotFound(RemoteError):
    """The file or folder does not exist."""


class RemoteFileExists(RemoteError):
    """The file or folder exists already."""


class LeaseExpired(RemoteError):
    """The file is not open for writing by this client any more: another took it over."""


class AlreadyBeingCreated(RemoteError):
    """Another client is writing the file."""


class NotReadyYet(RemoteError):
    """The NodeManager has not registered with the RM since its start; try again."""


class UnknownMethod(RemoteError):
    """The server does not know the protocol or the method: another version, or another server."""


class VersionMismatch(RemoteError):
    """The server speaks another version of the RPC or of the protocol."""


_YARN = "org.apache.hadoop.yarn.exceptions."
_CLASSES: dict[str, type[RemoteError]] = {
    _YARN + "ApplicationNotFoundException": ApplicationNotFound,
    _YARN + "ApplicationIdNotProvidedException": ApplicationNotFound,
    _YARN + "ApplicationAttemptNotFoundException": ApplicationAttemptNotFound,
    _YARN + "ContainerNotFoundException": ContainerNotFound,
    _YARN + "ApplicationMasterNotRegisteredException": ApplicationMasterNotRegistered,
    _YARN + "InvalidApplicationMasterRequestException": InvalidApplicationMasterRequest,
    _YARN + "InvalidResourceRequestException": InvalidResourceRequest,
    _YARN + "InvalidLabelResourceRequestException": InvalidResourceRequest,
    _YARN + "InvalidResourceBlacklistRequestException": InvalidBlacklist,
    _YARN + "InvalidContainerReleaseException": InvalidContainerRelease,
    _YARN + "ResourceNotFoundException": InvalidResourceRequest,
    _YARN + "SchedulerInvalidResourceRequestException": InvalidResourceRequest,
    _YARN + "SchedulerInvalidResoureRequestException": InvalidResourceRequest,  # Hadoop's spelling
    _YARN + "NMNotYetReadyException": NotReadyYet,
    "org.apache.hadoop.security.AccessControlException": AccessControl,
    "org.apache.hadoop.fs.permission.AccessControlException": AccessControl,
    "org.apache.hadoop.security.authorize.AuthorizationException": AccessControl,
    "java.security.AccessControlException": AccessControl,
    "org.apache.hadoop.security.token.SecretManager$InvalidToken": InvalidToken,
    "javax.security.sasl.SaslException": AuthenticationRefused,
    "org.apache.hadoop.ipc.StandbyException": StandbyError,
    "org.apache.hadoop.ipc.ObserverRetryOnActiveException": StandbyError,
    "org.apache.hadoop.ipc.RetriableException": RetriableError,
    "org.apache.hadoop.ipc.RpcServerTooBusyException": ServerTooBusy,
    "org.apache.hadoop.ipc.RpcNoSuchMethodException": UnknownMethod,
    "org.apache.hadoop.ipc.RpcNoSuchProtocolException": UnknownMethod,
    "org.apache.hadoop.ipc.RPC$VersionMismatch": VersionMismatch,
    "org.apache.hadoop.hdfs.server.namenode.SafeModeException": SafeMode,
    "org.apache.hadoop.hdfs.protocol.QuotaExceededException": QuotaExceeded,
    "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException": DiskQuotaExceeded,
    "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException": NameQuotaExceeded,
    "org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException": DiskQuotaExceeded,
    "org.apache.hadoop.fs.FileAlreadyExistsException": RemoteFileExists,
    "org.apache.hadoop.fs.ParentNotDirectoryException": RemoteFileExists,
    "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException": LeaseExpired,
    "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException": AlreadyBeingCreated,
    "java.io.FileNotFoundException": RemoteFileNotFound,
    "org.apache.hadoop.fs.PathNotFoundException": RemoteFileNotFound,
}


# Classes that say nothing themselves; their message often begins with the class of their cause.
_WRAPPERS = (
    _YARN + "YarnException",
    _YARN + "YarnRuntimeException",
    "java.io.IOException",
    "org.apache.hadoop.ipc.RemoteException",
)
_CAUSE = re.compile(r"((?:[a-z0-9_]+\.){2,}[A-Z][\w$]*)(?:: |$)")


def first_part(class_name: str, details: str) -> str:
    """The message in what the server sent: without ``class: `` before and the stack trace after."""
    text = details.split("\n\tat ", 1)[0].strip()
    if text == class_name:
        return ""
    return text.removeprefix(class_name + ":").strip()


def remote_error(class_name: str, details: str) -> RemoteError:
    """The exception for what a server answered.

    Where that only wraps another one, the class is that of the inner one; the Java class and the
    message stay as they came.
    """
    wanted = class_name
    text = first_part(class_name, details)
    while wanted in _WRAPPERS and (cause := _CAUSE.match(text)):
        wanted, text = cause[1], text[cause.end() :]
    return _CLASSES.get(wanted, RemoteError)(class_name, details)
