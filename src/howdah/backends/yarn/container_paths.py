"""Where a job's programs find things in a container of the cluster. Pure."""

from __future__ import annotations

from howdah.agent.launch import HERE
from howdah.backends.base import Places
from howdah.backends.job_paths import tensorboard_folder
from howdah.backends.yarn.local_resources import CODE, SOURCE, LocalResources
from howdah.spec.model import Job
from howdah.storage import layout
from howdah.storage.hdfs import is_hdfs

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def places(job: Job, local_resources: LocalResources, home: str, application: str = "") -> Places:
    """See `howdah.backends.base.Backend.places`; ``home`` is the job directory's URL."""
    # Few programs can write to HDFS, and TensorBoard can't read there without TensorFlow.
    events = tensorboard_folder(job, home)
    return Places(
        python=local_resources.python,
        bin=f"{HERE}/bin",
        path=PATH,
        python_path=f"{HERE}/python",
        helpers=f"{HERE}/{CODE}/howdah/frameworks/helpers",
        source=f"{HERE}/{SOURCE}" if local_resources.source is not None else None,
        shared_dir=f"{home}/{layout.SHARED}",
        home=home,
        application=application,
        tensorboard_dir=f"{HERE}/{layout.TENSORBOARD}" if is_hdfs(events) else events,
        tensorboard_url=events if is_hdfs(events) else None,
    )
