"""Types of the messages of `hadoop.yarn`: made by tools/hadoop_protos.py, not by hand."""

from collections.abc import Iterable

from google.protobuf.message import Message

from howdah.hadoop.protos.containers import Composites, EnumType, Scalars
from howdah.hadoop.protos import common


class _ResourceTypesProto(EnumType):
    COUNTABLE: int
ResourceTypesProto: _ResourceTypesProto

class _ContainerStateProto(EnumType):
    C_NEW: int
    C_RUNNING: int
    C_COMPLETE: int
ContainerStateProto: _ContainerStateProto

class _ContainerSubStateProto(EnumType):
    CSS_SCHEDULED: int
    CSS_RUNNING: int
    CSS_PAUSED: int
    CSS_COMPLETING: int
    CSS_DONE: int
ContainerSubStateProto: _ContainerSubStateProto

class _YarnApplicationStateProto(EnumType):
    NEW: int
    NEW_SAVING: int
    SUBMITTED: int
    ACCEPTED: int
    RUNNING: int
    FINISHED: int
    FAILED: int
    KILLED: int
YarnApplicationStateProto: _YarnApplicationStateProto

class _YarnApplicationAttemptStateProto(EnumType):
    APP_ATTEMPT_NEW: int
    APP_ATTEMPT_SUBMITTED: int
    APP_ATTEMPT_SCHEDULED: int
    APP_ATTEMPT_ALLOCATED_SAVING: int
    APP_ATTEMPT_ALLOCATED: int
    APP_ATTEMPT_LAUNCHED: int
    APP_ATTEMPT_FAILED: int
    APP_ATTEMPT_RUNNING: int
    APP_ATTEMPT_FINISHING: int
    APP_ATTEMPT_FINISHED: int
    APP_ATTEMPT_KILLED: int
YarnApplicationAttemptStateProto: _YarnApplicationAttemptStateProto

class _FinalApplicationStatusProto(EnumType):
    APP_UNDEFINED: int
    APP_SUCCEEDED: int
    APP_FAILED: int
    APP_KILLED: int
    APP_ENDED: int
FinalApplicationStatusProto: _FinalApplicationStatusProto

class _LocalResourceVisibilityProto(EnumType):
    PUBLIC: int
    PRIVATE: int
    APPLICATION: int
LocalResourceVisibilityProto: _LocalResourceVisibilityProto

class _LocalResourceTypeProto(EnumType):
    ARCHIVE: int
    FILE: int
    PATTERN: int
LocalResourceTypeProto: _LocalResourceTypeProto

class _LogAggregationStatusProto(EnumType):
    LOG_DISABLED: int
    LOG_NOT_START: int
    LOG_RUNNING: int
    LOG_SUCCEEDED: int
    LOG_FAILED: int
    LOG_TIME_OUT: int
    LOG_RUNNING_WITH_FAILURE: int
LogAggregationStatusProto: _LogAggregationStatusProto

class _NodeStateProto(EnumType):
    NS_NEW: int
    NS_RUNNING: int
    NS_UNHEALTHY: int
    NS_DECOMMISSIONED: int
    NS_LOST: int
    NS_REBOOTED: int
    NS_DECOMMISSIONING: int
    NS_SHUTDOWN: int
NodeStateProto: _NodeStateProto

class _NodeUpdateTypeProto(EnumType):
    NODE_USABLE: int
    NODE_UNUSABLE: int
    NODE_DECOMMISSIONING: int
NodeUpdateTypeProto: _NodeUpdateTypeProto

class _NodeAttributeTypeProto(EnumType):
    STRING: int
NodeAttributeTypeProto: _NodeAttributeTypeProto

class _ExecutionTypeProto(EnumType):
    GUARANTEED: int
    OPPORTUNISTIC: int
ExecutionTypeProto: _ExecutionTypeProto

class _AMCommandProto(EnumType):
    AM_RESYNC: int
    AM_SHUTDOWN: int
AMCommandProto: _AMCommandProto

class _RejectionReasonProto(EnumType):
    RRP_COULD_NOT_PLACE_ON_NODE: int
    RRP_COULD_NOT_SCHEDULE_ON_NODE: int
RejectionReasonProto: _RejectionReasonProto

class _ApplicationTimeoutTypeProto(EnumType):
    APP_TIMEOUT_LIFETIME: int
ApplicationTimeoutTypeProto: _ApplicationTimeoutTypeProto

class _ApplicationAccessTypeProto(EnumType):
    APPACCESS_VIEW_APP: int
    APPACCESS_MODIFY_APP: int
ApplicationAccessTypeProto: _ApplicationAccessTypeProto

class _QueueStateProto(EnumType):
    Q_STOPPED: int
    Q_RUNNING: int
    Q_DRAINING: int
QueueStateProto: _QueueStateProto

class _QueueACLProto(EnumType):
    QACL_SUBMIT_APPLICATIONS: int
    QACL_ADMINISTER_QUEUE: int
QueueACLProto: _QueueACLProto

class _SignalContainerCommandProto(EnumType):
    OUTPUT_THREAD_DUMP: int
    GRACEFUL_SHUTDOWN: int
    FORCEFUL_SHUTDOWN: int
SignalContainerCommandProto: _SignalContainerCommandProto

class _NodeAttributeOpCodeProto(EnumType):
    NO_OP: int
    EQ: int
    NE: int
NodeAttributeOpCodeProto: _NodeAttributeOpCodeProto

class _ContainerRetryPolicyProto(EnumType):
    NEVER_RETRY: int
    RETRY_ON_ALL_ERRORS: int
    RETRY_ON_SPECIFIC_ERROR_CODES: int
ContainerRetryPolicyProto: _ContainerRetryPolicyProto

class _ContainerUpdateTypeProto(EnumType):
    INCREASE_RESOURCE: int
    DECREASE_RESOURCE: int
    PROMOTE_EXECUTION_TYPE: int
    DEMOTE_EXECUTION_TYPE: int
ContainerUpdateTypeProto: _ContainerUpdateTypeProto

class _SchedulerResourceTypes(EnumType):
    MEMORY: int
    CPU: int
SchedulerResourceTypes: _SchedulerResourceTypes

class _ApplicationsRequestScopeProto(EnumType):
    ALL: int
    VIEWABLE: int
    OWN: int
ApplicationsRequestScopeProto: _ApplicationsRequestScopeProto

class SerializedExceptionProto(Message):
    message: str
    trace: str
    class_name: str
    @property
    def cause(self) -> SerializedExceptionProto: ...
    def __init__(self, *, message: str | None = ..., trace: str | None = ..., class_name: str | None = ..., cause: SerializedExceptionProto | None = ...) -> None: ...

class ApplicationIdProto(Message):
    id: int
    cluster_timestamp: int
    def __init__(self, *, id: int | None = ..., cluster_timestamp: int | None = ...) -> None: ...

class ApplicationAttemptIdProto(Message):
    @property
    def application_id(self) -> ApplicationIdProto: ...
    attemptId: int
    def __init__(self, *, application_id: ApplicationIdProto | None = ..., attemptId: int | None = ...) -> None: ...

class ContainerIdProto(Message):
    @property
    def app_id(self) -> ApplicationIdProto: ...
    @property
    def app_attempt_id(self) -> ApplicationAttemptIdProto: ...
    id: int
    def __init__(self, *, app_id: ApplicationIdProto | None = ..., app_attempt_id: ApplicationAttemptIdProto | None = ..., id: int | None = ...) -> None: ...

class ResourceInformationProto(Message):
    key: str
    value: int
    units: str
    type: int
    @property
    def tags(self) -> Scalars[str]: ...
    @property
    def attributes(self) -> Composites[StringStringMapProto]: ...
    def __init__(self, *, key: str | None = ..., value: int | None = ..., units: str | None = ..., type: int | None = ..., tags: Iterable[str] = ..., attributes: Iterable[StringStringMapProto] = ...) -> None: ...

class ResourceTypeInfoProto(Message):
    name: str
    units: str
    type: int
    def __init__(self, *, name: str | None = ..., units: str | None = ..., type: int | None = ...) -> None: ...

class ResourceProto(Message):
    memory: int
    virtual_cores: int
    @property
    def resource_value_map(self) -> Composites[ResourceInformationProto]: ...
    def __init__(self, *, memory: int | None = ..., virtual_cores: int | None = ..., resource_value_map: Iterable[ResourceInformationProto] = ...) -> None: ...

class ResourceUtilizationProto(Message):
    pmem: int
    vmem: int
    cpu: float
    @property
    def customResources(self) -> Composites[StringFloatMapProto]: ...
    def __init__(self, *, pmem: int | None = ..., vmem: int | None = ..., cpu: float | None = ..., customResources: Iterable[StringFloatMapProto] = ...) -> None: ...

class ResourceProfileEntry(Message):
    name: str
    @property
    def resources(self) -> ResourceProto: ...
    def __init__(self, *, name: str | None = ..., resources: ResourceProto | None = ...) -> None: ...

class ResourceProfilesProto(Message):
    @property
    def resource_profiles_map(self) -> Composites[ResourceProfileEntry]: ...
    def __init__(self, *, resource_profiles_map: Iterable[ResourceProfileEntry] = ...) -> None: ...

class PriorityProto(Message):
    priority: int
    def __init__(self, *, priority: int | None = ...) -> None: ...

class ContainerProto(Message):
    @property
    def id(self) -> ContainerIdProto: ...
    @property
    def nodeId(self) -> NodeIdProto: ...
    node_http_address: str
    @property
    def resource(self) -> ResourceProto: ...
    @property
    def priority(self) -> PriorityProto: ...
    @property
    def container_token(self) -> common.TokenProto: ...
    execution_type: int
    allocation_request_id: int
    version: int
    @property
    def allocation_tags(self) -> Scalars[str]: ...
    exposed_ports: str
    def __init__(self, *, id: ContainerIdProto | None = ..., nodeId: NodeIdProto | None = ..., node_http_address: str | None = ..., resource: ResourceProto | None = ..., priority: PriorityProto | None = ..., container_token: common.TokenProto | None = ..., execution_type: int | None = ..., allocation_request_id: int | None = ..., version: int | None = ..., allocation_tags: Iterable[str] = ..., exposed_ports: str | None = ...) -> None: ...

class ContainerReportProto(Message):
    @property
    def container_id(self) -> ContainerIdProto: ...
    @property
    def resource(self) -> ResourceProto: ...
    @property
    def node_id(self) -> NodeIdProto: ...
    @property
    def priority(self) -> PriorityProto: ...
    creation_time: int
    finish_time: int
    diagnostics_info: str
    log_url: str
    container_exit_status: int
    container_state: int
    node_http_address: str
    executionType: int
    exposed_ports: str
    def __init__(self, *, container_id: ContainerIdProto | None = ..., resource: ResourceProto | None = ..., node_id: NodeIdProto | None = ..., priority: PriorityProto | None = ..., creation_time: int | None = ..., finish_time: int | None = ..., diagnostics_info: str | None = ..., log_url: str | None = ..., container_exit_status: int | None = ..., container_state: int | None = ..., node_http_address: str | None = ..., executionType: int | None = ..., exposed_ports: str | None = ...) -> None: ...

class URLProto(Message):
    scheme: str
    host: str
    port: int
    file: str
    userInfo: str
    def __init__(self, *, scheme: str | None = ..., host: str | None = ..., port: int | None = ..., file: str | None = ..., userInfo: str | None = ...) -> None: ...

class LocalResourceProto(Message):
    @property
    def resource(self) -> URLProto: ...
    size: int
    timestamp: int
    type: int
    visibility: int
    pattern: str
    should_be_uploaded_to_shared_cache: bool
    def __init__(self, *, resource: URLProto | None = ..., size: int | None = ..., timestamp: int | None = ..., type: int | None = ..., visibility: int | None = ..., pattern: str | None = ..., should_be_uploaded_to_shared_cache: bool | None = ...) -> None: ...

class StringLongMapProto(Message):
    key: str
    value: int
    def __init__(self, *, key: str | None = ..., value: int | None = ...) -> None: ...

class StringFloatMapProto(Message):
    key: str
    value: float
    def __init__(self, *, key: str | None = ..., value: float | None = ...) -> None: ...

class ApplicationResourceUsageReportProto(Message):
    num_used_containers: int
    num_reserved_containers: int
    @property
    def used_resources(self) -> ResourceProto: ...
    @property
    def reserved_resources(self) -> ResourceProto: ...
    @property
    def needed_resources(self) -> ResourceProto: ...
    memory_seconds: int
    vcore_seconds: int
    queue_usage_percentage: float
    cluster_usage_percentage: float
    preempted_memory_seconds: int
    preempted_vcore_seconds: int
    @property
    def application_resource_usage_map(self) -> Composites[StringLongMapProto]: ...
    @property
    def application_preempted_resource_usage_map(self) -> Composites[StringLongMapProto]: ...
    def __init__(self, *, num_used_containers: int | None = ..., num_reserved_containers: int | None = ..., used_resources: ResourceProto | None = ..., reserved_resources: ResourceProto | None = ..., needed_resources: ResourceProto | None = ..., memory_seconds: int | None = ..., vcore_seconds: int | None = ..., queue_usage_percentage: float | None = ..., cluster_usage_percentage: float | None = ..., preempted_memory_seconds: int | None = ..., preempted_vcore_seconds: int | None = ..., application_resource_usage_map: Iterable[StringLongMapProto] = ..., application_preempted_resource_usage_map: Iterable[StringLongMapProto] = ...) -> None: ...

class ApplicationReportProto(Message):
    @property
    def applicationId(self) -> ApplicationIdProto: ...
    user: str
    queue: str
    name: str
    host: str
    rpc_port: int
    @property
    def client_to_am_token(self) -> common.TokenProto: ...
    yarn_application_state: int
    trackingUrl: str
    diagnostics: str
    startTime: int
    finishTime: int
    final_application_status: int
    @property
    def app_resource_Usage(self) -> ApplicationResourceUsageReportProto: ...
    originalTrackingUrl: str
    @property
    def currentApplicationAttemptId(self) -> ApplicationAttemptIdProto: ...
    progress: float
    applicationType: str
    @property
    def am_rm_token(self) -> common.TokenProto: ...
    @property
    def applicationTags(self) -> Scalars[str]: ...
    log_aggregation_status: int
    unmanaged_application: bool
    @property
    def priority(self) -> PriorityProto: ...
    appNodeLabelExpression: str
    amNodeLabelExpression: str
    @property
    def appTimeouts(self) -> Composites[AppTimeoutsMapProto]: ...
    launchTime: int
    submitTime: int
    rmClusterId: str
    def __init__(self, *, applicationId: ApplicationIdProto | None = ..., user: str | None = ..., queue: str | None = ..., name: str | None = ..., host: str | None = ..., rpc_port: int | None = ..., client_to_am_token: common.TokenProto | None = ..., yarn_application_state: int | None = ..., trackingUrl: str | None = ..., diagnostics: str | None = ..., startTime: int | None = ..., finishTime: int | None = ..., final_application_status: int | None = ..., app_resource_Usage: ApplicationResourceUsageReportProto | None = ..., originalTrackingUrl: str | None = ..., currentApplicationAttemptId: ApplicationAttemptIdProto | None = ..., progress: float | None = ..., applicationType: str | None = ..., am_rm_token: common.TokenProto | None = ..., applicationTags: Iterable[str] = ..., log_aggregation_status: int | None = ..., unmanaged_application: bool | None = ..., priority: PriorityProto | None = ..., appNodeLabelExpression: str | None = ..., amNodeLabelExpression: str | None = ..., appTimeouts: Iterable[AppTimeoutsMapProto] = ..., launchTime: int | None = ..., submitTime: int | None = ..., rmClusterId: str | None = ...) -> None: ...

class AppTimeoutsMapProto(Message):
    application_timeout_type: int
    @property
    def application_timeout(self) -> ApplicationTimeoutProto: ...
    def __init__(self, *, application_timeout_type: int | None = ..., application_timeout: ApplicationTimeoutProto | None = ...) -> None: ...

class ApplicationTimeoutProto(Message):
    application_timeout_type: int
    expire_time: str
    remaining_time: int
    def __init__(self, *, application_timeout_type: int | None = ..., expire_time: str | None = ..., remaining_time: int | None = ...) -> None: ...

class ApplicationAttemptReportProto(Message):
    @property
    def application_attempt_id(self) -> ApplicationAttemptIdProto: ...
    host: str
    rpc_port: int
    tracking_url: str
    diagnostics: str
    yarn_application_attempt_state: int
    @property
    def am_container_id(self) -> ContainerIdProto: ...
    original_tracking_url: str
    startTime: int
    finishTime: int
    def __init__(self, *, application_attempt_id: ApplicationAttemptIdProto | None = ..., host: str | None = ..., rpc_port: int | None = ..., tracking_url: str | None = ..., diagnostics: str | None = ..., yarn_application_attempt_state: int | None = ..., am_container_id: ContainerIdProto | None = ..., original_tracking_url: str | None = ..., startTime: int | None = ..., finishTime: int | None = ...) -> None: ...

class NodeIdProto(Message):
    host: str
    port: int
    def __init__(self, *, host: str | None = ..., port: int | None = ...) -> None: ...

class NodeReportProto(Message):
    @property
    def nodeId(self) -> NodeIdProto: ...
    httpAddress: str
    rackName: str
    @property
    def used(self) -> ResourceProto: ...
    @property
    def capability(self) -> ResourceProto: ...
    numContainers: int
    node_state: int
    health_report: str
    last_health_report_time: int
    @property
    def node_labels(self) -> Scalars[str]: ...
    @property
    def containers_utilization(self) -> ResourceUtilizationProto: ...
    @property
    def node_utilization(self) -> ResourceUtilizationProto: ...
    decommissioning_timeout: int
    node_update_type: int
    @property
    def node_attributes(self) -> Composites[NodeAttributeProto]: ...
    def __init__(self, *, nodeId: NodeIdProto | None = ..., httpAddress: str | None = ..., rackName: str | None = ..., used: ResourceProto | None = ..., capability: ResourceProto | None = ..., numContainers: int | None = ..., node_state: int | None = ..., health_report: str | None = ..., last_health_report_time: int | None = ..., node_labels: Iterable[str] = ..., containers_utilization: ResourceUtilizationProto | None = ..., node_utilization: ResourceUtilizationProto | None = ..., decommissioning_timeout: int | None = ..., node_update_type: int | None = ..., node_attributes: Iterable[NodeAttributeProto] = ...) -> None: ...

class NodeLabelProto(Message):
    name: str
    isExclusive: bool
    def __init__(self, *, name: str | None = ..., isExclusive: bool | None = ...) -> None: ...

class NodeAttributeKeyProto(Message):
    attributePrefix: str
    attributeName: str
    def __init__(self, *, attributePrefix: str | None = ..., attributeName: str | None = ...) -> None: ...

class NodeAttributeProto(Message):
    @property
    def attributeKey(self) -> NodeAttributeKeyProto: ...
    attributeType: int
    attributeValue: str
    def __init__(self, *, attributeKey: NodeAttributeKeyProto | None = ..., attributeType: int | None = ..., attributeValue: str | None = ...) -> None: ...

class NodeAttributeInfoProto(Message):
    @property
    def attributeKey(self) -> NodeAttributeKeyProto: ...
    attributeType: int
    def __init__(self, *, attributeKey: NodeAttributeKeyProto | None = ..., attributeType: int | None = ...) -> None: ...

class ResourceRequestProto(Message):
    @property
    def priority(self) -> PriorityProto: ...
    resource_name: str
    @property
    def capability(self) -> ResourceProto: ...
    num_containers: int
    relax_locality: bool
    node_label_expression: str
    @property
    def execution_type_request(self) -> ExecutionTypeRequestProto: ...
    allocation_request_id: int
    def __init__(self, *, priority: PriorityProto | None = ..., resource_name: str | None = ..., capability: ResourceProto | None = ..., num_containers: int | None = ..., relax_locality: bool | None = ..., node_label_expression: str | None = ..., execution_type_request: ExecutionTypeRequestProto | None = ..., allocation_request_id: int | None = ...) -> None: ...

class ExecutionTypeRequestProto(Message):
    execution_type: int
    enforce_execution_type: bool
    def __init__(self, *, execution_type: int | None = ..., enforce_execution_type: bool | None = ...) -> None: ...

class SchedulingRequestProto(Message):
    allocationRequestId: int
    @property
    def priority(self) -> PriorityProto: ...
    @property
    def executionType(self) -> ExecutionTypeRequestProto: ...
    @property
    def allocationTags(self) -> Scalars[str]: ...
    @property
    def resourceSizing(self) -> ResourceSizingProto: ...
    @property
    def placementConstraint(self) -> PlacementConstraintProto: ...
    def __init__(self, *, allocationRequestId: int | None = ..., priority: PriorityProto | None = ..., executionType: ExecutionTypeRequestProto | None = ..., allocationTags: Iterable[str] = ..., resourceSizing: ResourceSizingProto | None = ..., placementConstraint: PlacementConstraintProto | None = ...) -> None: ...

class ResourceSizingProto(Message):
    numAllocations: int
    @property
    def resources(self) -> ResourceProto: ...
    def __init__(self, *, numAllocations: int | None = ..., resources: ResourceProto | None = ...) -> None: ...

class RejectedSchedulingRequestProto(Message):
    reason: int
    @property
    def request(self) -> SchedulingRequestProto: ...
    def __init__(self, *, reason: int | None = ..., request: SchedulingRequestProto | None = ...) -> None: ...

class PreemptionMessageProto(Message):
    @property
    def strictContract(self) -> StrictPreemptionContractProto: ...
    @property
    def contract(self) -> PreemptionContractProto: ...
    def __init__(self, *, strictContract: StrictPreemptionContractProto | None = ..., contract: PreemptionContractProto | None = ...) -> None: ...

class StrictPreemptionContractProto(Message):
    @property
    def container(self) -> Composites[PreemptionContainerProto]: ...
    def __init__(self, *, container: Iterable[PreemptionContainerProto] = ...) -> None: ...

class PreemptionContractProto(Message):
    @property
    def resource(self) -> Composites[PreemptionResourceRequestProto]: ...
    @property
    def container(self) -> Composites[PreemptionContainerProto]: ...
    def __init__(self, *, resource: Iterable[PreemptionResourceRequestProto] = ..., container: Iterable[PreemptionContainerProto] = ...) -> None: ...

class PreemptionContainerProto(Message):
    @property
    def id(self) -> ContainerIdProto: ...
    def __init__(self, *, id: ContainerIdProto | None = ...) -> None: ...

class PreemptionResourceRequestProto(Message):
    @property
    def resource(self) -> ResourceRequestProto: ...
    def __init__(self, *, resource: ResourceRequestProto | None = ...) -> None: ...

class ResourceBlacklistRequestProto(Message):
    @property
    def blacklist_additions(self) -> Scalars[str]: ...
    @property
    def blacklist_removals(self) -> Scalars[str]: ...
    def __init__(self, *, blacklist_additions: Iterable[str] = ..., blacklist_removals: Iterable[str] = ...) -> None: ...

class ApplicationSubmissionContextProto(Message):
    @property
    def application_id(self) -> ApplicationIdProto: ...
    application_name: str
    queue: str
    @property
    def priority(self) -> PriorityProto: ...
    @property
    def am_container_spec(self) -> ContainerLaunchContextProto: ...
    cancel_tokens_when_complete: bool
    unmanaged_am: bool
    maxAppAttempts: int
    @property
    def resource(self) -> ResourceProto: ...
    applicationType: str
    keep_containers_across_application_attempts: bool
    @property
    def applicationTags(self) -> Scalars[str]: ...
    attempt_failures_validity_interval: int
    @property
    def log_aggregation_context(self) -> LogAggregationContextProto: ...
    @property
    def reservation_id(self) -> ReservationIdProto: ...
    node_label_expression: str
    @property
    def am_container_resource_request(self) -> Composites[ResourceRequestProto]: ...
    @property
    def application_timeouts(self) -> Composites[ApplicationTimeoutMapProto]: ...
    @property
    def application_scheduling_properties(self) -> Composites[StringStringMapProto]: ...
    def __init__(self, *, application_id: ApplicationIdProto | None = ..., application_name: str | None = ..., queue: str | None = ..., priority: PriorityProto | None = ..., am_container_spec: ContainerLaunchContextProto | None = ..., cancel_tokens_when_complete: bool | None = ..., unmanaged_am: bool | None = ..., maxAppAttempts: int | None = ..., resource: ResourceProto | None = ..., applicationType: str | None = ..., keep_containers_across_application_attempts: bool | None = ..., applicationTags: Iterable[str] = ..., attempt_failures_validity_interval: int | None = ..., log_aggregation_context: LogAggregationContextProto | None = ..., reservation_id: ReservationIdProto | None = ..., node_label_expression: str | None = ..., am_container_resource_request: Iterable[ResourceRequestProto] = ..., application_timeouts: Iterable[ApplicationTimeoutMapProto] = ..., application_scheduling_properties: Iterable[StringStringMapProto] = ...) -> None: ...

class ApplicationTimeoutMapProto(Message):
    application_timeout_type: int
    timeout: int
    def __init__(self, *, application_timeout_type: int | None = ..., timeout: int | None = ...) -> None: ...

class LogAggregationContextProto(Message):
    include_pattern: str
    exclude_pattern: str
    rolled_logs_include_pattern: str
    rolled_logs_exclude_pattern: str
    log_aggregation_policy_class_name: str
    log_aggregation_policy_parameters: str
    def __init__(self, *, include_pattern: str | None = ..., exclude_pattern: str | None = ..., rolled_logs_include_pattern: str | None = ..., rolled_logs_exclude_pattern: str | None = ..., log_aggregation_policy_class_name: str | None = ..., log_aggregation_policy_parameters: str | None = ...) -> None: ...

class ApplicationACLMapProto(Message):
    accessType: int
    acl: str
    def __init__(self, *, accessType: int | None = ..., acl: str | None = ...) -> None: ...

class YarnClusterMetricsProto(Message):
    num_node_managers: int
    num_decommissioned_nms: int
    num_active_nms: int
    num_lost_nms: int
    num_unhealthy_nms: int
    num_rebooted_nms: int
    num_decommissioning_nms: int
    num_shutdown_nms: int
    def __init__(self, *, num_node_managers: int | None = ..., num_decommissioned_nms: int | None = ..., num_active_nms: int | None = ..., num_lost_nms: int | None = ..., num_unhealthy_nms: int | None = ..., num_rebooted_nms: int | None = ..., num_decommissioning_nms: int | None = ..., num_shutdown_nms: int | None = ...) -> None: ...

class QueueStatisticsProto(Message):
    numAppsSubmitted: int
    numAppsRunning: int
    numAppsPending: int
    numAppsCompleted: int
    numAppsKilled: int
    numAppsFailed: int
    numActiveUsers: int
    availableMemoryMB: int
    allocatedMemoryMB: int
    pendingMemoryMB: int
    reservedMemoryMB: int
    availableVCores: int
    allocatedVCores: int
    pendingVCores: int
    reservedVCores: int
    allocatedContainers: int
    pendingContainers: int
    reservedContainers: int
    def __init__(self, *, numAppsSubmitted: int | None = ..., numAppsRunning: int | None = ..., numAppsPending: int | None = ..., numAppsCompleted: int | None = ..., numAppsKilled: int | None = ..., numAppsFailed: int | None = ..., numActiveUsers: int | None = ..., availableMemoryMB: int | None = ..., allocatedMemoryMB: int | None = ..., pendingMemoryMB: int | None = ..., reservedMemoryMB: int | None = ..., availableVCores: int | None = ..., allocatedVCores: int | None = ..., pendingVCores: int | None = ..., reservedVCores: int | None = ..., allocatedContainers: int | None = ..., pendingContainers: int | None = ..., reservedContainers: int | None = ...) -> None: ...

class QueueInfoProto(Message):
    queueName: str
    capacity: float
    maximumCapacity: float
    currentCapacity: float
    state: int
    @property
    def childQueues(self) -> Composites[QueueInfoProto]: ...
    @property
    def applications(self) -> Composites[ApplicationReportProto]: ...
    @property
    def accessibleNodeLabels(self) -> Scalars[str]: ...
    defaultNodeLabelExpression: str
    @property
    def queueStatistics(self) -> QueueStatisticsProto: ...
    preemptionDisabled: bool
    @property
    def queueConfigurationsMap(self) -> Composites[QueueConfigurationsMapProto]: ...
    intraQueuePreemptionDisabled: bool
    weight: float
    queuePath: str
    maxParallelApps: int
    schedulerType: str
    minResourceVCore: int
    minResourceMemory: int
    maxResourceVCore: int
    maxResourceMemory: int
    reservedResourceVCore: int
    reservedResourceMemory: int
    steadyFairShareVCore: int
    steadyFairShareMemory: int
    subClusterId: str
    maxRunningApp: int
    def __init__(self, *, queueName: str | None = ..., capacity: float | None = ..., maximumCapacity: float | None = ..., currentCapacity: float | None = ..., state: int | None = ..., childQueues: Iterable[QueueInfoProto] = ..., applications: Iterable[ApplicationReportProto] = ..., accessibleNodeLabels: Iterable[str] = ..., defaultNodeLabelExpression: str | None = ..., queueStatistics: QueueStatisticsProto | None = ..., preemptionDisabled: bool | None = ..., queueConfigurationsMap: Iterable[QueueConfigurationsMapProto] = ..., intraQueuePreemptionDisabled: bool | None = ..., weight: float | None = ..., queuePath: str | None = ..., maxParallelApps: int | None = ..., schedulerType: str | None = ..., minResourceVCore: int | None = ..., minResourceMemory: int | None = ..., maxResourceVCore: int | None = ..., maxResourceMemory: int | None = ..., reservedResourceVCore: int | None = ..., reservedResourceMemory: int | None = ..., steadyFairShareVCore: int | None = ..., steadyFairShareMemory: int | None = ..., subClusterId: str | None = ..., maxRunningApp: int | None = ...) -> None: ...

class QueueConfigurationsProto(Message):
    capacity: float
    absoluteCapacity: float
    maxCapacity: float
    absoluteMaxCapacity: float
    maxAMPercentage: float
    @property
    def effectiveMinCapacity(self) -> ResourceProto: ...
    @property
    def effectiveMaxCapacity(self) -> ResourceProto: ...
    @property
    def configuredMinCapacity(self) -> ResourceProto: ...
    @property
    def configuredMaxCapacity(self) -> ResourceProto: ...
    def __init__(self, *, capacity: float | None = ..., absoluteCapacity: float | None = ..., maxCapacity: float | None = ..., absoluteMaxCapacity: float | None = ..., maxAMPercentage: float | None = ..., effectiveMinCapacity: ResourceProto | None = ..., effectiveMaxCapacity: ResourceProto | None = ..., configuredMinCapacity: ResourceProto | None = ..., configuredMaxCapacity: ResourceProto | None = ...) -> None: ...

class QueueConfigurationsMapProto(Message):
    partitionName: str
    @property
    def queueConfigurations(self) -> QueueConfigurationsProto: ...
    def __init__(self, *, partitionName: str | None = ..., queueConfigurations: QueueConfigurationsProto | None = ...) -> None: ...

class QueueUserACLInfoProto(Message):
    queueName: str
    @property
    def userAcls(self) -> Scalars[int]: ...
    def __init__(self, *, queueName: str | None = ..., userAcls: Iterable[int] = ...) -> None: ...

class PlacementConstraintProto(Message):
    @property
    def simpleConstraint(self) -> SimplePlacementConstraintProto: ...
    @property
    def compositeConstraint(self) -> CompositePlacementConstraintProto: ...
    def __init__(self, *, simpleConstraint: SimplePlacementConstraintProto | None = ..., compositeConstraint: CompositePlacementConstraintProto | None = ...) -> None: ...

class SimplePlacementConstraintProto(Message):
    scope: str
    @property
    def targetExpressions(self) -> Composites[PlacementConstraintTargetProto]: ...
    minCardinality: int
    maxCardinality: int
    attributeOpCode: int
    def __init__(self, *, scope: str | None = ..., targetExpressions: Iterable[PlacementConstraintTargetProto] = ..., minCardinality: int | None = ..., maxCardinality: int | None = ..., attributeOpCode: int | None = ...) -> None: ...

class PlacementConstraintTargetProto(Message):
    class _TargetType(EnumType):
        NODE_ATTRIBUTE: int
        ALLOCATION_TAG: int
        SELF: int
    TargetType: _TargetType
    targetType: int
    targetKey: str
    @property
    def targetValues(self) -> Scalars[str]: ...
    def __init__(self, *, targetType: int | None = ..., targetKey: str | None = ..., targetValues: Iterable[str] = ...) -> None: ...

class TimedPlacementConstraintProto(Message):
    class _DelayUnit(EnumType):
        MILLISECONDS: int
        OPPORTUNITIES: int
    DelayUnit: _DelayUnit
    @property
    def placementConstraint(self) -> PlacementConstraintProto: ...
    schedulingDelay: int
    delayUnit: int
    def __init__(self, *, placementConstraint: PlacementConstraintProto | None = ..., schedulingDelay: int | None = ..., delayUnit: int | None = ...) -> None: ...

class CompositePlacementConstraintProto(Message):
    class _CompositeType(EnumType):
        AND: int
        OR: int
        DELAYED_OR: int
    CompositeType: _CompositeType
    compositeType: int
    @property
    def childConstraints(self) -> Composites[PlacementConstraintProto]: ...
    @property
    def timedChildConstraints(self) -> Composites[TimedPlacementConstraintProto]: ...
    def __init__(self, *, compositeType: int | None = ..., childConstraints: Iterable[PlacementConstraintProto] = ..., timedChildConstraints: Iterable[TimedPlacementConstraintProto] = ...) -> None: ...

class PlacementConstraintMapEntryProto(Message):
    @property
    def allocation_tags(self) -> Scalars[str]: ...
    @property
    def placement_constraint(self) -> PlacementConstraintProto: ...
    def __init__(self, *, allocation_tags: Iterable[str] = ..., placement_constraint: PlacementConstraintProto | None = ...) -> None: ...

class ReservationIdProto(Message):
    id: int
    cluster_timestamp: int
    def __init__(self, *, id: int | None = ..., cluster_timestamp: int | None = ...) -> None: ...

class ContainerLaunchContextProto(Message):
    @property
    def localResources(self) -> Composites[StringLocalResourceMapProto]: ...
    tokens: bytes
    @property
    def service_data(self) -> Composites[StringBytesMapProto]: ...
    @property
    def environment(self) -> Composites[StringStringMapProto]: ...
    @property
    def command(self) -> Scalars[str]: ...
    @property
    def application_ACLs(self) -> Composites[ApplicationACLMapProto]: ...
    @property
    def container_retry_context(self) -> ContainerRetryContextProto: ...
    tokens_conf: bytes
    def __init__(self, *, localResources: Iterable[StringLocalResourceMapProto] = ..., tokens: bytes | None = ..., service_data: Iterable[StringBytesMapProto] = ..., environment: Iterable[StringStringMapProto] = ..., command: Iterable[str] = ..., application_ACLs: Iterable[ApplicationACLMapProto] = ..., container_retry_context: ContainerRetryContextProto | None = ..., tokens_conf: bytes | None = ...) -> None: ...

class ContainerStatusProto(Message):
    @property
    def container_id(self) -> ContainerIdProto: ...
    state: int
    diagnostics: str
    exit_status: int
    @property
    def capability(self) -> ResourceProto: ...
    executionType: int
    @property
    def container_attributes(self) -> Composites[StringStringMapProto]: ...
    container_sub_state: int
    def __init__(self, *, container_id: ContainerIdProto | None = ..., state: int | None = ..., diagnostics: str | None = ..., exit_status: int | None = ..., capability: ResourceProto | None = ..., executionType: int | None = ..., container_attributes: Iterable[StringStringMapProto] = ..., container_sub_state: int | None = ...) -> None: ...

class ContainerRetryContextProto(Message):
    retry_policy: int
    @property
    def error_codes(self) -> Scalars[int]: ...
    max_retries: int
    retry_interval: int
    failures_validity_interval: int
    def __init__(self, *, retry_policy: int | None = ..., error_codes: Iterable[int] = ..., max_retries: int | None = ..., retry_interval: int | None = ..., failures_validity_interval: int | None = ...) -> None: ...

class StringLocalResourceMapProto(Message):
    key: str
    @property
    def value(self) -> LocalResourceProto: ...
    def __init__(self, *, key: str | None = ..., value: LocalResourceProto | None = ...) -> None: ...

class StringStringMapProto(Message):
    key: str
    value: str
    def __init__(self, *, key: str | None = ..., value: str | None = ...) -> None: ...

class StringBytesMapProto(Message):
    key: str
    value: bytes
    def __init__(self, *, key: str | None = ..., value: bytes | None = ...) -> None: ...

class CollectorInfoProto(Message):
    collector_addr: str
    @property
    def collector_token(self) -> common.TokenProto: ...
    def __init__(self, *, collector_addr: str | None = ..., collector_token: common.TokenProto | None = ...) -> None: ...

class RegisterApplicationMasterRequestProto(Message):
    host: str
    rpc_port: int
    tracking_url: str
    @property
    def placement_constraints(self) -> Composites[PlacementConstraintMapEntryProto]: ...
    def __init__(self, *, host: str | None = ..., rpc_port: int | None = ..., tracking_url: str | None = ..., placement_constraints: Iterable[PlacementConstraintMapEntryProto] = ...) -> None: ...

class RegisterApplicationMasterResponseProto(Message):
    @property
    def maximumCapability(self) -> ResourceProto: ...
    client_to_am_token_master_key: bytes
    @property
    def application_ACLs(self) -> Composites[ApplicationACLMapProto]: ...
    @property
    def containers_from_previous_attempts(self) -> Composites[ContainerProto]: ...
    queue: str
    @property
    def nm_tokens_from_previous_attempts(self) -> Composites[NMTokenProto]: ...
    @property
    def scheduler_resource_types(self) -> Scalars[int]: ...
    @property
    def resource_profiles(self) -> ResourceProfilesProto: ...
    @property
    def resource_types(self) -> Composites[ResourceTypeInfoProto]: ...
    def __init__(self, *, maximumCapability: ResourceProto | None = ..., client_to_am_token_master_key: bytes | None = ..., application_ACLs: Iterable[ApplicationACLMapProto] = ..., containers_from_previous_attempts: Iterable[ContainerProto] = ..., queue: str | None = ..., nm_tokens_from_previous_attempts: Iterable[NMTokenProto] = ..., scheduler_resource_types: Iterable[int] = ..., resource_profiles: ResourceProfilesProto | None = ..., resource_types: Iterable[ResourceTypeInfoProto] = ...) -> None: ...

class FinishApplicationMasterRequestProto(Message):
    diagnostics: str
    tracking_url: str
    final_application_status: int
    def __init__(self, *, diagnostics: str | None = ..., tracking_url: str | None = ..., final_application_status: int | None = ...) -> None: ...

class FinishApplicationMasterResponseProto(Message):
    isUnregistered: bool
    def __init__(self, *, isUnregistered: bool | None = ...) -> None: ...

class UpdateContainerRequestProto(Message):
    container_version: int
    @property
    def container_id(self) -> ContainerIdProto: ...
    update_type: int
    @property
    def capability(self) -> ResourceProto: ...
    execution_type: int
    def __init__(self, *, container_version: int | None = ..., container_id: ContainerIdProto | None = ..., update_type: int | None = ..., capability: ResourceProto | None = ..., execution_type: int | None = ...) -> None: ...

class UpdateContainerErrorProto(Message):
    reason: str
    @property
    def update_request(self) -> UpdateContainerRequestProto: ...
    current_container_version: int
    def __init__(self, *, reason: str | None = ..., update_request: UpdateContainerRequestProto | None = ..., current_container_version: int | None = ...) -> None: ...

class AllocateRequestProto(Message):
    @property
    def ask(self) -> Composites[ResourceRequestProto]: ...
    @property
    def release(self) -> Composites[ContainerIdProto]: ...
    @property
    def blacklist_request(self) -> ResourceBlacklistRequestProto: ...
    response_id: int
    progress: float
    @property
    def update_requests(self) -> Composites[UpdateContainerRequestProto]: ...
    @property
    def scheduling_requests(self) -> Composites[SchedulingRequestProto]: ...
    tracking_url: str
    def __init__(self, *, ask: Iterable[ResourceRequestProto] = ..., release: Iterable[ContainerIdProto] = ..., blacklist_request: ResourceBlacklistRequestProto | None = ..., response_id: int | None = ..., progress: float | None = ..., update_requests: Iterable[UpdateContainerRequestProto] = ..., scheduling_requests: Iterable[SchedulingRequestProto] = ..., tracking_url: str | None = ...) -> None: ...

class NMTokenProto(Message):
    @property
    def nodeId(self) -> NodeIdProto: ...
    @property
    def token(self) -> common.TokenProto: ...
    def __init__(self, *, nodeId: NodeIdProto | None = ..., token: common.TokenProto | None = ...) -> None: ...

class UpdatedContainerProto(Message):
    update_type: int
    @property
    def container(self) -> ContainerProto: ...
    def __init__(self, *, update_type: int | None = ..., container: ContainerProto | None = ...) -> None: ...

class EnhancedHeadroomProto(Message):
    total_pending_count: int
    total_active_cores: int
    def __init__(self, *, total_pending_count: int | None = ..., total_active_cores: int | None = ...) -> None: ...

class AllocateResponseProto(Message):
    a_m_command: int
    response_id: int
    @property
    def allocated_containers(self) -> Composites[ContainerProto]: ...
    @property
    def completed_container_statuses(self) -> Composites[ContainerStatusProto]: ...
    @property
    def limit(self) -> ResourceProto: ...
    @property
    def updated_nodes(self) -> Composites[NodeReportProto]: ...
    num_cluster_nodes: int
    @property
    def preempt(self) -> PreemptionMessageProto: ...
    @property
    def nm_tokens(self) -> Composites[NMTokenProto]: ...
    @property
    def am_rm_token(self) -> common.TokenProto: ...
    @property
    def application_priority(self) -> PriorityProto: ...
    @property
    def collector_info(self) -> CollectorInfoProto: ...
    @property
    def update_errors(self) -> Composites[UpdateContainerErrorProto]: ...
    @property
    def updated_containers(self) -> Composites[UpdatedContainerProto]: ...
    @property
    def containers_from_previous_attempts(self) -> Composites[ContainerProto]: ...
    @property
    def rejected_scheduling_requests(self) -> Composites[RejectedSchedulingRequestProto]: ...
    @property
    def enhanced_headroom(self) -> EnhancedHeadroomProto: ...
    def __init__(self, *, a_m_command: int | None = ..., response_id: int | None = ..., allocated_containers: Iterable[ContainerProto] = ..., completed_container_statuses: Iterable[ContainerStatusProto] = ..., limit: ResourceProto | None = ..., updated_nodes: Iterable[NodeReportProto] = ..., num_cluster_nodes: int | None = ..., preempt: PreemptionMessageProto | None = ..., nm_tokens: Iterable[NMTokenProto] = ..., am_rm_token: common.TokenProto | None = ..., application_priority: PriorityProto | None = ..., collector_info: CollectorInfoProto | None = ..., update_errors: Iterable[UpdateContainerErrorProto] = ..., updated_containers: Iterable[UpdatedContainerProto] = ..., containers_from_previous_attempts: Iterable[ContainerProto] = ..., rejected_scheduling_requests: Iterable[RejectedSchedulingRequestProto] = ..., enhanced_headroom: EnhancedHeadroomProto | None = ...) -> None: ...

class GetNewApplicationRequestProto(Message):
    def __init__(self) -> None: ...

class GetNewApplicationResponseProto(Message):
    @property
    def application_id(self) -> ApplicationIdProto: ...
    @property
    def maximumCapability(self) -> ResourceProto: ...
    def __init__(self, *, application_id: ApplicationIdProto | None = ..., maximumCapability: ResourceProto | None = ...) -> None: ...

class GetApplicationReportRequestProto(Message):
    @property
    def application_id(self) -> ApplicationIdProto: ...
    def __init__(self, *, application_id: ApplicationIdProto | None = ...) -> None: ...

class GetApplicationReportResponseProto(Message):
    @property
    def application_report(self) -> ApplicationReportProto: ...
    def __init__(self, *, application_report: ApplicationReportProto | None = ...) -> None: ...

class SubmitApplicationRequestProto(Message):
    @property
    def application_submission_context(self) -> ApplicationSubmissionContextProto: ...
    def __init__(self, *, application_submission_context: ApplicationSubmissionContextProto | None = ...) -> None: ...

class SubmitApplicationResponseProto(Message):
    def __init__(self) -> None: ...

class KillApplicationRequestProto(Message):
    @property
    def application_id(self) -> ApplicationIdProto: ...
    diagnostics: str
    def __init__(self, *, application_id: ApplicationIdProto | None = ..., diagnostics: str | None = ...) -> None: ...

class KillApplicationResponseProto(Message):
    is_kill_completed: bool
    def __init__(self, *, is_kill_completed: bool | None = ...) -> None: ...

class GetClusterMetricsRequestProto(Message):
    def __init__(self) -> None: ...

class GetClusterMetricsResponseProto(Message):
    @property
    def cluster_metrics(self) -> YarnClusterMetricsProto: ...
    def __init__(self, *, cluster_metrics: YarnClusterMetricsProto | None = ...) -> None: ...

class GetApplicationsRequestProto(Message):
    @property
    def application_types(self) -> Scalars[str]: ...
    @property
    def application_states(self) -> Scalars[int]: ...
    @property
    def users(self) -> Scalars[str]: ...
    @property
    def queues(self) -> Scalars[str]: ...
    limit: int
    start_begin: int
    start_end: int
    finish_begin: int
    finish_end: int
    @property
    def applicationTags(self) -> Scalars[str]: ...
    scope: int
    name: str
    def __init__(self, *, application_types: Iterable[str] = ..., application_states: Iterable[int] = ..., users: Iterable[str] = ..., queues: Iterable[str] = ..., limit: int | None = ..., start_begin: int | None = ..., start_end: int | None = ..., finish_begin: int | None = ..., finish_end: int | None = ..., applicationTags: Iterable[str] = ..., scope: int | None = ..., name: str | None = ...) -> None: ...

class GetApplicationsResponseProto(Message):
    @property
    def applications(self) -> Composites[ApplicationReportProto]: ...
    def __init__(self, *, applications: Iterable[ApplicationReportProto] = ...) -> None: ...

class GetClusterNodesRequestProto(Message):
    @property
    def nodeStates(self) -> Scalars[int]: ...
    def __init__(self, *, nodeStates: Iterable[int] = ...) -> None: ...

class GetClusterNodesResponseProto(Message):
    @property
    def nodeReports(self) -> Composites[NodeReportProto]: ...
    def __init__(self, *, nodeReports: Iterable[NodeReportProto] = ...) -> None: ...

class GetQueueInfoRequestProto(Message):
    queueName: str
    includeApplications: bool
    includeChildQueues: bool
    recursive: bool
    subClusterId: str
    def __init__(self, *, queueName: str | None = ..., includeApplications: bool | None = ..., includeChildQueues: bool | None = ..., recursive: bool | None = ..., subClusterId: str | None = ...) -> None: ...

class GetQueueInfoResponseProto(Message):
    @property
    def queueInfo(self) -> QueueInfoProto: ...
    def __init__(self, *, queueInfo: QueueInfoProto | None = ...) -> None: ...

class GetQueueUserAclsInfoRequestProto(Message):
    def __init__(self) -> None: ...

class GetQueueUserAclsInfoResponseProto(Message):
    @property
    def queueUserAcls(self) -> Composites[QueueUserACLInfoProto]: ...
    def __init__(self, *, queueUserAcls: Iterable[QueueUserACLInfoProto] = ...) -> None: ...

class GetClusterNodeLabelsRequestProto(Message):
    def __init__(self) -> None: ...

class GetClusterNodeLabelsResponseProto(Message):
    @property
    def deprecatedNodeLabels(self) -> Scalars[str]: ...
    @property
    def nodeLabels(self) -> Composites[NodeLabelProto]: ...
    def __init__(self, *, deprecatedNodeLabels: Iterable[str] = ..., nodeLabels: Iterable[NodeLabelProto] = ...) -> None: ...

class GetClusterNodeAttributesRequestProto(Message):
    def __init__(self) -> None: ...

class GetClusterNodeAttributesResponseProto(Message):
    @property
    def nodeAttributes(self) -> Composites[NodeAttributeInfoProto]: ...
    def __init__(self, *, nodeAttributes: Iterable[NodeAttributeInfoProto] = ...) -> None: ...

class SignalContainerRequestProto(Message):
    @property
    def container_id(self) -> ContainerIdProto: ...
    command: int
    def __init__(self, *, container_id: ContainerIdProto | None = ..., command: int | None = ...) -> None: ...

class SignalContainerResponseProto(Message):
    def __init__(self) -> None: ...

class GetAllResourceTypeInfoRequestProto(Message):
    def __init__(self) -> None: ...

class GetAllResourceTypeInfoResponseProto(Message):
    @property
    def resource_type_info(self) -> Composites[ResourceTypeInfoProto]: ...
    def __init__(self, *, resource_type_info: Iterable[ResourceTypeInfoProto] = ...) -> None: ...

class StartContainerRequestProto(Message):
    @property
    def container_launch_context(self) -> ContainerLaunchContextProto: ...
    @property
    def container_token(self) -> common.TokenProto: ...
    def __init__(self, *, container_launch_context: ContainerLaunchContextProto | None = ..., container_token: common.TokenProto | None = ...) -> None: ...

class StartContainersRequestProto(Message):
    @property
    def start_container_request(self) -> Composites[StartContainerRequestProto]: ...
    def __init__(self, *, start_container_request: Iterable[StartContainerRequestProto] = ...) -> None: ...

class ContainerExceptionMapProto(Message):
    @property
    def container_id(self) -> ContainerIdProto: ...
    @property
    def exception(self) -> SerializedExceptionProto: ...
    def __init__(self, *, container_id: ContainerIdProto | None = ..., exception: SerializedExceptionProto | None = ...) -> None: ...

class StartContainersResponseProto(Message):
    @property
    def services_meta_data(self) -> Composites[StringBytesMapProto]: ...
    @property
    def succeeded_requests(self) -> Composites[ContainerIdProto]: ...
    @property
    def failed_requests(self) -> Composites[ContainerExceptionMapProto]: ...
    def __init__(self, *, services_meta_data: Iterable[StringBytesMapProto] = ..., succeeded_requests: Iterable[ContainerIdProto] = ..., failed_requests: Iterable[ContainerExceptionMapProto] = ...) -> None: ...

class StopContainersRequestProto(Message):
    @property
    def container_id(self) -> Composites[ContainerIdProto]: ...
    def __init__(self, *, container_id: Iterable[ContainerIdProto] = ...) -> None: ...

class StopContainersResponseProto(Message):
    @property
    def succeeded_requests(self) -> Composites[ContainerIdProto]: ...
    @property
    def failed_requests(self) -> Composites[ContainerExceptionMapProto]: ...
    def __init__(self, *, succeeded_requests: Iterable[ContainerIdProto] = ..., failed_requests: Iterable[ContainerExceptionMapProto] = ...) -> None: ...

class GetContainerStatusesRequestProto(Message):
    @property
    def container_id(self) -> Composites[ContainerIdProto]: ...
    def __init__(self, *, container_id: Iterable[ContainerIdProto] = ...) -> None: ...

class GetContainerStatusesResponseProto(Message):
    @property
    def status(self) -> Composites[ContainerStatusProto]: ...
    @property
    def failed_requests(self) -> Composites[ContainerExceptionMapProto]: ...
    def __init__(self, *, status: Iterable[ContainerStatusProto] = ..., failed_requests: Iterable[ContainerExceptionMapProto] = ...) -> None: ...

class GetApplicationAttemptsRequestProto(Message):
    @property
    def application_id(self) -> ApplicationIdProto: ...
    def __init__(self, *, application_id: ApplicationIdProto | None = ...) -> None: ...

class GetApplicationAttemptsResponseProto(Message):
    @property
    def application_attempts(self) -> Composites[ApplicationAttemptReportProto]: ...
    def __init__(self, *, application_attempts: Iterable[ApplicationAttemptReportProto] = ...) -> None: ...

class GetContainerReportRequestProto(Message):
    @property
    def container_id(self) -> ContainerIdProto: ...
    def __init__(self, *, container_id: ContainerIdProto | None = ...) -> None: ...

class GetContainerReportResponseProto(Message):
    @property
    def container_report(self) -> ContainerReportProto: ...
    def __init__(self, *, container_report: ContainerReportProto | None = ...) -> None: ...

class GetContainersRequestProto(Message):
    @property
    def application_attempt_id(self) -> ApplicationAttemptIdProto: ...
    def __init__(self, *, application_attempt_id: ApplicationAttemptIdProto | None = ...) -> None: ...

class GetContainersResponseProto(Message):
    @property
    def containers(self) -> Composites[ContainerReportProto]: ...
    def __init__(self, *, containers: Iterable[ContainerReportProto] = ...) -> None: ...

class YARNDelegationTokenIdentifierProto(Message):
    owner: str
    renewer: str
    realUser: str
    issueDate: int
    maxDate: int
    sequenceNumber: int
    masterKeyId: int
    def __init__(self, *, owner: str | None = ..., renewer: str | None = ..., realUser: str | None = ..., issueDate: int | None = ..., maxDate: int | None = ..., sequenceNumber: int | None = ..., masterKeyId: int | None = ...) -> None: ...
