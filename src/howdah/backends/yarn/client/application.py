"""What YARN is told of a job when it is submitted (``ApplicationSubmissionContext``). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from howdah.backends.yarn.amounts import of_master
from howdah.backends.yarn.client.cluster_report import resource
from howdah.hadoop.ids import ApplicationId
from howdah.hadoop.protos import yarn
from howdah.spec.model import Job
from howdah.spec.units import seconds

TYPE = "HOWDAH"
"""Application type; clusters list and limit by it."""
MAX_TAGS = 10  # yarn.resourcemanager.application.max-tags
MAX_TAG_CHARS = 100  # yarn.resourcemanager.application.max-tag.length
LIMITS: str = f"{MAX_TAGS} of up to {MAX_TAG_CHARS} ASCII characters, with two of Howdah's own"
JOB_TAG = "howdah:"
PLACE_TAG = "howdah-at:"

LIFETIME_MARGIN_S = 3600.0
"""The coordinator ends a job in time by itself, and well. YARN's own time limit is for one that
cannot; it counts from the submission, so waiting in the queue is in it too."""

_MASTER_PRIORITY = 0  # AMs are asked for at 0 (YarnClient)


def submission(
    job: Job,
    job_id: str,
    url: str,
    application: ApplicationId,
    master: yarn.ContainerLaunchContextProto,
) -> yarn.ApplicationSubmissionContextProto:
    """The whole submission; ``url`` is the job directory."""
    context = yarn.ApplicationSubmissionContextProto(
        application_id=application.to_proto(),
        application_name=job.name,
        queue=job.queue or "default",
        am_container_spec=master,
        maxAppAttempts=job.master.attempts,
        applicationType=TYPE,
        keep_containers_across_application_attempts=True,
        applicationTags=tags(job.tags, job_id, url),
        attempt_failures_validity_interval=_milliseconds(job.master.validity),
    )
    context.resource.CopyFrom(resource(of_master(job.master)).to_proto())
    request = context.am_container_resource_request.add(
        resource_name="*", num_containers=1, relax_locality=True
    )
    request.priority.priority = _MASTER_PRIORITY
    request.capability.CopyFrom(context.resource)
    if job.master.label:
        request.node_label_expression = job.master.label
    if job.priority is not None:
        context.priority.priority = job.priority
    total_s = seconds(job.timeouts.total)
    if total_s is not None:
        context.application_timeouts.add(
            application_timeout_type=yarn.ApplicationTimeoutTypeProto.APP_TIMEOUT_LIFETIME,
            timeout=int(total_s + LIFETIME_MARGIN_S),
        )
    return context


def tags(own: Iterable[str], job_id: str, url: str) -> list[str]:
    """The job's tags, and ours: by them any client finds the job directory of an application."""
    ours = [f"{JOB_TAG}{job_id}"]
    place = f"{PLACE_TAG}{url}"
    if len(place) <= MAX_TAG_CHARS and place.isascii():
        ours.append(place)
    theirs = [tag for tag in own if tag.isascii() and 0 < len(tag) <= MAX_TAG_CHARS]
    return [*ours, *theirs[: MAX_TAGS - len(ours)]]


def job_of(tags: Iterable[str]) -> tuple[str | None, str | None]:
    """Job id and URL of the job directory, as far as an application's tags have them."""
    job_id = url = None
    for tag in tags:
        if tag.startswith(PLACE_TAG):
            url = tag.removeprefix(PLACE_TAG)
        elif tag.startswith(JOB_TAG):
            job_id = tag.removeprefix(JOB_TAG)
    return job_id, url


def _milliseconds(duration: str) -> int:
    limit_s = seconds(duration)
    return -1 if limit_s is None else int(limit_s * 1000)
