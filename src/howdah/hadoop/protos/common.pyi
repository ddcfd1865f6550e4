"""Types of the messages of `hadoop.common`: made by tools/hadoop_protos.py, not by hand."""

from collections.abc import Iterable

from google.protobuf.message import Message

from howdah.hadoop.protos.containers import Composites, EnumType, Scalars


class _RpcKindProto(EnumType):
    RPC_BUILTIN: int
    RPC_WRITABLE: int
    RPC_PROTOCOL_BUFFER: int
RpcKindProto: _RpcKindProto

class TokenProto(Message):
    identifier: bytes
    password: bytes
    kind: str
    service: str
    def __init__(self, *, identifier: bytes | None = ..., password: bytes | None = ..., kind: str | None = ..., service: str | None = ...) -> None: ...

class CredentialsKVProto(Message):
    alias: str
    @property
    def token(self) -> TokenProto: ...
    secret: bytes
    def __init__(self, *, alias: str | None = ..., token: TokenProto | None = ..., secret: bytes | None = ...) -> None: ...

class CredentialsProto(Message):
    @property
    def tokens(self) -> Composites[CredentialsKVProto]: ...
    @property
    def secrets(self) -> Composites[CredentialsKVProto]: ...
    def __init__(self, *, tokens: Iterable[CredentialsKVProto] = ..., secrets: Iterable[CredentialsKVProto] = ...) -> None: ...

class GetDelegationTokenRequestProto(Message):
    renewer: str
    def __init__(self, *, renewer: str | None = ...) -> None: ...

class GetDelegationTokenResponseProto(Message):
    @property
    def token(self) -> TokenProto: ...
    def __init__(self, *, token: TokenProto | None = ...) -> None: ...

class RenewDelegationTokenRequestProto(Message):
    @property
    def token(self) -> TokenProto: ...
    def __init__(self, *, token: TokenProto | None = ...) -> None: ...

class RenewDelegationTokenResponseProto(Message):
    newExpiryTime: int
    def __init__(self, *, newExpiryTime: int | None = ...) -> None: ...

class CancelDelegationTokenRequestProto(Message):
    @property
    def token(self) -> TokenProto: ...
    def __init__(self, *, token: TokenProto | None = ...) -> None: ...

class CancelDelegationTokenResponseProto(Message):
    def __init__(self) -> None: ...

class GetGroupsForUserRequestProto(Message):
    user: str
    def __init__(self, *, user: str | None = ...) -> None: ...

class GetGroupsForUserResponseProto(Message):
    @property
    def groups(self) -> Scalars[str]: ...
    def __init__(self, *, groups: Iterable[str] = ...) -> None: ...

class RPCTraceInfoProto(Message):
    traceId: int
    parentId: int
    spanContext: bytes
    def __init__(self, *, traceId: int | None = ..., parentId: int | None = ..., spanContext: bytes | None = ...) -> None: ...

class RPCCallerContextProto(Message):
    context: str
    signature: bytes
    def __init__(self, *, context: str | None = ..., signature: bytes | None = ...) -> None: ...

class RpcRequestHeaderProto(Message):
    class _OperationProto(EnumType):
        RPC_FINAL_PACKET: int
        RPC_CONTINUATION_PACKET: int
        RPC_CLOSE_CONNECTION: int
    OperationProto: _OperationProto
    rpcKind: int
    rpcOp: int
    callId: int
    clientId: bytes
    retryCount: int
    @property
    def traceInfo(self) -> RPCTraceInfoProto: ...
    @property
    def callerContext(self) -> RPCCallerContextProto: ...
    stateId: int
    routerFederatedState: bytes
    def __init__(self, *, rpcKind: int | None = ..., rpcOp: int | None = ..., callId: int | None = ..., clientId: bytes | None = ..., retryCount: int | None = ..., traceInfo: RPCTraceInfoProto | None = ..., callerContext: RPCCallerContextProto | None = ..., stateId: int | None = ..., routerFederatedState: bytes | None = ...) -> None: ...

class RpcResponseHeaderProto(Message):
    class _RpcStatusProto(EnumType):
        SUCCESS: int
        ERROR: int
        FATAL: int
    RpcStatusProto: _RpcStatusProto
    class _RpcErrorCodeProto(EnumType):
        ERROR_APPLICATION: int
        ERROR_NO_SUCH_METHOD: int
        ERROR_NO_SUCH_PROTOCOL: int
        ERROR_RPC_SERVER: int
        ERROR_SERIALIZING_RESPONSE: int
        ERROR_RPC_VERSION_MISMATCH: int
        FATAL_UNKNOWN: int
        FATAL_UNSUPPORTED_SERIALIZATION: int
        FATAL_INVALID_RPC_HEADER: int
        FATAL_DESERIALIZING_REQUEST: int
        FATAL_VERSION_MISMATCH: int
        FATAL_UNAUTHORIZED: int
    RpcErrorCodeProto: _RpcErrorCodeProto
    callId: int
    status: int
    serverIpcVersionNum: int
    exceptionClassName: str
    errorMsg: str
    errorDetail: int
    clientId: bytes
    retryCount: int
    stateId: int
    routerFederatedState: bytes
    def __init__(self, *, callId: int | None = ..., status: int | None = ..., serverIpcVersionNum: int | None = ..., exceptionClassName: str | None = ..., errorMsg: str | None = ..., errorDetail: int | None = ..., clientId: bytes | None = ..., retryCount: int | None = ..., stateId: int | None = ..., routerFederatedState: bytes | None = ...) -> None: ...

class RpcSaslProto(Message):
    class _SaslState(EnumType):
        SUCCESS: int
        NEGOTIATE: int
        INITIATE: int
        CHALLENGE: int
        RESPONSE: int
        WRAP: int
    SaslState: _SaslState
    class SaslAuth(Message):
        method: str
        mechanism: str
        protocol: str
        serverId: str
        challenge: bytes
        def __init__(self, *, method: str | None = ..., mechanism: str | None = ..., protocol: str | None = ..., serverId: str | None = ..., challenge: bytes | None = ...) -> None: ...
    version: int
    state: int
    token: bytes
    @property
    def auths(self) -> Composites[RpcSaslProto.SaslAuth]: ...
    def __init__(self, *, version: int | None = ..., state: int | None = ..., token: bytes | None = ..., auths: Iterable[RpcSaslProto.SaslAuth] = ...) -> None: ...

class UserInformationProto(Message):
    effectiveUser: str
    realUser: str
    def __init__(self, *, effectiveUser: str | None = ..., realUser: str | None = ...) -> None: ...

class IpcConnectionContextProto(Message):
    @property
    def userInfo(self) -> UserInformationProto: ...
    protocol: str
    def __init__(self, *, userInfo: UserInformationProto | None = ..., protocol: str | None = ...) -> None: ...

class RequestHeaderProto(Message):
    methodName: str
    declaringClassProtocolName: str
    clientProtocolVersion: int
    def __init__(self, *, methodName: str | None = ..., declaringClassProtocolName: str | None = ..., clientProtocolVersion: int | None = ...) -> None: ...
