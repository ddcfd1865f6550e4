"""Feeds as each framework takes them.

`loaders` is where to start: what a feed offers frameworks. `torch_feeds`, `tensorflow_feeds` and `jax_feeds`
import theirs when they are called; `batching` is pure.
"""
