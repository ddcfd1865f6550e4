"""Names inside a job directory. The layout is documented in docs/reference/job-directory.md.

::

    <base>/<user>/<job-id>/            0700
      job.json                         the resolved job file
      meta.json                        JobMeta: id, user, backend, when, from where
      coordinator.json                 CoordinatorAddress while one lives (0600)
      node.json, node.lock             the local backend's node daemon while one lives
      events-0001.jsonl                the journal: one line an event or record
      metrics-0001.jsonl               samples, one line each; 1001 on: the next coordinator's
      logs/<role>-<index>/<attempt>.log   (+ .idx: time and offset, for paging)
      logs/coordinator.log, logs/node.log
      stacks/<role>-<index>-<attempt>.txt
      checkpoints/<version>/…          complete checkpoints, each with manifest.json
      outputs/<role>-<index>/…
      unsaved/<role>-<index>/<attempt>/{checkpoint,outputs}/…   what the store did not take
      tensorboard/…                    or where the job says
      shared/                          a folder all tasks see (HOWDAH_SHARED_DIR)
      function/                        a function job's pickled call and the script that makes it
      containers/<id>/                 working folders; removed at the end unless kept
      results/<rank>.pkl               return values of a function job
      coordinator-died-<who>-<when>.json   why a coordinator ended before its job did
      final.json                       JobView at the end
      secrets/                         0700: ca.pem, {coordinator,agent,client}.{pem,key}, token,
                                       containers.key, variables.json
"""

from __future__ import annotations

import msgspec

JOB = "job.json"
META = "meta.json"
COORDINATOR = "coordinator.json"
FINAL = "final.json"
SECRETS = "secrets"
VARIABLES = "variables.json"
"""In there: values of the job file's ``[secrets]``."""
LOGS = "logs"
STACKS = "stacks"
CHECKPOINTS = "checkpoints"
OUTPUTS = "outputs"
UNSAVED = "unsaved"
CHECKPOINT = "checkpoint"
"""In a folder of `UNSAVED`."""
TENSORBOARD = "tensorboard"
SHARED = "shared"
FUNCTION = "function"
CONTAINERS = "containers"
RESULTS = "results"
KEYTAB = "login.keytab"
"""On a cluster's file system, while the job runs: its master's alone."""


class Submitter(msgspec.Struct, frozen=True, kw_only=True):
    """The process that submits a job."""

    host: str
    pid: int
    start: int | None = None
    """As in `CoordinatorAddress`."""


class JobMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at submission."""

    job_id: str
    user: str
    backend: str
    submitted: float
    job_file: str | None = None
    source: str | None = None
    """Absolute path of the source folder."""
    folder: str | None = None
    """Absolute path of what the job's paths are relative to. None in jobs of older releases."""
    rerun_of: str | None = None
    howdah: str = ""
    """Version that submitted it."""
    url: str | None = None
    """Where the job directory really is (HDFS), when this one is only a local copy of it."""
    application_id: str | None = None
    """YARN's name for the job: ``application_1700000000000_0001``."""
    submitter: Submitter | None = None
    """Whose death before the job was handed over leaves a job that never runs. On YARN None again
    once it was handed over."""
    queue: str = ""
    """The cluster's queue that it was put into; known on the submitter's machine alone."""
    hadoop_conf: str | None = None
    """Folder of the cluster's configuration on the submitter's machine."""
    umask: int | None = None
    """The submitter's, for the programs. None in jobs of older releases."""
    owner: str | None = None
    """Whose the directory at ``url`` is, in a local copy that somebody else has made of it, such as an
    administrator of the cluster. They may look; nothing of it is run for them."""


class CoordinatorAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the present coordinator is."""

    incarnation: int
    host: str
    port: int
    """mTLS frames: agents and clients."""
    http_port: int
    pid: int
    start: int | None = None
    """When that process started, as the system tells it: a process id alone may be given again."""


def task_log(role: str, index: int, attempt: int) -> str:
    """Path of an attempt's log, relative to the job directory."""
    return f"{LOGS}/{role}-{index}/{attempt}.log"
