"""Types of the messages of `hadoop.hdfs`: made by tools/hadoop_protos.py, not by hand."""

from google.protobuf.message import Message

from howdah.hadoop.protos.containers import EnumType


class _SafeModeActionProto(EnumType):
    SAFEMODE_LEAVE: int
    SAFEMODE_ENTER: int
    SAFEMODE_GET: int
    SAFEMODE_FORCE_EXIT: int
SafeModeActionProto: _SafeModeActionProto

class GetFsStatusRequestProto(Message):
    def __init__(self) -> None: ...

class GetFsStatsResponseProto(Message):
    capacity: int
    used: int
    remaining: int
    under_replicated: int
    corrupt_blocks: int
    missing_blocks: int
    missing_repl_one_blocks: int
    blocks_in_future: int
    pending_deletion_blocks: int
    def __init__(self, *, capacity: int | None = ..., used: int | None = ..., remaining: int | None = ..., under_replicated: int | None = ..., corrupt_blocks: int | None = ..., missing_blocks: int | None = ..., missing_repl_one_blocks: int | None = ..., blocks_in_future: int | None = ..., pending_deletion_blocks: int | None = ...) -> None: ...

class SetSafeModeRequestProto(Message):
    action: int
    checked: bool
    def __init__(self, *, action: int | None = ..., checked: bool | None = ...) -> None: ...

class SetSafeModeResponseProto(Message):
    result: bool
    def __init__(self, *, result: bool | None = ...) -> None: ...

class GetServerDefaultsRequestProto(Message):
    def __init__(self) -> None: ...

class FsServerDefaultsProto(Message):
    keyProviderUri: str
    def __init__(self, *, keyProviderUri: str | None = ...) -> None: ...

class GetServerDefaultsResponseProto(Message):
    @property
    def serverDefaults(self) -> FsServerDefaultsProto: ...
    def __init__(self, *, serverDefaults: FsServerDefaultsProto | None = ...) -> None: ...

class GetEZForPathRequestProto(Message):
    src: str
    def __init__(self, *, src: str | None = ...) -> None: ...

class EncryptionZoneProto(Message):
    id: int
    path: str
    keyName: str
    def __init__(self, *, id: int | None = ..., path: str | None = ..., keyName: str | None = ...) -> None: ...

class GetEZForPathResponseProto(Message):
    @property
    def zone(self) -> EncryptionZoneProto: ...
    def __init__(self, *, zone: EncryptionZoneProto | None = ...) -> None: ...
