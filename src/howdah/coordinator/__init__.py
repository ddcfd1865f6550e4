"""The process that decides for one job: the core with a real clock, wire, backend and journal.

Start with `service`, which puts the parts together, and `driver`, which takes events through the core.

- commands of the core: `executor`; its records, live: `event_log`; where it is: `address`
- `agents`: what they say and are told; `clients`: people's programs; `status`: the document both change or read
- logs: `job_logs`, and `web.logs` for search; a job directory that is elsewhere: `remote_directory`
- the job page: `job_page`, `web`
"""
