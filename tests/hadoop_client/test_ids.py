"""Ids, nodes and resources as texts, messages and values."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, NodeId, Resource
from howdah.hadoop.protos import yarn

APPLICATION = ApplicationId(1795275671293, 7)
ATTEMPT = AttemptId(APPLICATION, 2)

applications = st.builds(ApplicationId, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
attempts = st.builds(AttemptId, applications, st.integers(0, 2**31 - 1))
containers = st.builds(ContainerId, attempts, st.integers(0, 2**40 - 1), st.integers(0, 2**23 - 1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (APPLICATION, "application_1795275671293_0007"),
        (ApplicationId(1, 123456), "application_1_123456"),
        (ATTEMPT, "appattempt_1795275671293_0007_000002"),
        (ContainerId(ATTEMPT, 3), "container_1795275671293_0007_02_000003"),
        (ContainerId(ATTEMPT, 3, epoch=17), "container_e17_1795275671293_0007_02_000003"),
        (ContainerId(ATTEMPT, 1234567, epoch=1), "container_e01_1795275671293_0007_02_1234567"),
        (NodeId("host.example", 45454), "host.example:45454"),
    ],
)
def test_ids_are_written_as_hadoop_writes_them(value: ApplicationId, text: str) -> None:
    assert str(value) == text
    assert type(value).parse(text) == value


@given(st.one_of(applications, attempts, containers))
def test_ids_survive_text_and_message(value: ApplicationId | AttemptId | ContainerId) -> None:
    assert type(value).parse(str(value)) == value
    assert type(value).from_proto(value.to_proto()) == value  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", [ApplicationId, AttemptId, ContainerId, NodeId])
@given(text=st.text(max_size=40))
def test_other_texts_are_refused(kind: type[ApplicationId], text: str) -> None:
    try:
        kind.parse(text)
    except ValueError:
        pass


def test_a_containers_epoch_is_in_the_upper_bits() -> None:
    proto = ContainerId(ATTEMPT, 5, epoch=3).to_proto()
    assert proto.id == 3 << 40 | 5


def test_resources_survive_a_message_and_lose_zeros() -> None:
    resource = Resource(1024, 2, {"yarn.io/gpu": 1})
    assert Resource.from_proto(resource.to_proto()) == resource
    assert Resource.from_proto(Resource(1, 1, {"x": 0}).to_proto()) == Resource(1, 1)
    assert pickle.loads(pickle.dumps(resource)) == resource
    assert hash(resource) == hash(Resource(1024, 2, {"yarn.io/gpu": 1}))
    assert str(resource) == "1024 MiB, 2 cores, 1 yarn.io/gpu"


def test_units_of_other_resource_types_are_counted() -> None:
    proto = yarn.ResourceProto(memory=1, virtual_cores=1)
    proto.resource_value_map.add(key="disk", value=2, units="Gi")
    assert Resource.from_proto(proto).get("disk") == 2 << 30


def test_what_fits_has_no_more_of_anything() -> None:
    whole = Resource(1024, 4, {"gpu": 1})
    assert Resource(1024, 4, {"gpu": 1}).fits(whole)
    assert Resource(1, 1).fits(whole)
    assert not Resource(1025, 1).fits(whole)
    assert not Resource(1, 1, {"gpu": 2}).fits(whole)
    assert not Resource(1, 1, {"other": 1}).fits(whole)
