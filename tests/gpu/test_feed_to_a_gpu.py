"""Batches of a feed on the device that the program trains on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.feed.conftest import feed_secrets, rig  # noqa: F401 - fixtures
from tests.spark.feed.rig import Rig

pytestmark = pytest.mark.timeout(180)  # imports take their time


@pytest.fixture
def fed(rig: Rig) -> Rig:  # noqa: F811
    rig.trainer()
    rig.open(align="none")
    numbers = np.arange(8)
    images = pa.FixedSizeListArray.from_arrays(np.repeat(numbers, 4).astype(np.float32), 4)
    rows = pa.record_batch({"image": images, "label": pa.array(numbers)})
    rig.feeder().send([rows], rows.schema).hear()
    rig.fed()
    return rig


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_torch_loader_pins_its_batches_and_copies_them_to_the_device(
    fed: Rig, prefetch: int
) -> None:
    import torch

    feed = fed.trainers[0].feed("train")
    loader = feed.torch_loader(4, "image", "label", pin=True, device="cuda", prefetch=prefetch)
    batches = list(loader)
    assert {tensor.device.type for batch in batches for tensor in batch} == {"cuda"}
    assert [label.tolist() for _, label in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert float(torch.cat([image for image, _ in batches]).sum()) == 4 * 28


def test_a_torch_loader_may_only_pin(fed: Rig) -> None:
    feed = fed.trainers[0].feed("train")
    assert all(label.is_pinned() for label in feed.torch_loader(4, "label", pin=True))


def test_jax_gets_arrays_on_its_device(fed: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other tests look at what is used
    feed = fed.trainers[0].feed("train")
    batches = list(feed.jax_batches(4))
    assert [batch["label"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert {batch["image"].devices().pop().platform for batch in batches} == {"gpu"}
