"""The first moment of a submission to this machine.

A daemon needs a tenth of a second to start, which the submitter uses to load the job: so it is
started before anything else is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from howdah.backends.local.spawn import Spawned

if TYPE_CHECKING:
    from howdah.backends.local.submit import LocalSubmission


def begin(checks: bool = True) -> LocalSubmission:
    """The submission of one job to this machine.

    Without ``checks`` what this machine has does not matter: for another package's backend, whose
    coordinator runs on this machine and whose containers do not.
    """
    spawned = Spawned()
    from howdah.backends.local.submit import LocalSubmission, NodeStarter

    return LocalSubmission(NodeStarter(spawned), checks=checks)
