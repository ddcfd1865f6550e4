"""What a cluster is like, as far as a client is told: pure data for checks, waiting and doctor.

`howdah.backends.yarn.client.cluster_report` fills it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from howdah.backends.yarn.amounts import Amount, most, rounded

ANY_LABEL = "*"
"""A queue may use all labels (``accessible-node-labels``)."""


class YarnNode(msgspec.Struct, frozen=True, kw_only=True):
    """One NodeManager."""

    host: str
    """``host:port``, as YARN names it."""
    capability: Amount
    used: Amount = Amount()
    labels: tuple[str, ...] = ()
    usable: bool = True
    """It takes containers: neither lost, unhealthy nor being drained."""
    state: str = "RUNNING"
    health: str = ""
    rack: str = ""

    @property
    def label(self) -> str:
        """Its partition; empty for the default one. A node has at most one in fact."""
        return self.labels[0] if self.labels else ""

    @property
    def free(self) -> Amount:
        return self.capability - self.used


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue may have of one partition."""

    maximum: Amount | None = None
    """None where the scheduler does not say."""
    partial: bool = False
    """``maximum`` is of memory and cores only: of other resources nothing is said."""
    maximum_part: float = 1.0
    """Of the whole partition, 0 to 1."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    name: str
    """As the scheduler calls it: the capacity scheduler by its last part, the Fair Scheduler by its path."""
    path: str = ""
    """``root.research.vision``; only newer clusters with the capacity scheduler tell."""
    running: bool = True
    state: str = "RUNNING"
    labels: tuple[str, ...] = ()
    """Labels it may use; `ANY_LABEL` for all."""
    default_label: str = ""
    """Of requests that name none."""
    shares: dict[str, Share] = {}
    """By label; ``""`` is the default partition."""
    leaf: bool = True
    """Applications can be submitted to it."""
    used: Amount | None = None
    pending_applications: int = 0

    def may_use(self, label: str) -> bool:
        """Whether its applications may have containers there."""
        return not label or label in self.labels or ANY_LABEL in self.labels

    @property
    def is_fair(self) -> bool:
        """Whether it is one of the Fair Scheduler, below its root."""
        return "." in self.name

    @property
    def acl_of_submitters(self) -> str:
        """The setting that says who may submit to it."""
        return "aclSubmitApps" if self.is_fair else "acl_submit_applications"

    @property
    def known_as(self) -> tuple[str, ...]:
        """What a submitter may call it."""
        if self.is_fair:
            return (self.name, self.name.removeprefix("root."))
        return (self.name, self.path) if self.path and self.path != self.name else (self.name,)


class YarnCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at one moment, for one user."""

    user: str
    largest: Amount
    """The largest container that may be asked for (``yarn.scheduler.maximum-allocation-*``)."""
    smallest: Amount = Amount(memory_mb=1, cores=1)
    """The smallest container, as far as the configuration says."""
    step: Amount | None = None
    """Containers come in multiples of this; None for those of the smallest."""
    nodes: tuple[YarnNode, ...] = ()
    queues: tuple[Queue, ...] = ()
    labels: tuple[str, ...] | None = None
    """None if labels are not in use or not told."""
    shared_labels: frozenset[str] = frozenset()
    """Those whose idle nodes also serve requests without a label (non-exclusive partitions), but no master:
    https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/NodeLabel.html"""
    resource_types: tuple[str, ...] | None = None
    """Names of countable resources besides memory and cores; None if not told."""
    may_submit: frozenset[str] | None = None
    """Queues the user may submit to; None if not told."""

    def usable(self, label: str | None = None) -> tuple[YarnNode, ...]:
        """Nodes that take containers, of one partition or of all."""
        return tuple(
            node for node in self.nodes if node.usable and (label is None or node.label == label)
        )

    def rounded(self, amount: Amount) -> Amount:
        """The container that is given to a request for that."""
        return rounded(amount, self.smallest, self.step)

    def queue(self, name: str) -> Queue | None:
        """The queue that is called so."""
        return next((queue for queue in self.queues if name in queue.known_as), None)

    def above(self, queue: Queue) -> list[Queue]:
        """The Fair Scheduler's queues that this one is in. What they may have at most is no part of what it may
        have by its own share; the capacity scheduler's shares say it all."""
        return [each for each in self.queues if queue.name.startswith(f"{each.name}.")]

    def most_on_a_node(self, label: str | None = None) -> Amount:
        """The greatest node, resource by resource."""
        return most(node.capability for node in self.usable(label))


def listed(names: Iterable[str], limit: int = 8) -> str:
    """``a, b, c and 4 more``."""
    known = list(names)
    rest = f" and {len(known) - limit} more" if len(known) > limit else ""
    return ", ".join(known[:limit]) + rest
