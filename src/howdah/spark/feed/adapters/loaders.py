"""What frameworks take of a feed, or of files that are read like one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from howdah.spark.feed.adapters.batching import PassSource
from howdah.spark.feed.arrow.columns import Shapes


class Loaders(PassSource):
    """Datasets and loaders of a feed, one pass over its rows after the other."""

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
        with ``label`` pairs of (features, label). Its ``cardinality()`` is known where the length of a
        `torch_loader` is."""
        from howdah.spark.feed.adapters.tensorflow_feeds import dataset

        return dataset(self, size, columns, label, shapes, drop_last, per_epoch)

    def torch_loader(
        self,
        size: int,
        columns: Sequence[str] | str | None = None,
        label: str | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
        per_epoch: bool = True,
        *,
        shuffle_buffer: int = 0,
        seed: int = 0,
        collate: Callable[[Any], Any] | None = None,
        pin: bool = False,
        prefetch: int = 0,
        device: Any = None,
    ) -> Any:
        """A `torch.utils.data.DataLoader`; the first arguments as those of `tf_dataset`.

        ``len()`` of it is the number of batches of an epoch, where that is certain. Else it raises
        `TypeError`, as that of any loader whose dataset has no length.

        With ``shuffle_buffer`` or ``prefetch`` batches are drawn before they are trained, together
        ``ceil(shuffle_buffer / size) + prefetch``: that is ``batches`` of `Feed.position`.

        Args:
            shuffle_buffer: rows that are mixed with one another; the number of batches stays.
            seed: of that order, which each pass has another of.
            collate: called with each batch (a tensor, a dict or a pair); what it returns is given.
            pin: in page-locked memory, from which a GPU copies faster.
            prefetch: batches that are made, and on their way to the device, before they are asked for.
            device: where tensors are moved, such as ``"cuda"``; None: they stay in memory.

        Raises:
            ValueError: a number is below 0, or memory is to be pinned for a device that is no GPU.
        """
        from howdah.spark.feed.adapters.torch_feeds import loader

        asked = (self, size, columns, label, shapes, drop_last, per_epoch)
        return loader(
            *asked,
            shuffle_buffer=shuffle_buffer,
            seed=seed,
            collate=collate,
            pin=pin,
            prefetch=prefetch,
            device=device,
        )

    def jax_batches(
        self,
        size: int,
        columns: Sequence[str] | str | None = None,
        label: str | None = None,
        shapes: Shapes | None = None,
        drop_last: bool = False,
        per_epoch: bool = True,
        *,
        sharding: Any = None,
        shuffle_buffer: int = 0,
        seed: int = 0,
        prefetch: int = 0,
    ) -> Any:
        """Batches of `jax.Array`, pass after pass; strings and other objects stay numpy arrays. Arguments
        as those of `torch_loader`, and:

        Args:
            sharding: a `jax.sharding.Sharding` of the batch. Where it spans processes, each gives
                ``size`` rows of its own: the arrays have those of all (with ``align`` "drop" and
                ``drop_last``, so that all processes have as many). None: the default device.

        Raises:
            ValueError: a number is below 0.
            FeedError: while iterating: rows that the sharding cannot divide, or integers beyond 32 bits
                where JAX has no others.
        """
        from howdah.spark.feed.adapters.jax_feeds import JaxBatches

        asked = (self, size, columns, label, shapes, drop_last, per_epoch)
        return JaxBatches(
            *asked,
            sharding=sharding,
            shuffle_buffer=shuffle_buffer,
            seed=seed,
            prefetch=prefetch,
        )
