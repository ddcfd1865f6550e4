"""XGBoost: its collective's tracker, served by a helper role, and what a worker tells it.

Sources: xgboost.readthedocs.io "Collective" (``CommunicatorContext``: dmlc_tracker_uri,
dmlc_tracker_port, dmlc_task_id), ``xgboost/tracker.py`` and ``xgboost/collective.py`` (3.2).
XGBoost takes these as arguments, the port as a number; a script reads them from variables of the same names
and hands them to ``xgboost.collective.CommunicatorContext`` (`docs/frameworks/xgboost.md`).

The tracker sorts workers by task id, so the collective's ranks are the job's. It serves one group:
a program enters ``CommunicatorContext`` once and trains in it as often as it likes.

As observed with XGBoost 3.2: a tracker serves one group once and never ends by itself while
workers are missing; survivors of a dead worker fail after 1-2 s; none can rejoin. So workers and
tracker restart together. The tracker is untracked: the workers' end is the job's.
"""

from __future__ import annotations

from msgspec.structs import replace

from howdah.core.messages import Member, Topology
from howdah.frameworks import addresses
from howdah.frameworks.base import Collective, RoleDefaults
from howdah.spec.model import Job, Role

TRACKER = "tracker"


class XGBoost(Collective):
    """A tracker, and workers that meet through it."""

    name = "xgboost"
    rendezvous = TRACKER

    def helpers(self, job: Job) -> dict[str, Role]:
        return {TRACKER: Role(memory="512m")}

    def command(self, job: Job, role: str) -> str | None:
        return '"$HOWDAH_PYTHON" "$HOWDAH_HELPERS/xgboost_main.py"' if role == TRACKER else None

    def role(self, job: Job, role: str) -> RoleDefaults:
        rules = super().role(job, role)
        # The tracker must listen before the first worker asks: a worker tries for seconds only.
        return replace(rules, after=(TRACKER,)) if rules.ranked else rules

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if member.rank is None:
            return {}
        tracker = addresses.only(topology, TRACKER)
        return {
            "DMLC_TRACKER_URI": tracker.host,
            "DMLC_TRACKER_PORT": str(tracker.ports[0]),
            # Sorted as text by the tracker, hence the zeros.
            "DMLC_TASK_ID": f"{member.rank + process:06d}",
        }
