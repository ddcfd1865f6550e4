"""TensorFlowOnSpark's names, signatures and meanings, over `howdah.spark`.

A program of TensorFlowOnSpark changes its imports and nothing else:

    from howdah.compat.tensorflowonspark import TFCluster, TFNode

or calls `install()` first, after which ``import tensorflowonspark`` finds these modules, in the
driver and in the training processes. docs/guides/from-tensorflowonspark.md lists every difference.

Importing this sets up no logging and no signal handlers; nothing here calls ``sys.exit``.
"""

from __future__ import annotations

from howdah.compat.tensorflowonspark.aliases import install as install
from howdah.compat.tensorflowonspark.aliases import uninstall as uninstall

__version__ = "2.2.5"
"""The version of TensorFlowOnSpark whose names these are."""
