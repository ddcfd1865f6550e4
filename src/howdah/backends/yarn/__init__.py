"""The YARN backend: containers of a Hadoop cluster, without a JVM.

Start with `backend`, the coordinator's side of it; `submit` and `site` are the client's.

- what is asked of the ResourceManager: `outstanding_requests`, sent by `allocate_loop`
- a container from grant to end: `container_table`; how it ended: `container_exit_status`
- preemption: `container_table` passes its notice on, `container_exit_status` knows its end
- launching: `launch_context`, `container_launch`, `nodes`, `boot` (a container's first process)
- why containers do not come: `pending_containers`, `pending_reason`
- what travels: `staging`, `local_resources`; tokens: `renewal`, `token_providers`
- the end of an application: `application_end`, `aggregated` (YARN's own logs)

docs/design/007-yarn-backend.md tells how they work together.
"""
