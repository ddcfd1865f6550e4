"""What a master has to ask of the ResourceManager, and what it gets: bookkeeping without I/O. Pure.

Every role is one scheduler key (YARN's priority and ``allocationRequestId``), for all containers of
a key are alike and a count of them costs the ResourceManager less than a thousand single requests.
Counts are absolute: the ResourceManager lowers its own by each container it gives, so nothing is
said after a grant, and a count is said again only when what is wanted has changed. Numbers can cross
on the way; a container that comes too many is given back at once.

Where containers shall be (`howdah.spec.model.Placement`):

- ``near``, ``pack`` and ``racks`` are preferences: requests by name of node or rack, with relaxed
  locality. ``near`` waits until the other role has its containers.
- ``together`` is a condition: only the nodes of the other roles are asked for, without relaxed locality, once
  there are some. What comes elsewhere nevertheless is given back.
- ``spread`` and ``apart`` are conditions. Where the ResourceManager takes placement constraints
  (``yarn.resourcemanager.placement-constraints.handler``) it is told to spread; else the nodes in
  question are blacklisted while only such a role is asked for, and what comes there nevertheless is
  given back and asked for anew.

A role without any of these is asked for by the names of nodes that have room for it too, its containers
evenly among them: a capacity scheduler gives one container a node's heartbeat to who asks for anywhere
(``per-node-heartbeat.maximum-offswitch-assignments``), and as many as were asked for to who names the
node. Beside it they are asked for anywhere, so what a named node has no more room for comes from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from howdah.backends.base import RoleResources
from howdah.backends.yarn.amounts import Amount, of_role
from howdah.backends.yarn.client.cluster import YarnNode
from howdah.core.messages import ContainerRequest

ANY = "*"
"""``ResourceRequest.ANY``"""
NAMED_NODES = 100
"""With more of them the heartbeats come so often that asking for anywhere is as fast."""


class RoleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """So many containers of a role at a place; the number is all that are wanted, not some more."""

    role: str
    key: int
    """Priority and ``allocationRequestId``."""
    count: int
    place: str = ANY
    """`ANY`, a node, or a rack."""
    relaxed: bool = True
    """Whether they may come from any node of the place; else only from nodes that are asked for by name."""
    apart_from: tuple[str, ...] | None = None
    """Roles none of whose containers may be on the same node, for a ResourceManager that sees to
    it; None for an ordinary request."""


class RequestChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What the next ``allocate`` has to say."""

    requests: tuple[RoleRequest, ...] = ()
    release: tuple[str, ...] = ()
    blacklist: tuple[str, ...] = ()
    unblacklist: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requests or self.release or self.blacklist or self.unblacklist)


class Allocated(msgspec.Struct, frozen=True, kw_only=True):
    """A container the ResourceManager has allocated."""

    container_id: str
    key: int
    node: str
    """The node as requests and blacklists name it."""


class _Held(msgspec.Struct, frozen=True):
    role: str
    node: str


class OutstandingRequests:
    """What is wanted, what the ResourceManager was told, and what is held."""

    def __init__(
        self,
        roles: Mapping[str, RoleResources],
        *,
        constraints: bool = False,
    ) -> None:
        """``constraints``: the ResourceManager takes placement constraints."""
        self._racks: dict[str, str] = {}
        self._named: dict[str, dict[str, int]] = {}
        """How many containers of a role are to come from nodes that have room, by node."""
        self._roles = roles
        self._keys = {role: number for number, role in enumerate(roles, start=1)}
        self._role_of = {number: role for role, number in self._keys.items()}
        self._constraints = constraints
        self._wanted: dict[str, list[int]] = {role: [] for role in roles}
        """Request ids by role, oldest first."""
        self._known: set[int] = set()
        """Requests that were asked for once; none is granted twice."""
        self._acknowledged: dict[tuple[int, str], int] = {}
        """Counts as the ResourceManager has them, as far as we know."""
        self._held: dict[str, _Held] = {}
        self._release: list[str] = []
        self._avoid: frozenset[str] = frozenset()
        self._blacklisted: frozenset[str] = frozenset()

    # -- what the coordinator wants --------------------------------------------------------------

    def add(self, requests: Iterable[ContainerRequest]) -> list[int]:
        """Want these too; one that is known changes nothing. Returns those of unknown roles."""
        unknown: list[int] = []
        for request in requests:
            if request.request_id in self._known:
                continue
            self._known.add(request.request_id)
            if request.role in self._wanted:
                self._wanted[request.role].append(request.request_id)
            else:
                unknown.append(request.request_id)
        return unknown

    def cancel(self, request_ids: Iterable[int]) -> None:
        """Want these no more; granted and unknown ones are none of ours."""
        gone = set(request_ids)
        for role, wanted in self._wanted.items():
            self._wanted[role] = [number for number in wanted if number not in gone]

    def refuse(self, role: str) -> list[int]:
        """Want nothing of the role any more; returns what was outstanding."""
        refused, self._wanted[role] = self._wanted[role], []
        return refused

    def avoid(self, nodes: Iterable[str]) -> None:
        """No containers on these nodes from now on, as far as the ResourceManager can help it."""
        self._avoid = frozenset(nodes)

    def nodes_are(
        self,
        nodes: Mapping[str, YarnNode],
        *,
        rounded: Callable[[Amount], Amount],
        default_label: str = "",
    ) -> None:
        """These are the nodes, by the names that requests give them, and what is free on them.

        ``rounded`` gives the container that comes of a request for so much, ``default_label`` is the label of
        roles that have none. A node that is not told of, or whose rack is not, is never asked for by
        name: a scheduler that is asked for a node and not for its rack fails
        (``LocalityAppPlacementAllocator``).
        """
        self._racks = {name: node.rack for name, node in nodes.items() if node.rack}
        free = {
            name: nodes[name].free
            for name in sorted(self._racks.keys() - self._avoid)
            if nodes[name].usable
        }
        self._named = {}
        for role, count in self.missing().items():
            resources = self._roles[role]
            placement = resources.placement
            if placement.racks or placement.together or self._near(role) or self._apart_from(role):
                continue
            label = resources.label or default_label
            each = rounded(of_role(resources))
            there = {name: left for name, left in free.items() if nodes[name].label == label}
            self._named[role] = _evenly(count, each, there)
            for name, number in self._named[role].items():
                free[name] -= each * number

    def release(self, container_id: str) -> None:
        """Give a container back with the next `take_changes`."""
        self._release.append(container_id)

    @property
    def outstanding(self) -> int:
        """How many containers are wanted and not here."""
        return sum(len(wanted) for wanted in self._wanted.values())

    @property
    def lacks_racks(self) -> bool:
        """Whether a node that is to be asked for by name was not told of (`nodes_are`)."""
        return any(
            self._nodes_of({*self._together(role), *self._near(role)}) - self._racks.keys()
            for role in self.roles_wanted()
        )

    def missing(self) -> dict[str, int]:
        """How many containers of each role are wanted and not here."""
        return {role: len(wanted) for role, wanted in self._wanted.items() if wanted}

    def roles_wanted(self) -> list[str]:
        """Roles with outstanding requests."""
        return [role for role, wanted in self._wanted.items() if wanted]

    def only_on(self) -> dict[str, tuple[tuple[str, ...], frozenset[str]]]:
        """Of roles that miss containers and may be on some nodes only: the roles that must be there, and the
        nodes where these are."""
        return {
            role: (together, self._nodes_of(together))
            for role in self.roles_wanted()
            if (together := self._together(role))
        }

    # -- what comes ------------------------------------------------------------------------------

    def role_of(self, key: int) -> str | None:
        """The role of a scheduler key."""
        return self._role_of.get(key)

    def allocated(
        self, allocated: Sequence[Allocated]
    ) -> tuple[list[tuple[int, Allocated]], list[str]]:
        """Match allocated containers to the oldest requests of their roles.

        Returns the matches, and the containers nobody wants: these are given back.
        """
        matched: list[tuple[int, Allocated]] = []
        excess: list[str] = []
        for one in allocated:
            self._lower(one)
            role = self._role_of.get(one.key)
            if role is None or not self._wanted[role] or self._conflicts(role, one.node):
                excess.append(one.container_id)
                self.release(one.container_id)
                continue
            self._held[one.container_id] = _Held(role, one.node)
            matched.append((self._wanted[role].pop(0), one))
        return matched, excess

    def recovered(self, container: Allocated) -> None:
        """A container of an earlier attempt is held."""
        self._held[container.container_id] = _Held(
            self._role_of.get(container.key, ""), container.node
        )

    def completed(self, container_id: str) -> None:
        """It is held no more."""
        self._held.pop(container_id, None)

    def rejected(self, key: int) -> None:
        """The ResourceManager has dropped the requests of this key: they are told anew."""
        for acknowledged in [each for each in self._acknowledged if each[0] == key]:
            del self._acknowledged[acknowledged]

    def resync(self) -> None:
        """The ResourceManager has forgotten everything: `take_changes` tells all again."""
        self._acknowledged.clear()
        self._blacklisted = frozenset()

    # -- what is to be said ----------------------------------------------------------------------

    def take_changes(self) -> RequestChanges:
        """What has changed since the last call; taken as said."""
        wanted: dict[tuple[int, str], RoleRequest] = {}
        for role in self._requested_now():
            for request in self._table(role):
                wanted[request.key, request.place] = request
        requests = [
            request
            for name, request in wanted.items()
            if self._acknowledged.get(name, 0) != request.count
        ]
        for key, place in self._acknowledged:
            if (key, place) not in wanted and self._acknowledged[key, place] > 0:
                requests.append(self._request(self._role_of[key], 0, place))
        for request in requests:
            self._acknowledged[request.key, request.place] = request.count
        self._acknowledged = {
            name: count for name, count in self._acknowledged.items() if count > 0
        }
        blacklist = self._avoid | self._forbidden_now()
        changes = RequestChanges(
            requests=tuple(requests),
            release=tuple(self._release),
            blacklist=tuple(sorted(blacklist - self._blacklisted)),
            unblacklist=tuple(sorted(self._blacklisted - blacklist)),
        )
        self._release = []
        self._blacklisted = blacklist
        return changes

    def _table(self, role: str) -> list[RoleRequest]:
        """All requests of a role: anywhere, and the preferred places with it."""
        count = len(self._wanted[role])
        if self._constrained(role):
            return [self._request(role, count, ANY)]  # a scheduling request names no places
        nodes = self._preferred(role, count)
        if self._together(role) and not nodes:
            return []
        racks = (*(self._racks[node] for node in nodes), *self._roles[role].placement.racks)
        places = {**nodes, **dict.fromkeys(racks, count), ANY: count}
        return [self._request(role, number, place) for place, number in places.items()]

    def _request(self, role: str, count: int, place: str) -> RoleRequest:
        apart_from = self._apart_from(role) if self._constrained(role) else None
        return RoleRequest(
            role=role,
            key=self._keys[role],
            count=count,
            place=place,
            relaxed=not (self._together(role) and (place == ANY or place.startswith("/"))),
            apart_from=apart_from,
        )

    def _preferred(self, role: str, count: int) -> dict[str, int]:
        """How many of ``count`` may come from which nodes, if not from anywhere."""
        named = self._named.get(role, {})
        if together := self._together(role):
            nodes = self._nodes_of(together)
            if self._conditional(role):
                nodes -= self._forbidden(role)
            each = 1 if self._roles[role].placement.spread else count
            named = dict.fromkeys(sorted(nodes & self._racks.keys()), each)
        elif near := self._near(role):
            named = dict.fromkeys(sorted(self._nodes_of(near) & self._racks.keys()), count)
        return {
            node: min(number, count)
            for node, number in named.items()
            if number > 0 and node not in self._avoid
        }

    def _near(self, role: str) -> set[str]:
        placement = self._roles[role].placement
        return set(placement.near) | ({role} if placement.pack else set())

    def _nodes_of(self, roles: Iterable[str]) -> frozenset[str]:
        return frozenset(held.node for held in self._held.values() if held.role in roles)

    # -- together --------------------------------------------------------------------------------

    def _together(self, role: str) -> tuple[str, ...]:
        return self._roles[role].placement.together

    def _lacks_nodes(self, role: str) -> bool:
        """Whether there is nothing to ask for yet. Roles with forbidden nodes are asked for when no other is:
        all of their containers are waited for."""
        together = self._together(role)
        if not together:
            return False
        wanted = [other for other in together if self._wanted.get(other)]
        return not self._nodes_of(together) or any(self._conditional(each) for each in wanted)

    # -- spread and apart ------------------------------------------------------------------------

    def _apart_from(self, role: str) -> tuple[str, ...]:
        """Roles whose nodes this one may not be on."""
        placement = self._roles[role].placement
        own = (role,) if placement.spread else ()
        return tuple(dict.fromkeys((*own, *(r for r in placement.apart if r in self._roles))))

    def _constrained(self, role: str) -> bool:
        """Whether the ResourceManager is told of the condition. Not with a node label or certain nodes:
        only ordinary requests name some. Not of other roles: their containers come by ordinary requests
        and have no tags."""
        resources = self._roles[role]
        named = resources.label or resources.placement.together
        return self._constraints and self._apart_from(role) == (role,) and not named

    def _conditional(self, role: str) -> bool:
        """Whether we see to the role's condition ourselves."""
        return bool(self._apart_from(role)) and not self._constrained(role)

    def _conflicts(self, role: str, node: str) -> bool:
        together = self._together(role)
        if together and node not in self._nodes_of(together):
            return True
        return self._conditional(role) and node in self._forbidden(role)

    def _forbidden(self, role: str) -> frozenset[str]:
        return self._nodes_of(self._apart_from(role))

    def _requested_now(self) -> list[str]:
        """Roles that are asked for at present; others wait for them.

        A blacklist holds for all roles, so roles with forbidden nodes come alone, and last. Who
        wants to be near another waits until that one has its containers.
        """
        roles = [role for role in self.roles_wanted() if not self._lacks_nodes(role)]
        free = [role for role in roles if not self._conditional(role)]
        if not free:
            return roles[:1]
        ready = [role for role in free if not self._waits(role, free)]
        return ready or free

    def _waits(self, role: str, others: Sequence[str]) -> bool:
        return any(near != role and near in others for near in self._roles[role].placement.near)

    def _forbidden_now(self) -> frozenset[str]:
        nodes: frozenset[str] = frozenset()
        for role in self._requested_now():
            if self._conditional(role):
                nodes |= self._forbidden(role)
        return nodes

    def _lower(self, container: Allocated) -> None:
        """The ResourceManager has counted a container it gave: at its node and rack, if it was
        asked for there, and anywhere."""
        named = self._named.get(self._role_of.get(container.key, ""), {})
        if container.node in named:
            named[container.node] -= 1
        for place in (container.node, self._racks.get(container.node, ""), ANY):
            name = (container.key, place)
            if self._acknowledged.get(name, 0) > 0:
                self._acknowledged[name] -= 1


def _evenly(count: int, each: Amount, free: Mapping[str, Amount]) -> dict[str, int]:
    """So many containers among nodes that have room: on none two more than on another one that has room
    for one more."""
    room = {node: left.holds(each) for node, left in free.items()}
    roomy = sorted((node for node in room if room[node]), key=lambda node: -room[node])
    chosen = dict.fromkeys(roomy[: min(count, NAMED_NODES)], 0)
    while count and (open_nodes := [node for node in chosen if chosen[node] < room[node]]):
        for node in open_nodes[:count]:
            chosen[node] += 1
        count -= min(count, len(open_nodes))
    return chosen
