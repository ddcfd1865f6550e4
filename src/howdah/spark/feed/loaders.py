"""What frameworks take of a feed, or of anything else that gives batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from howdah.spark.feed.columns import Shapes


class Loaders:
    """Datasets and loaders of something that gives batches, one pass over its rows after the other."""

    @property
    def name(self) -> str:
        """What errors call it."""
        raise NotImplementedError

    def sample(self, columns: Sequence[str] | None, shapes: Shapes | None) -> dict[str, Any]:
        """Some rows, whose types are those of all; empty if there are none."""
        raise NotImplementedError

    def passes(
        self,
        size: int,
        columns: Sequence[str] | None,
        shapes: Shapes | None,
        drop_last: bool,
        per_epoch: bool,
    ) -> Iterator[dict[str, Any]]:
        """One pass: the next epoch, or everything."""
        raise NotImplementedError

    def tf_dataset(
        self,
        size: int,
        columns: Sequence[str] | str | None = None,
        label: str | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
        per_epoch: bool = True,
    ) -> Any:
        """A `tf.data.Dataset`. With ``per_epoch`` each pass over it is one epoch (Keras's ``fit``),
        else one pass is everything. ``columns`` as a string: that tensor alone, else a dict;
        with ``label`` pairs of (features, label)."""
        from howdah.spark.feed.tensorflow_feeds import dataset

        return dataset(
            self.name, self.sample, self.passes, size, columns, label, shapes, drop_last, per_epoch
        )

    def torch_loader(
        self,
        size: int,
        columns: Sequence[str] | str | None = None,
        label: str | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
        per_epoch: bool = True,
    ) -> Any:
        """A `torch.utils.data.DataLoader`; arguments as those of `tf_dataset`."""
        from howdah.spark.feed.torch_feeds import loader

        return loader(self.passes, size, columns, label, shapes, drop_last, per_epoch)
