"""What a master asks for: a model of the ResourceManager answers, in whatever order it likes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from howdah.backends.base import RoleResources
from howdah.backends.yarn.asks import ANY, Asks, Changes, Given
from howdah.core.messages import ContainerRequest
from howdah.spec.model import Placement

PLAIN = {"worker": RoleResources(memory_mb=256), "ps": RoleResources(memory_mb=512)}


def asks_for(role: str, *numbers: int) -> list[ContainerRequest]:
    return [ContainerRequest(request_id=number, role=role) for number in numbers]


def counts(changes: Changes) -> dict[tuple[str, str], int]:
    return {(ask.role, ask.place): ask.count for ask in changes.asks}


def granted(key: int, *nodes: str, first: int = 1) -> list[Given]:
    return [
        Given(container_id=f"c{number}", key=key, node=node)
        for number, node in enumerate(nodes, first)
    ]


def test_a_role_is_one_count_however_many_requests_there_are() -> None:
    asks = Asks(PLAIN)
    asks.request([*asks_for("worker", 1, 2, 3), *asks_for("ps", 4)])
    assert counts(asks.take()) == {("worker", ANY): 3, ("ps", ANY): 1}
    assert not asks.take()
    asks.request(asks_for("worker", 5))
    assert counts(asks.take()) == {("worker", ANY): 4}


def test_grants_go_to_the_oldest_requests_and_are_not_answered() -> None:
    asks = Asks(PLAIN)
    asks.request(asks_for("worker", 7, 8, 9))
    asks.take()
    matched, excess = asks.given(granted(1, "n1", "n2"))
    assert [(number, one.node) for number, one in matched] == [(7, "n1"), (8, "n2")]
    assert excess == []
    assert not asks.take(), "the ResourceManager has counted them itself"
    assert asks.outstanding == 1


def test_a_container_nobody_wants_is_given_back_at_once() -> None:
    asks = Asks(PLAIN)
    asks.request(asks_for("worker", 1))
    asks.take()
    matched, excess = asks.given(granted(1, "n1", "n1"))
    assert len(matched) == 1
    assert excess == ["c2"]
    assert asks.take().release == ("c2",)


def test_a_container_of_an_unknown_key_is_given_back() -> None:
    asks = Asks(PLAIN)
    assert asks.given(granted(77, "n1")) == ([], ["c1"])


def test_taking_requests_back_lowers_the_count() -> None:
    asks = Asks(PLAIN)
    asks.request(asks_for("worker", 1, 2, 3))
    asks.take()
    asks.cancel([2, 99])
    assert counts(asks.take()) == {("worker", ANY): 2}
    asks.cancel([1, 3])
    assert counts(asks.take()) == {("worker", ANY): 0}
    assert not asks.take()


def test_a_request_is_wanted_once_however_often_it_is_made() -> None:
    asks = Asks(PLAIN)
    asks.request(asks_for("worker", 1))
    asks.request(asks_for("worker", 1))
    assert counts(asks.take()) == {("worker", ANY): 1}
    asks.given(granted(1, "n1"))
    asks.request(asks_for("worker", 1))
    assert not asks.take()


def test_requests_of_unknown_roles_are_named() -> None:
    assert Asks(PLAIN).request(asks_for("nobody", 4)) == [4]


def test_after_a_resync_everything_outstanding_is_told_again() -> None:
    asks = Asks(PLAIN)
    asks.avoid(["bad"])
    asks.request([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    asks.take()
    asks.given(granted(1, "n1"))
    asks.resync()
    changes = asks.take()
    assert counts(changes) == {("worker", ANY): 1, ("ps", ANY): 1}
    assert changes.blacklist == ("bad",)


def test_rejected_requests_are_told_again() -> None:
    asks = Asks(PLAIN)
    asks.request(asks_for("worker", 1, 2))
    asks.take()
    asks.rejected(1)
    assert counts(asks.take()) == {("worker", ANY): 2}


def test_nodes_to_avoid_are_blacklisted_and_later_forgiven() -> None:
    asks = Asks(PLAIN)
    asks.avoid(["n1", "n2"])
    assert asks.take().blacklist == ("n1", "n2")
    asks.avoid(["n2", "n3"])
    changes = asks.take()
    assert (changes.blacklist, changes.unblacklist) == (("n3",), ("n1",))


def test_a_spread_role_gets_a_node_for_each_without_the_resource_managers_help() -> None:
    roles = {"worker": RoleResources(placement=Placement(spread=True))}
    asks = Asks(roles)
    asks.request(asks_for("worker", 1, 2, 3))
    assert counts(asks.take()) == {("worker", ANY): 3}
    matched, excess = asks.given(granted(1, "n1", "n1", "n2"))
    assert [one.node for _, one in matched] == ["n1", "n2"]
    assert excess == ["c2"]
    changes = asks.take()
    assert changes.blacklist == ("n1", "n2")
    assert counts(changes) == {("worker", ANY): 1}
    asks.given(granted(1, "n3", first=4))
    assert asks.take().unblacklist == ("n1", "n2"), "others may be put there again"


def test_a_spread_role_waits_until_roles_without_a_condition_have_theirs() -> None:
    roles = {"worker": RoleResources(placement=Placement(spread=True)), "ps": RoleResources()}
    asks = Asks(roles)
    asks.request([*asks_for("worker", 1), *asks_for("ps", 2)])
    assert counts(asks.take()) == {("ps", ANY): 1}
    asks.given(granted(2, "n1"))
    assert counts(asks.take()) == {("worker", ANY): 1}


def test_roles_apart_do_not_share_a_node() -> None:
    roles = {"worker": RoleResources(placement=Placement(apart=("ps",))), "ps": RoleResources()}
    asks = Asks(roles)
    asks.request([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    asks.take()
    asks.given(granted(2, "n1"))
    changes = asks.take()
    assert changes.blacklist == ("n1",)
    _, excess = asks.given(granted(1, "n1", "n2", "n2", first=5))
    assert excess == ["c5"]


def test_a_resource_manager_that_takes_constraints_is_told_of_them() -> None:
    roles = {"worker": RoleResources(placement=Placement(spread=True)), "ps": RoleResources()}
    asks = Asks(roles, constraints=True)
    asks.request([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    told = {ask.role: ask.apart_from for ask in asks.take().asks}
    assert told == {"worker": ("worker",), "ps": None}


def test_a_role_near_another_waits_for_it_and_then_prefers_its_nodes() -> None:
    roles = {"worker": RoleResources(placement=Placement(near=("ps",))), "ps": RoleResources()}
    asks = Asks(roles, racks={"n1": "/r1", "n2": "/r1"})
    asks.request([*asks_for("worker", 1, 2), *asks_for("ps", 3)])
    assert counts(asks.take()) == {("ps", ANY): 1}
    asks.given(granted(2, "n1"))
    wanted = {("worker", "n1"): 2, ("worker", "/r1"): 2, ("worker", ANY): 2}
    assert counts(asks.take()) == wanted
    asks.given(granted(1, "n1", first=5))
    assert not asks.take(), "node, rack and any were lowered by the ResourceManager"
    asks.given(granted(1, "n9", first=6))
    assert counts(asks.take()) == {("worker", "n1"): 0, ("worker", "/r1"): 0}


def test_a_node_whose_rack_is_unknown_is_never_asked_for_by_name() -> None:
    roles = {"worker": RoleResources(placement=Placement(pack=True))}
    asks = Asks(roles)
    asks.request(asks_for("worker", 1, 2))
    asks.take()
    asks.given(granted(1, "n1"))
    assert not asks.take()


def test_roles_that_want_to_be_near_each_other_do_not_wait_for_ever() -> None:
    roles = {
        "a": RoleResources(placement=Placement(near=("b",))),
        "b": RoleResources(placement=Placement(near=("a",))),
    }
    asks = Asks(roles)
    asks.request([*asks_for("a", 1), *asks_for("b", 2)])
    assert counts(asks.take()) == {("a", ANY): 1, ("b", ANY): 1}


@given(st.lists(st.sampled_from(["worker", "ps"]), max_size=8), st.data())
def test_whatever_order_containers_come_in_each_request_gets_one_of_its_role(
    wanted: Sequence[str], data: st.DataObject
) -> None:
    asks = Asks(PLAIN)
    requests = [ContainerRequest(request_id=n, role=role) for n, role in enumerate(wanted)]
    asks.request(requests)
    asks.take()
    keys = data.draw(st.permutations([1 if role == "worker" else 2 for role in wanted]))
    got = {number: one.key for one in granted_all(keys) for number, one in asks.given([one])[0]}
    assert got == {r.request_id: 1 if r.role == "worker" else 2 for r in requests}
    assert asks.outstanding == 0


def granted_all(keys: Sequence[int]) -> list[Given]:
    return [Given(container_id=f"c{n}", key=key, node="n") for n, key in enumerate(keys)]


class Cluster(RuleBasedStateMachine):
    """A ResourceManager that allocates when it likes, and whose answers come late.

    Everything that was asked for is given in the end, nothing is held that nobody wants.
    """

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.asks = Asks({**PLAIN, "lone": RoleResources(placement=Placement(spread=True))})
        self.keys = {"worker": 1, "ps": 2, "lone": 3}
        self.pending: Counter[int] = Counter()
        self.blacklist: set[str] = set()
        self.on_the_way: list[Given] = []
        self.allocated: dict[str, Given] = {}
        self.wanted: dict[int, str] = {}
        self.matched: dict[int, Given] = {}
        self.ids = itertools.count(1)

    @rule(target=requests, role=st.sampled_from(["worker", "ps", "lone"]), n=st.integers(1, 3))
    def request(self, role: str, n: int) -> object:
        numbers = [next(self.ids) for _ in range(n)]
        self.wanted |= dict.fromkeys(numbers, role)
        self.asks.request(asks_for(role, *numbers))
        return multiple(*numbers)

    @rule(number=consumes(requests))
    def cancel(self, number: int) -> None:
        self.asks.cancel([number])
        if number not in self.matched:
            self.wanted.pop(number, None)

    @rule(number=consumes(requests))
    def end(self, number: int) -> None:
        """A container that was granted is given back."""
        if (one := self.matched.pop(number, None)) is not None:
            self.wanted.pop(number)
            self.asks.release(one.container_id)
            self.asks.gone(one.container_id)

    @rule()
    def beat(self) -> None:
        """What is to be said arrives, what was allocated before comes back."""
        changes = self.asks.take()
        for ask in changes.asks:
            assert ask.place == ANY
            self.pending[ask.key] = ask.count
        self.blacklist = (self.blacklist - set(changes.unblacklist)) | set(changes.blacklist)
        for container_id in changes.release:
            self.allocated.pop(container_id, None)
        arrived, self.on_the_way = self.on_the_way, []
        matched, _ = self.asks.given(arrived)
        for number, one in matched:
            assert number not in self.matched
            assert self.keys[self.wanted[number]] == one.key
            self.matched[number] = one

    @rule(key=st.integers(1, 3), node=st.sampled_from("abcdef"), many=st.integers(1, 4))
    def allocate(self, key: int, node: str, many: int) -> None:
        for _ in range(many):
            if self.pending[key] and node not in self.blacklist:
                self.pending[key] -= 1
                one = Given(container_id=f"c{next(self.ids)}", key=key, node=node)
                self.allocated[one.container_id] = one
                self.on_the_way.append(one)

    @rule()
    def restart(self) -> None:
        """The ResourceManager forgets what was asked for; what is on the way still comes."""
        self.pending.clear()
        self.blacklist.clear()
        self.asks.resync()

    @invariant()
    def containers_of_a_spread_role_share_no_node(self) -> None:
        nodes = [one.node for n, one in self.matched.items() if self.wanted[n] == "lone"]
        assert len(nodes) == len(set(nodes))

    def teardown(self) -> None:
        for _ in range(60):
            self.beat()
            for key, node in itertools.product((1, 2, 3), [f"z{n}" for n in range(40)]):
                self.allocate(key, node, 1)
            if not self.asks.outstanding:
                break
        self.beat()
        self.beat()
        assert set(self.matched) == set(self.wanted)
        held = {one.container_id for one in self.matched.values()}
        assert set(self.allocated) == held, "whatever came too many was given back"


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
