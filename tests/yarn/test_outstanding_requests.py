"""What a master requests for: a model of the ResourceManager answers, in whatever order it likes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from howdah.backends.base import RoleResources
from howdah.backends.yarn.amounts import Amount, rounded
from howdah.backends.yarn.client.cluster import YarnNode
from howdah.backends.yarn.master.outstanding_requests import (
    ANY,
    Allocated,
    OutstandingRequests,
    RequestChanges,
)
from howdah.core.messages import ContainerRequest
from howdah.spec.model import Placement

PLAIN = {"worker": RoleResources(memory_mb=256), "ps": RoleResources(memory_mb=512)}


def asks_for(role: str, *numbers: int) -> list[ContainerRequest]:
    return [ContainerRequest(request_id=number, role=role) for number in numbers]


def counts(changes: RequestChanges) -> dict[tuple[str, str], int]:
    return {(request.role, request.place): request.count for request in changes.requests}


ROUNDED = partial(rounded, smallest=Amount(memory_mb=256, cores=1))


def node(memory_mb: int, *, label: str = "", usable: bool = True, rack: str = "/r1") -> YarnNode:
    return YarnNode(
        host="n:1",
        capability=Amount(memory_mb=memory_mb, cores=100),
        labels=(label,),
        usable=usable,
        rack=rack,
    )


NODES = {"n1": node(0), "n2": node(0)}
"""Of one rack, and full."""


def granted(key: int, *nodes: str, first: int = 1) -> list[Allocated]:
    return [
        Allocated(container_id=f"c{number}", key=key, node=node)
        for number, node in enumerate(nodes, first)
    ]


def test_a_role_is_one_count_however_many_requests_there_are() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.add([*asks_for("worker", 1, 2, 3), *asks_for("ps", 4)])
    assert counts(requests.take_changes()) == {("worker", ANY): 3, ("ps", ANY): 1}
    assert not requests.take_changes()
    requests.add(asks_for("worker", 5))
    assert counts(requests.take_changes()) == {("worker", ANY): 4}


def test_grants_go_to_the_oldest_requests_and_are_not_answered() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.add(asks_for("worker", 7, 8, 9))
    requests.take_changes()
    matched, excess = requests.allocated(granted(1, "n1", "n2"))
    assert [(number, one.node) for number, one in matched] == [(7, "n1"), (8, "n2")]
    assert excess == []
    assert not requests.take_changes(), "the ResourceManager has counted them itself"
    assert requests.outstanding == 1


def test_a_container_nobody_wants_is_given_back_at_once() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.add(asks_for("worker", 1))
    requests.take_changes()
    matched, excess = requests.allocated(granted(1, "n1", "n1"))
    assert len(matched) == 1
    assert excess == ["c2"]
    assert requests.take_changes().release == ("c2",)


def test_a_container_of_an_unknown_key_is_given_back() -> None:
    requests = OutstandingRequests(PLAIN)
    assert requests.allocated(granted(77, "n1")) == ([], ["c1"])


def test_taking_requests_back_lowers_the_count() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.add(asks_for("worker", 1, 2, 3))
    requests.take_changes()
    requests.cancel([2, 99])
    assert counts(requests.take_changes()) == {("worker", ANY): 2}
    requests.cancel([1, 3])
    assert counts(requests.take_changes()) == {("worker", ANY): 0}
    assert not requests.take_changes()


def test_a_request_is_wanted_once_however_often_it_is_made() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.add(asks_for("worker", 1))
    requests.add(asks_for("worker", 1))
    assert counts(requests.take_changes()) == {("worker", ANY): 1}
    requests.allocated(granted(1, "n1"))
    requests.add(asks_for("worker", 1))
    assert not requests.take_changes()


def test_requests_of_unknown_roles_are_named() -> None:
    assert OutstandingRequests(PLAIN).add(asks_for("nobody", 4)) == [4]


def test_after_a_resync_everything_outstanding_is_told_again() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.avoid(["bad"])
    requests.add([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    requests.take_changes()
    requests.allocated(granted(1, "n1"))
    requests.resync()
    changes = requests.take_changes()
    assert counts(changes) == {("worker", ANY): 1, ("ps", ANY): 1}
    assert changes.blacklist == ("bad",)


def test_rejected_requests_are_told_again() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.add(asks_for("worker", 1, 2))
    requests.take_changes()
    requests.rejected(1)
    assert counts(requests.take_changes()) == {("worker", ANY): 2}


def test_nodes_to_avoid_are_blacklisted_and_later_forgiven() -> None:
    requests = OutstandingRequests(PLAIN)
    requests.avoid(["n1", "n2"])
    assert requests.take_changes().blacklist == ("n1", "n2")
    requests.avoid(["n2", "n3"])
    changes = requests.take_changes()
    assert (changes.blacklist, changes.unblacklist) == (("n3",), ("n1",))


def test_a_spread_role_gets_a_node_for_each_without_the_resource_managers_help() -> None:
    roles = {"worker": RoleResources(placement=Placement(spread=True))}
    requests = OutstandingRequests(roles)
    requests.add(asks_for("worker", 1, 2, 3))
    assert counts(requests.take_changes()) == {("worker", ANY): 3}
    matched, excess = requests.allocated(granted(1, "n1", "n1", "n2"))
    assert [one.node for _, one in matched] == ["n1", "n2"]
    assert excess == ["c2"]
    changes = requests.take_changes()
    assert changes.blacklist == ("n1", "n2")
    assert counts(changes) == {("worker", ANY): 1}
    requests.allocated(granted(1, "n3", first=4))
    assert requests.take_changes().unblacklist == ("n1", "n2"), "others may be put there again"


def test_a_spread_role_waits_until_roles_without_a_condition_have_theirs() -> None:
    roles = {"worker": RoleResources(placement=Placement(spread=True)), "ps": RoleResources()}
    requests = OutstandingRequests(roles)
    requests.add([*asks_for("worker", 1), *asks_for("ps", 2)])
    assert counts(requests.take_changes()) == {("ps", ANY): 1}
    requests.allocated(granted(2, "n1"))
    assert counts(requests.take_changes()) == {("worker", ANY): 1}


def test_roles_apart_do_not_share_a_node() -> None:
    roles = {"worker": RoleResources(placement=Placement(apart=("ps",))), "ps": RoleResources()}
    requests = OutstandingRequests(roles)
    requests.add([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    requests.take_changes()
    requests.allocated(granted(2, "n1"))
    changes = requests.take_changes()
    assert changes.blacklist == ("n1",)
    _, excess = requests.allocated(granted(1, "n1", "n2", "n2", first=5))
    assert excess == ["c5"]


def test_a_resource_manager_that_takes_constraints_is_told_of_them() -> None:
    roles = {"worker": RoleResources(placement=Placement(spread=True)), "ps": RoleResources()}
    requests = OutstandingRequests(roles, constraints=True)
    requests.add([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    told = {request.role: request.apart_from for request in requests.take_changes().requests}
    assert told == {"worker": ("worker",), "ps": None}


def test_a_role_near_another_waits_for_it_and_then_prefers_its_nodes() -> None:
    roles = {"worker": RoleResources(placement=Placement(near=("ps",))), "ps": RoleResources()}
    requests = OutstandingRequests(roles)
    requests.nodes_are(NODES, rounded=ROUNDED)
    requests.add([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    assert counts(requests.take_changes()) == {("ps", ANY): 1}
    requests.allocated(granted(2, "n1"))
    wanted = {("worker", "n1"): 2, ("worker", "/r1"): 2, ("worker", ANY): 2}
    assert counts(requests.take_changes()) == wanted
    requests.allocated(granted(1, "n1", first=5))
    assert not requests.take_changes(), "node, rack and any were lowered by the ResourceManager"
    requests.allocated(granted(1, "n9", first=6))
    assert counts(requests.take_changes()) == {("worker", "n1"): 0, ("worker", "/r1"): 0}


TOGETHER = {
    "worker": RoleResources(placement=Placement(together=("ps",))),
    "ps": RoleResources(),
}


def test_a_role_together_with_another_is_asked_for_on_its_nodes_and_nowhere_else() -> None:
    requests = OutstandingRequests(TOGETHER, constraints=True)
    requests.nodes_are(NODES, rounded=ROUNDED)
    requests.add([*asks_for("worker", 1, 2), *asks_for("ps", 3, 4)])
    assert counts(requests.take_changes()) == {("ps", ANY): 2}
    assert requests.only_on() == {"worker": (("ps",), frozenset())}
    requests.allocated(granted(2, "n1"))
    changes = requests.take_changes()
    assert {each.place: (each.count, each.relaxed) for each in changes.requests} == {
        "n1": (2, True),
        "/r1": (2, False),
        ANY: (2, False),
    }
    _, excess = requests.allocated(granted(1, "n2", "n1", first=5))
    assert excess == ["c5"], "no ps is there"
    requests.allocated(granted(2, "n2", first=7))
    assert ("worker", "n2") in counts(requests.take_changes())
    assert requests.only_on() == {"worker": (("ps",), frozenset({"n1", "n2"}))}


def test_a_role_together_with_another_is_not_asked_for_where_that_one_has_gone() -> None:
    requests = OutstandingRequests(TOGETHER)
    requests.nodes_are(NODES, rounded=ROUNDED)
    requests.add([*asks_for("worker", 1), *asks_for("ps", 2)])
    requests.take_changes()
    requests.allocated(granted(2, "n1"))
    requests.take_changes()
    requests.completed("c1")
    requests.add(asks_for("ps", 3))
    told = {(each.role, each.place): each for each in requests.take_changes().requests}
    assert {name: each.count for name, each in told.items()} == {
        ("worker", "n1"): 0,
        ("worker", "/r1"): 0,
        ("worker", ANY): 0,
        ("ps", ANY): 1,
    }
    assert not told["worker", ANY].relaxed, "it is the same request"


def test_a_role_on_nodes_of_a_spread_one_waits_for_all_of_it_and_may_be_spread_itself() -> None:
    roles = {
        "worker": RoleResources(placement=Placement(together=("ps",), spread=True)),
        "ps": RoleResources(placement=Placement(spread=True)),
    }
    requests = OutstandingRequests(roles)
    requests.nodes_are(NODES, rounded=ROUNDED)
    requests.add([*asks_for("worker", 1, 2), *asks_for("ps", 3, 4)])
    assert counts(requests.take_changes()) == {("ps", ANY): 2}
    requests.allocated(granted(2, "n1"))
    assert not counts(requests.take_changes())
    requests.allocated(granted(2, "n2", first=2))
    assert counts(requests.take_changes()) == {
        ("worker", "n1"): 1,
        ("worker", "n2"): 1,
        ("worker", "/r1"): 2,
        ("worker", ANY): 2,
    }
    requests.allocated(granted(1, "n1", first=3))
    changes = requests.take_changes()
    assert changes.blacklist == ("n1",)
    assert requests.allocated(granted(1, "n2", first=4))[1] == []


def test_containers_are_asked_for_evenly_by_the_names_of_nodes_that_have_room_and_anywhere() -> (
    None
):
    requests = OutstandingRequests(PLAIN)
    requests.add([*asks_for("worker", 1, 2, 3, 4, 5), *asks_for("ps", 6)])
    requests.nodes_are(
        {
            "n1": node(512),
            "n2": node(10_000),
            "n3": node(10_000, usable=False),
            "n4": node(10_000, label="gpu"),
            "n5": node(10_000, rack=""),
            "n6": node(128),
        },
        rounded=ROUNDED,
    )
    assert counts(requests.take_changes()) == {
        ("worker", "n1"): 2,
        ("worker", "n2"): 3,
        ("worker", "/r1"): 5,
        ("worker", ANY): 5,
        ("ps", "n2"): 1,
        ("ps", "/r1"): 1,
        ("ps", ANY): 1,
    }
    requests.allocated(granted(1, "n1", "n2", "n2"))
    assert not requests.take_changes(), "node, rack and any were lowered by the ResourceManager"
    requests.allocated(granted(1, "n3", "n3", first=4))
    assert counts(requests.take_changes()) == {
        ("worker", "n1"): 0,
        ("worker", "n2"): 0,
    }


def test_names_of_nodes_are_those_of_the_roles_partition() -> None:
    requests = OutstandingRequests({"worker": RoleResources(memory_mb=256, label="gpu")})
    requests.add(asks_for("worker", 1))
    requests.nodes_are({"n1": node(512), "n2": node(512, label="gpu")}, rounded=ROUNDED)
    assert ("worker", "n2") in counts(requests.take_changes())
    requests.avoid(["n2"])
    assert counts(requests.take_changes()) == {("worker", "n2"): 0, ("worker", "/r1"): 0}


def test_a_node_whose_rack_is_unknown_is_never_asked_for_by_name() -> None:
    roles = {"worker": RoleResources(placement=Placement(pack=True))}
    requests = OutstandingRequests(roles)
    requests.add(asks_for("worker", 1, 2))
    requests.take_changes()
    requests.allocated(granted(1, "n1"))
    assert not requests.take_changes()


def test_roles_that_want_to_be_near_each_other_do_not_wait_for_ever() -> None:
    roles = {
        "a": RoleResources(placement=Placement(near=("b",))),
        "b": RoleResources(placement=Placement(near=("a",))),
    }
    requests = OutstandingRequests(roles)
    requests.add([*asks_for("a", 1), *asks_for("b", 2)])
    assert counts(requests.take_changes()) == {("a", ANY): 1, ("b", ANY): 1}


@given(st.lists(st.sampled_from(["worker", "ps"]), max_size=8), st.data())
def test_whatever_order_containers_come_in_each_request_gets_one_of_its_role(
    wanted: Sequence[str], data: st.DataObject
) -> None:
    requests = OutstandingRequests(PLAIN)
    asked = [ContainerRequest(request_id=n, role=role) for n, role in enumerate(wanted)]
    requests.add(asked)
    requests.take_changes()
    keys = data.draw(st.permutations([1 if role == "worker" else 2 for role in wanted]))
    got = {
        number: one.key for one in granted_all(keys) for number, one in requests.allocated([one])[0]
    }
    assert got == {r.request_id: 1 if r.role == "worker" else 2 for r in asked}
    assert requests.outstanding == 0


def granted_all(keys: Sequence[int]) -> list[Allocated]:
    return [Allocated(container_id=f"c{n}", key=key, node="n") for n, key in enumerate(keys)]


class Cluster(RuleBasedStateMachine):
    """A ResourceManager that allocates when it likes, and whose answers come late.

    Everything that was asked for is given in the end, nothing is held that nobody wants.
    """

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.outstanding = OutstandingRequests(
            {
                **PLAIN,
                "lone": RoleResources(placement=Placement(spread=True)),
                "beside": RoleResources(placement=Placement(together=("ps", "lone"))),
            }
        )
        self.keys = {"worker": 1, "ps": 2, "lone": 3, "beside": 4}
        self.pending: Counter[tuple[int, str]] = Counter()
        self.relaxed: dict[int, bool] = {}
        self.blacklist: set[str] = set()
        self.on_the_way: list[Allocated] = []
        self.allocated: dict[str, Allocated] = {}
        self.wanted: dict[int, str] = {}
        self.matched: dict[int, Allocated] = {}
        self.ids = itertools.count(1)

    @rule(
        target=requests,
        role=st.sampled_from(["worker", "ps", "lone", "beside"]),
        n=st.integers(1, 3),
    )
    def request(self, role: str, n: int) -> object:
        numbers = [next(self.ids) for _ in range(n)]
        self.wanted |= dict.fromkeys(numbers, role)
        self.outstanding.add(asks_for(role, *numbers))
        return multiple(*numbers)

    @rule(number=consumes(requests))
    def cancel(self, number: int) -> None:
        self.outstanding.cancel([number])
        if number not in self.matched:
            self.wanted.pop(number, None)

    @rule(number=consumes(requests))
    def end(self, number: int) -> None:
        """A container that was granted is given back."""
        if (one := self.matched.pop(number, None)) is not None:
            self.wanted.pop(number)
            self.outstanding.release(one.container_id)
            self.outstanding.completed(one.container_id)

    @rule()
    def beat(self) -> None:
        """What is to be said arrives, what was allocated before comes back."""
        changes = self.outstanding.take_changes()
        for request in changes.requests:
            self.pending[request.key, request.place] = request.count
            if request.place == ANY:
                assert self.relaxed.setdefault(request.key, request.relaxed) == request.relaxed
        self.blacklist = (self.blacklist - set(changes.unblacklist)) | set(changes.blacklist)
        for container_id in changes.release:
            self.allocated.pop(container_id, None)
        arrived, self.on_the_way = self.on_the_way, []
        matched, _ = self.outstanding.allocated(arrived)
        for number, one in matched:
            assert number not in self.matched
            assert self.keys[self.wanted[number]] == one.key
            self.matched[number] = one
        there = {each.node for n, each in self.matched.items() if self.wanted[n] in ("ps", "lone")}
        for number, one in matched:
            assert self.wanted[number] != "beside" or one.node in there

    @rule(room=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1500)))
    def look(self, room: dict[str, int]) -> None:
        """The master is told what room there is, right or wrong."""
        self.outstanding.nodes_are({name: node(room[name]) for name in room}, rounded=ROUNDED)

    @rule(
        key=st.integers(1, 4),
        name=st.sampled_from("abcdef"),
        many=st.integers(1, 4),
        off_switch=st.booleans(),
    )
    def allocate(self, key: int, name: str, many: int, off_switch: bool = False) -> None:
        """As ``LocalityAppPlacementAllocator`` counts."""
        for _ in range(many):
            if not self.pending[key, ANY] or name in self.blacklist:
                return
            if not self.relaxed[key] and not self.pending[key, name]:
                return
            places = [name, "/r1", ANY] if self.pending[key, name] else ["/r1", ANY]
            if not self.pending[key, "/r1"] or (off_switch and len(places) == 2):
                assert not self.pending[key, name], "the scheduler fails"
                places = [ANY]
            for place in places:
                self.pending[key, place] -= 1
            one = Allocated(container_id=f"c{next(self.ids)}", key=key, node=name)
            self.allocated[one.container_id] = one
            self.on_the_way.append(one)

    @rule()
    def restart(self) -> None:
        """The ResourceManager forgets what was asked for, and what it had given and not told yet: no node
        has begun that."""
        for one in self.on_the_way:
            del self.allocated[one.container_id]
        self.on_the_way.clear()
        self.pending.clear()
        self.blacklist.clear()
        self.outstanding.resync()

    @invariant()
    def containers_of_a_spread_role_share_no_node(self) -> None:
        nodes = [one.node for n, one in self.matched.items() if self.wanted[n] == "lone"]
        assert len(nodes) == len(set(nodes))

    def teardown(self) -> None:
        names = [*"abcdef", *(f"z{n}" for n in range(40))]
        self.request("ps", 1)  # whoever must be beside it can be
        self.look(dict.fromkeys(names, 1500))
        for _ in range(60):
            self.beat()
            for key, name in itertools.product((1, 2, 3, 4), names):
                self.allocate(key, name, 1)
            if not self.outstanding.outstanding:
                break
        self.beat()
        self.beat()
        assert set(self.matched) == set(self.wanted)
        held = {one.container_id for one in self.matched.values()}
        assert set(self.allocated) == held, "whatever came too many was given back"


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
