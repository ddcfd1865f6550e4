"""The process beside each task: it starts the task's programs, watches them, and reports.

It imports msgspec and the standard library only. Start with `main`, `agent` and `attempt`.

- the coordinator: `connection` (and the lease), `container`
- programs: `run`, `programs`, `ports`, `workfolder`; their end: `outcome`
- what is seen of them: `forwarder` (logs), `monitoring` (a package: use, progress, stacks, peers)
- processes and sockets of this machine: `host` (a package)
- files: `checkpoints`, `copies`
- when the agent itself dies: `watchdog`
"""
