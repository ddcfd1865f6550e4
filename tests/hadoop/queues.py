"""The queues, of either scheduler.

==============  =====================================================================
``default``     38 % guaranteed, may take everything free
``gpu``         10 %, and all of the partition ``gpu``
``small``       10 % at most: quickly full
``a``, ``b``    halves of ``pair`` (40 % at most); the monitor preempts one for the other
``closed``      2 %, and nobody but the administrator may submit to it
==============  =====================================================================

Only the administrator may look at or end other people's applications. Nothing outside ``pair`` is ever preempted.

The Fair Scheduler has the same ones by their paths, without shares, and makes a queue that is not there. To
``closed`` nobody may submit. ``pair`` may have as much as ``small``, and those in it have no limits of their own.

With ``queue_mappings`` the capacity scheduler puts applications into queues by their names (`MAPPED`), whatever
queue they ask for, and makes those below ``made``. The Fair Scheduler puts those that name no queue of it into
``users.<user>``, which it makes.
"""

from __future__ import annotations

from tests.hadoop.site import Site

_PREFIX = "yarn.scheduler.capacity"
MAPPED = {"to-small": "root.small", "to-default": "root.default", "to-made": "root.made.new"}
"""Name of an application, and its queue."""
SMALL_MIB = 1200
"""Memory that the Fair Scheduler's ``small`` and ``pair`` may have."""
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
    if site.options.gpu_node:
        label = "accessible-node-labels"
        found[f"root.{label}"] = "*"
        found[f"root.{label}.gpu.capacity"] = "100"
        for queue in ("default", "small", "pair", "closed"):
            found[f"root.{queue}.{label}"] = " "
        found[f"root.gpu.{label}"] = "gpu"
        found[f"root.gpu.{label}.gpu.capacity"] = "100"
    own = {f"{_PREFIX}.{name}": value for name, value in found.items()}
    return own | (_mapped(own) if site.options.queue_mappings else {})


def _mapped(own: dict[str, str]) -> dict[str, str]:
    made = f"{_PREFIX}.root.made"
    return {
        "yarn.scheduler.queue-placement-rules": "user-group,app-name",
        "yarn.scheduler.queue-placement-rules.app-name": ",".join(
            f"{name}:{queue}" for name, queue in MAPPED.items()
        ),
        "yarn.scheduler.queue-placement-rules.app-name.override-with-queue-mappings.enable": "true",
        f"{_PREFIX}.queue-mappings-override.enable": "true",
        f"{_PREFIX}.root.queues": f"{own[f'{_PREFIX}.root.queues']},made",
        f"{_PREFIX}.root.default.capacity": "28",
        f"{made}.capacity": "10",
        f"{made}.acl_submit_applications": "*",
        f"{made}.auto-create-child-queue.enabled": "true",
        f"{made}.leaf-queue-template.capacity": "50",
        f"{made}.leaf-queue-template.maximum-capacity": "100",
        f"{made}.leaf-queue-template.user-limit-factor": "100",
    }


def allocations(site: Site) -> str:
    """The Fair Scheduler's file."""
    create = "false" if site.options.queue_mappings else "true"
    users = '<rule name="nestedUserQueue"><rule name="default" queue="users"/></rule>'
    return f"""<?xml version="1.0"?>
<allocations>
  <queue name="root">
    <aclSubmitApps> </aclSubmitApps>
    <aclAdministerApps>{site.user}</aclAdministerApps>
    <queue name="default"><aclSubmitApps>*</aclSubmitApps></queue>
    <queue name="small">
      <maxResources>{SMALL_MIB} mb, 16 vcores</maxResources>
      <maxAMShare>1.0</maxAMShare>
      <aclSubmitApps>*</aclSubmitApps>
    </queue>
    <queue name="pair" type="parent">
      <maxResources>{SMALL_MIB} mb, 16 vcores</maxResources>
      <aclSubmitApps>*</aclSubmitApps>
      <queue name="a"/><queue name="b"/>
    </queue>
    <queue name="closed"/>
    <queue name="users" type="parent"><aclSubmitApps>*</aclSubmitApps></queue>
  </queue>
  <queuePlacementPolicy>
    <rule name="specified" create="{create}"/>
    {users if site.options.queue_mappings else '<rule name="default"/>'}
  </queuePlacementPolicy>
</allocations>
"""
