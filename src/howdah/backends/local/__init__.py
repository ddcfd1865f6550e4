"""The local backend: this machine's containers, granted and kept by a node daemon per job.

- `node` (a package): the daemon, this machine's stand-in for a cluster's node manager
- `submit`: starts it, detached from whoever submits
- `backend`: the coordinator's side of it
"""
