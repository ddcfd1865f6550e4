"""Types of the messages of `hadoop.hdfs`: made by tools/hadoop_protos.py, not by hand."""

from collections.abc import Iterable

from google.protobuf.message import Message

from howdah.hadoop.protos.containers import Composites, EnumType, Scalars
from howdah.hadoop.protos import common


class _StorageTypeProto(EnumType):
    DISK: int
    SSD: int
    ARCHIVE: int
    RAM_DISK: int
    PROVIDED: int
    NVDIMM: int
StorageTypeProto: _StorageTypeProto

class _CipherSuiteProto(EnumType):
    UNKNOWN: int
    AES_CTR_NOPADDING: int
    SM4_CTR_NOPADDING: int
CipherSuiteProto: _CipherSuiteProto

class _CryptoProtocolVersionProto(EnumType):
    UNKNOWN_PROTOCOL_VERSION: int
    ENCRYPTION_ZONES: int
CryptoProtocolVersionProto: _CryptoProtocolVersionProto

class _ErasureCodingPolicyState(EnumType):
    DISABLED: int
    ENABLED: int
    REMOVED: int
ErasureCodingPolicyState: _ErasureCodingPolicyState

class _ChecksumTypeProto(EnumType):
    CHECKSUM_NULL: int
    CHECKSUM_CRC32: int
    CHECKSUM_CRC32C: int
ChecksumTypeProto: _ChecksumTypeProto

class _SafeModeActionProto(EnumType):
    SAFEMODE_LEAVE: int
    SAFEMODE_ENTER: int
    SAFEMODE_GET: int
    SAFEMODE_FORCE_EXIT: int
SafeModeActionProto: _SafeModeActionProto

class FsPermissionProto(Message):
    perm: int
    def __init__(self, *, perm: int | None = ...) -> None: ...

class ExtendedBlockProto(Message):
    poolId: str
    blockId: int
    generationStamp: int
    numBytes: int
    def __init__(self, *, poolId: str | None = ..., blockId: int | None = ..., generationStamp: int | None = ..., numBytes: int | None = ...) -> None: ...

class DatanodeIDProto(Message):
    ipAddr: str
    hostName: str
    datanodeUuid: str
    xferPort: int
    infoPort: int
    ipcPort: int
    infoSecurePort: int
    def __init__(self, *, ipAddr: str | None = ..., hostName: str | None = ..., datanodeUuid: str | None = ..., xferPort: int | None = ..., infoPort: int | None = ..., ipcPort: int | None = ..., infoSecurePort: int | None = ...) -> None: ...

class DatanodeInfoProto(Message):
    class _AdminState(EnumType):
        NORMAL: int
        DECOMMISSION_INPROGRESS: int
        DECOMMISSIONED: int
        ENTERING_MAINTENANCE: int
        IN_MAINTENANCE: int
    AdminState: _AdminState
    @property
    def id(self) -> DatanodeIDProto: ...
    capacity: int
    dfsUsed: int
    remaining: int
    blockPoolUsed: int
    lastUpdate: int
    xceiverCount: int
    location: str
    nonDfsUsed: int
    adminState: int
    cacheCapacity: int
    cacheUsed: int
    lastUpdateMonotonic: int
    upgradeDomain: str
    lastBlockReportTime: int
    lastBlockReportMonotonic: int
    numBlocks: int
    def __init__(self, *, id: DatanodeIDProto | None = ..., capacity: int | None = ..., dfsUsed: int | None = ..., remaining: int | None = ..., blockPoolUsed: int | None = ..., lastUpdate: int | None = ..., xceiverCount: int | None = ..., location: str | None = ..., nonDfsUsed: int | None = ..., adminState: int | None = ..., cacheCapacity: int | None = ..., cacheUsed: int | None = ..., lastUpdateMonotonic: int | None = ..., upgradeDomain: str | None = ..., lastBlockReportTime: int | None = ..., lastBlockReportMonotonic: int | None = ..., numBlocks: int | None = ...) -> None: ...

class ContentSummaryProto(Message):
    length: int
    fileCount: int
    directoryCount: int
    quota: int
    spaceConsumed: int
    spaceQuota: int
    @property
    def typeQuotaInfos(self) -> StorageTypeQuotaInfosProto: ...
    snapshotLength: int
    snapshotFileCount: int
    snapshotDirectoryCount: int
    snapshotSpaceConsumed: int
    erasureCodingPolicy: str
    def __init__(self, *, length: int | None = ..., fileCount: int | None = ..., directoryCount: int | None = ..., quota: int | None = ..., spaceConsumed: int | None = ..., spaceQuota: int | None = ..., typeQuotaInfos: StorageTypeQuotaInfosProto | None = ..., snapshotLength: int | None = ..., snapshotFileCount: int | None = ..., snapshotDirectoryCount: int | None = ..., snapshotSpaceConsumed: int | None = ..., erasureCodingPolicy: str | None = ...) -> None: ...

class StorageTypeQuotaInfosProto(Message):
    @property
    def typeQuotaInfo(self) -> Composites[StorageTypeQuotaInfoProto]: ...
    def __init__(self, *, typeQuotaInfo: Iterable[StorageTypeQuotaInfoProto] = ...) -> None: ...

class StorageTypeQuotaInfoProto(Message):
    type: int
    quota: int
    consumed: int
    def __init__(self, *, type: int | None = ..., quota: int | None = ..., consumed: int | None = ...) -> None: ...

class LocatedBlockProto(Message):
    @property
    def b(self) -> ExtendedBlockProto: ...
    offset: int
    @property
    def locs(self) -> Composites[DatanodeInfoProto]: ...
    corrupt: bool
    @property
    def blockToken(self) -> common.TokenProto: ...
    @property
    def isCached(self) -> Scalars[bool]: ...
    @property
    def storageTypes(self) -> Scalars[int]: ...
    @property
    def storageIDs(self) -> Scalars[str]: ...
    blockIndices: bytes
    @property
    def blockTokens(self) -> Composites[common.TokenProto]: ...
    def __init__(self, *, b: ExtendedBlockProto | None = ..., offset: int | None = ..., locs: Iterable[DatanodeInfoProto] = ..., corrupt: bool | None = ..., blockToken: common.TokenProto | None = ..., isCached: Iterable[bool] = ..., storageTypes: Iterable[int] = ..., storageIDs: Iterable[str] = ..., blockIndices: bytes | None = ..., blockTokens: Iterable[common.TokenProto] = ...) -> None: ...

class FileEncryptionInfoProto(Message):
    suite: int
    cryptoProtocolVersion: int
    key: bytes
    iv: bytes
    keyName: str
    ezKeyVersionName: str
    def __init__(self, *, suite: int | None = ..., cryptoProtocolVersion: int | None = ..., key: bytes | None = ..., iv: bytes | None = ..., keyName: str | None = ..., ezKeyVersionName: str | None = ...) -> None: ...

class LocatedBlocksProto(Message):
    fileLength: int
    @property
    def blocks(self) -> Composites[LocatedBlockProto]: ...
    underConstruction: bool
    @property
    def lastBlock(self) -> LocatedBlockProto: ...
    isLastBlockComplete: bool
    @property
    def fileEncryptionInfo(self) -> FileEncryptionInfoProto: ...
    @property
    def ecPolicy(self) -> ErasureCodingPolicyProto: ...
    def __init__(self, *, fileLength: int | None = ..., blocks: Iterable[LocatedBlockProto] = ..., underConstruction: bool | None = ..., lastBlock: LocatedBlockProto | None = ..., isLastBlockComplete: bool | None = ..., fileEncryptionInfo: FileEncryptionInfoProto | None = ..., ecPolicy: ErasureCodingPolicyProto | None = ...) -> None: ...

class ECSchemaOptionEntryProto(Message):
    key: str
    value: str
    def __init__(self, *, key: str | None = ..., value: str | None = ...) -> None: ...

class ECSchemaProto(Message):
    codecName: str
    dataUnits: int
    parityUnits: int
    @property
    def options(self) -> Composites[ECSchemaOptionEntryProto]: ...
    def __init__(self, *, codecName: str | None = ..., dataUnits: int | None = ..., parityUnits: int | None = ..., options: Iterable[ECSchemaOptionEntryProto] = ...) -> None: ...

class ErasureCodingPolicyProto(Message):
    name: str
    @property
    def schema(self) -> ECSchemaProto: ...
    cellSize: int
    id: int
    state: int
    def __init__(self, *, name: str | None = ..., schema: ECSchemaProto | None = ..., cellSize: int | None = ..., id: int | None = ..., state: int | None = ...) -> None: ...

class HdfsFileStatusProto(Message):
    class _FileType(EnumType):
        IS_DIR: int
        IS_FILE: int
        IS_SYMLINK: int
    FileType: _FileType
    class _Flags(EnumType):
        HAS_ACL: int
        HAS_CRYPT: int
        HAS_EC: int
        SNAPSHOT_ENABLED: int
    Flags: _Flags
    fileType: int
    path: bytes
    length: int
    @property
    def permission(self) -> FsPermissionProto: ...
    owner: str
    group: str
    modification_time: int
    access_time: int
    symlink: bytes
    block_replication: int
    blocksize: int
    @property
    def locations(self) -> LocatedBlocksProto: ...
    fileId: int
    childrenNum: int
    @property
    def fileEncryptionInfo(self) -> FileEncryptionInfoProto: ...
    storagePolicy: int
    @property
    def ecPolicy(self) -> ErasureCodingPolicyProto: ...
    flags: int
    namespace: str
    def __init__(self, *, fileType: int | None = ..., path: bytes | None = ..., length: int | None = ..., permission: FsPermissionProto | None = ..., owner: str | None = ..., group: str | None = ..., modification_time: int | None = ..., access_time: int | None = ..., symlink: bytes | None = ..., block_replication: int | None = ..., blocksize: int | None = ..., locations: LocatedBlocksProto | None = ..., fileId: int | None = ..., childrenNum: int | None = ..., fileEncryptionInfo: FileEncryptionInfoProto | None = ..., storagePolicy: int | None = ..., ecPolicy: ErasureCodingPolicyProto | None = ..., flags: int | None = ..., namespace: str | None = ...) -> None: ...

class FsServerDefaultsProto(Message):
    blockSize: int
    bytesPerChecksum: int
    writePacketSize: int
    replication: int
    fileBufferSize: int
    encryptDataTransfer: bool
    trashInterval: int
    checksumType: int
    keyProviderUri: str
    policyId: int
    snapshotTrashRootEnabled: bool
    def __init__(self, *, blockSize: int | None = ..., bytesPerChecksum: int | None = ..., writePacketSize: int | None = ..., replication: int | None = ..., fileBufferSize: int | None = ..., encryptDataTransfer: bool | None = ..., trashInterval: int | None = ..., checksumType: int | None = ..., keyProviderUri: str | None = ..., policyId: int | None = ..., snapshotTrashRootEnabled: bool | None = ...) -> None: ...

class GetServerDefaultsRequestProto(Message):
    def __init__(self) -> None: ...

class GetServerDefaultsResponseProto(Message):
    @property
    def serverDefaults(self) -> FsServerDefaultsProto: ...
    def __init__(self, *, serverDefaults: FsServerDefaultsProto | None = ...) -> None: ...

class SetReplicationRequestProto(Message):
    src: str
    replication: int
    def __init__(self, *, src: str | None = ..., replication: int | None = ...) -> None: ...

class SetReplicationResponseProto(Message):
    result: bool
    def __init__(self, *, result: bool | None = ...) -> None: ...

class SetPermissionRequestProto(Message):
    src: str
    @property
    def permission(self) -> FsPermissionProto: ...
    def __init__(self, *, src: str | None = ..., permission: FsPermissionProto | None = ...) -> None: ...

class SetPermissionResponseProto(Message):
    def __init__(self) -> None: ...

class SetOwnerRequestProto(Message):
    src: str
    username: str
    groupname: str
    def __init__(self, *, src: str | None = ..., username: str | None = ..., groupname: str | None = ...) -> None: ...

class SetOwnerResponseProto(Message):
    def __init__(self) -> None: ...

class Rename2RequestProto(Message):
    src: str
    dst: str
    overwriteDest: bool
    moveToTrash: bool
    def __init__(self, *, src: str | None = ..., dst: str | None = ..., overwriteDest: bool | None = ..., moveToTrash: bool | None = ...) -> None: ...

class Rename2ResponseProto(Message):
    def __init__(self) -> None: ...

class DeleteRequestProto(Message):
    src: str
    recursive: bool
    def __init__(self, *, src: str | None = ..., recursive: bool | None = ...) -> None: ...

class DeleteResponseProto(Message):
    result: bool
    def __init__(self, *, result: bool | None = ...) -> None: ...

class MkdirsRequestProto(Message):
    src: str
    @property
    def masked(self) -> FsPermissionProto: ...
    createParent: bool
    @property
    def unmasked(self) -> FsPermissionProto: ...
    def __init__(self, *, src: str | None = ..., masked: FsPermissionProto | None = ..., createParent: bool | None = ..., unmasked: FsPermissionProto | None = ...) -> None: ...

class MkdirsResponseProto(Message):
    result: bool
    def __init__(self, *, result: bool | None = ...) -> None: ...

class RecoverLeaseRequestProto(Message):
    src: str
    clientName: str
    def __init__(self, *, src: str | None = ..., clientName: str | None = ...) -> None: ...

class RecoverLeaseResponseProto(Message):
    result: bool
    def __init__(self, *, result: bool | None = ...) -> None: ...

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

class GetFileInfoRequestProto(Message):
    src: str
    def __init__(self, *, src: str | None = ...) -> None: ...

class GetFileInfoResponseProto(Message):
    @property
    def fs(self) -> HdfsFileStatusProto: ...
    def __init__(self, *, fs: HdfsFileStatusProto | None = ...) -> None: ...

class GetContentSummaryRequestProto(Message):
    path: str
    def __init__(self, *, path: str | None = ...) -> None: ...

class GetContentSummaryResponseProto(Message):
    @property
    def summary(self) -> ContentSummaryProto: ...
    def __init__(self, *, summary: ContentSummaryProto | None = ...) -> None: ...

class SetQuotaRequestProto(Message):
    path: str
    namespaceQuota: int
    storagespaceQuota: int
    storageType: int
    def __init__(self, *, path: str | None = ..., namespaceQuota: int | None = ..., storagespaceQuota: int | None = ..., storageType: int | None = ...) -> None: ...

class SetQuotaResponseProto(Message):
    def __init__(self) -> None: ...

class SetTimesRequestProto(Message):
    src: str
    mtime: int
    atime: int
    def __init__(self, *, src: str | None = ..., mtime: int | None = ..., atime: int | None = ...) -> None: ...

class SetTimesResponseProto(Message):
    def __init__(self) -> None: ...
