"""The YARN backend: containers of a Hadoop cluster, without a JVM.

`master` (a package) is the coordinator's side of it, `client` the submitting machine's.

- what is asked of the ResourceManager: `master.outstanding_requests`, sent by `master.allocate_loop`
- a container from grant to end: `master.container_table`; how it ended: `master.container_exit_status`
- preemption: `container_table` passes its notice on, `container_exit_status` knows its end
- launching: `launch_context`, `container_launch`, `boot` (a container's first process)
- why containers do not come: `pending_reason`
- what travels: `client.staging`, `local_resources`; tokens: `master.renewal`, `token_providers`
- the end of an application: `client.application_end`, `client.aggregated` (YARN's own logs)

docs/design/007-yarn-backend.md tells how they work together.
"""
