"""The process that decides for one job: the core with a real clock, wire, backend and journal.

Start with `service`, which puts the parts together, and `driver`, which takes events through the core.

- agents: `agents`, `heartbeats` (missed ones and hangs), `launch_specs` (what they are told)
- commands of the core: `executor`
- clients: `clients`, `execs`, `status`; logs: `job_logs`, and `web.logs` for search
- the job page: `job_page`, `web`
"""
