"""What is kept of a job, on this machine, on HDFS or behind a URL.

- the job directory: `layout` (its names), `jobdir`, `journal`, `logs`, `metrics`
- checkpoints: `checkpoints`, `checkpoint_upload`, `restoring`, `versions`; outputs: `outputs`
- where they go: `stores`, `destinations`, `hdfs`; copies of job directories: `mirror`, `local_copy`
"""
