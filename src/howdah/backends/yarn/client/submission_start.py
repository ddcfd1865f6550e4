"""The first moment of a submission to YARN: a thread begins to reach the cluster, while the rest of
the client is imported and the job is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.backends.yarn.client.submit import YarnSubmission


def begin() -> YarnSubmission:
    """The submission of one job to the cluster that the environment names."""
    from howdah.backends.yarn.client.submit import YarnSubmission

    return YarnSubmission()
