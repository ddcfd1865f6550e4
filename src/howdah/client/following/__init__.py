"""What a job says while it runs and afterwards, and the connection to its coordinator.

Start with `remote`, which follows a job through the death of a coordinator; `offline_job` has the same from the job
directory alone. `log_lines` keeps what was seen and makes whole lines of bytes, `items` has what a follower is
given. `tunnel` and `execs` use the same connection, for a page and for a command beside a program.
"""
