"""The coordinator's side of people's programs: the command line, the Python API and, through `live_job`, the web app.

Start with `server`, which has their connections. `live_job` is the running job as they see it, `execs` joins a
command beside a program to its client, `task_pages` connects to the pages that tasks announce.
"""
