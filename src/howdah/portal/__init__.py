"""The web app of many jobs, behind ``howdah ui`` and ``howdah portal``.

`app` has the addresses; `index` is the list of jobs in SQLite, a row of `rows` each, `jobs` keeps it up to date, `query` chooses
from it; `past_job` and `job_pages` show one job; `access_control` says who may see and stop what. `starting` starts jobs, `task_pages`
has the pages of their tasks.
"""
