"""The capacity scheduler's queues.

==============  =====================================================================
``default``     38 % guaranteed, may take everything free
``gpu``         10 %, and all of the partition ``gpu``
``small``       10 % at most: quickly full
``a``, ``b``    halves of ``pair`` (40 % at most); the monitor preempts one for the other
``closed``      2 %, and nobody but the administrator may submit to it
==============  =====================================================================

Only the administrator may look at or end other people's applications. Nothing outside ``pair`` is ever preempted.
"""

from __future__ import annotations

from tests.hadoop.site import Site

_PREFIX = "yarn.scheduler.capacity"
_CALCULATOR = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"


def properties(site: Site) -> dict[str, str]:
    """``capacity-scheduler.xml``."""
    found = {
        "resource-calculator": _CALCULATOR,
        "maximum-am-resource-percent": "1.0",
        "node-locality-delay": "-1",
        "per-node-heartbeat.multiple-assignments-enabled": "true",
        "per-node-heartbeat.maximum-container-assignments": "100",
        "root.queues": "default,gpu,small,pair,closed",
        # What is allowed above is allowed below: so nothing is, here.
        "root.acl_submit_applications": " ",
        "root.acl_administer_queue": site.user,
        "root.disable_preemption": "true",
        "root.pair.queues": "a,b",
        "root.pair.disable_preemption": "false",
    }
    for queue, guaranteed, at_most in (
        ("default", 38, 100),
        ("gpu", 10, 100),
        ("small", 10, 10),
        ("closed", 2, 2),
        ("pair", 40, 40),
        ("pair.a", 50, 100),
        ("pair.b", 50, 100),
    ):
        found[f"root.{queue}.capacity"] = str(guaranteed)
        found[f"root.{queue}.maximum-capacity"] = str(at_most)
        found[f"root.{queue}.user-limit-factor"] = "100"
        found[f"root.{queue}.acl_submit_applications"] = site.user if queue == "closed" else "*"
    if site.options.labels:
        label = "accessible-node-labels"
        found[f"root.{label}"] = "*"
        found[f"root.{label}.gpu.capacity"] = "100"
        for queue in ("default", "small", "pair", "closed"):
            found[f"root.{queue}.{label}"] = " "
        found[f"root.gpu.{label}"] = "gpu"
        found[f"root.gpu.{label}.gpu.capacity"] = "100"
    return {f"{_PREFIX}.{name}": value for name, value in found.items()}
