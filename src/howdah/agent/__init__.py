"""The process beside each task: it starts the task's programs, watches them, and reports.

It imports msgspec and the standard library only. Start with `main`, `agent` and `attempt`.

- the coordinator: `connection` (and the lease), `container`
- programs: `run`, `programs`, `processes`, `ports`, `workfolder`; their end: `outcome`, `defects`
- what is seen of them: `probes` (have they found their peers), `metrics` (use, memory limit, progress),
  `stacks`, `forwarder` (logs), `reports` (`howdah.task`)
- files: `checkpoints`, `copies`
- when the agent itself dies: `watchdog`
"""
