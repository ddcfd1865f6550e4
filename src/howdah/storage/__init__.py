"""What is kept of a job, on this machine, on HDFS or behind a URL.

- the job directory: `layout` (its names), `jobdir`, `journal`, `logs`, `metrics`
- what a task leaves: `checkpoints` (a package), `outputs`; `helper` is the process an agent has it saved by
- where they go: `stores`, `destinations`, `hdfs`; copies of job directories: `mirror`, `local_copy`
"""
