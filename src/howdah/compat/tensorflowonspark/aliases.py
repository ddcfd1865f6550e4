"""`install()`: ``import tensorflowonspark`` and its modules find ours.

An import hook, not copies: `tensorflowonspark.TFNode` is the very module
`howdah.compat.tensorflowonspark.TFNode`, and only what is imported is loaded. What is pickled names
the real module, so it can be unpickled where nothing was installed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

from howdah.compat.tensorflowonspark.compat import LEGACY_KERAS, legacy_keras

ALIAS = "tensorflowonspark"
HOME = "howdah.compat.tensorflowonspark"
_keras_set: bool = False
"""`install` has chosen this process's Keras."""


class _Aliases(importlib.abc.MetaPathFinder):
    """Finds ``tensorflowonspark`` and ``tensorflowonspark.<module>``, before any other finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if head != ALIAS:
            return None
        home = f"{HOME}.{rest}" if rest else HOME
        if importlib.util.find_spec(home) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(home), is_package=not rest)


class _Loader(importlib.abc.Loader):
    """Gives the real module under its second name."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._own: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._home)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It was run when it was imported; the import system has just given it the alias's spec.
        module.__spec__ = self._own


def install() -> None:
    """Let ``import tensorflowonspark`` and ``from tensorflowonspark import TFCluster`` find ours, and
    let TensorFlow take the same Keras in this process as in the training processes: tf_keras, where
    that is installed and ``TF_USE_LEGACY_KERAS`` does not say otherwise. A model class of the one
    Keras meets no optimizer of the other then.

    It goes before a TensorFlowOnSpark that is installed. May be called again; `uninstall` undoes it.
    The training processes of `TFCluster.run` and `TFParallel.run` do it by themselves.

    Raises:
        ImportError: the other TensorFlowOnSpark has been imported already.
    """
    find_by_alias()
    global _keras_set
    if LEGACY_KERAS in os.environ or not (variable := legacy_keras()):
        return
    if "tensorflow" in sys.modules:
        warnings.warn(
            "TensorFlow has been imported already and uses Keras 3 in this process; training processes "
            f"use tf_keras: models made here do not fit there. Call {HOME}.install() first, or set "
            f"{LEGACY_KERAS} (1: tf_keras, 0: Keras 3) before TensorFlow is imported",
            stacklevel=2,
        )
        return
    os.environ.update(variable)
    _keras_set = True


def find_by_alias() -> None:
    """Let imports of ``tensorflowonspark`` find ours.

    Raises:
        ImportError: the other TensorFlowOnSpark has been imported already.
    """
    present = sys.modules.get(ALIAS)
    if present is not None and present is not sys.modules.get(HOME):
        raise ImportError(
            f"{ALIAS} has been imported already, from {getattr(present, '__file__', 'elsewhere')}; "
            f"call {HOME}.install() before anything imports it"
        )
    if not any(isinstance(finder, _Aliases) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Aliases())


def uninstall() -> None:
    """Undo `install`: the names are those of an installed TensorFlowOnSpark again, or unknown."""
    global _keras_set
    if _keras_set:
        os.environ.pop(LEGACY_KERAS, None)
        _keras_set = False
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Aliases)]
    for name, module in list(sys.modules.items()):
        if name == ALIAS or name.startswith(f"{ALIAS}."):
            if module.__name__.startswith(HOME):
                del sys.modules[name]
