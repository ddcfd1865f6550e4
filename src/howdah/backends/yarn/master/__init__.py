"""The YARN backend in the application's master: see `backend`.

`allocate_loop` speaks with the ResourceManager, `nodes` with NodeManagers; `outstanding_requests`, `container_table`
and `container_exit_status` decide, without any I/O.
"""
