"""What is kept of a job, on this machine, on HDFS or behind a URL.

- the job directory: `layout` (its names), `jobdir`, `journal`, `logs`, `metrics`; `copies` of it elsewhere (a package)
- what a task leaves: `checkpoints` (a package), `outputs`; `helper` is the process an agent has it saved by
- where that goes: `stores` (a package), and `hdfs` (a package), which all that reaches HDFS goes through
"""
