"""A training function as a stage of a pipeline: `fit` trains it on a cluster in Spark's executors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark.ml import Estimator as MLEstimator
from pyspark.ml.util import MLReadable, MLWritable

from howdah.client.errors import BadInput
from howdah.spark.errors import FeedError, ScoringError
from howdah.spark.frames import quoted
from howdah.spark.pipeline.model import Model, Summary
from howdah.spark.pipeline.params import (
    FEATURES,
    LABEL,
    WEIGHT,
    TrainingParams,
    accessors,
    one_way,
    set_all,
    set_defaults,
)
from howdah.spark.pipeline.persistence import StageReader, StageWriter
from howdah.spark.scoring.predictors import predictor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from howdah.spark.cluster import Cluster

_PARTS = 1 << 20
_OF_CLUSTER = (
    *("workers", "ps", "chief", "evaluator", "driver_ps", "gpus"),
    *("tensorboard", "restarts", "start_timeout_s"),
)
_OF_CLUSTER_IF_GIVEN = ("slots", "framework", "checkpoint", "resume", "env")
"""Parameters that are those of `Cluster.start`."""


@accessors
class Estimator(MLEstimator, TrainingParams, MLReadable, MLWritable):
    """Trains ``train(args, ctx)`` on rows, and makes a `Model` of what it returns or saves.

    ``args`` has the caller's own arguments as attributes, every parameter of this stage by its
    name (`batch_size`, `epochs`, `export_dir`, …) and ``callbacks``. Rows come by
    ``ctx.feed("train")`` and, with ``validation_col``, ``ctx.feed("validation")``, under the names
    of tensors in ``input_mapping`` and ``label_mapping``; weights as ``sample_weight``.

    The model is what ``to_model(value)`` makes of the value that rank 0 returned. Without
    ``to_model`` that value must itself be a predictor, a function ``predict(batch)`` or the path of
    a saved model; or None where ``export_dir`` is set and the model was saved there.
    """

    def __init__(
        self,
        train: Callable[[Any, Any], Any],
        args: Mapping[str, Any] | Any = None,
        *,
        to_model: Callable[[Any], Any] | None = None,
        callbacks: Sequence[Any] = (),
        **params: Any,
    ) -> None:
        """Parameters by name, as ``setX`` takes them.

        Raises:
            BadInput: there is no such parameter, or it cannot have that value.
        """
        super().__init__()
        set_defaults(self)
        self._train = train
        self._to_model = to_model
        self._callbacks = list(callbacks)
        set_all(self, {"args": args, **params})
        if not self.getOrDefault("workers") + self.getOrDefault("chief"):
            raise BadInput("workers=0: a cluster needs at least one worker or a chief")

    def _fit(self, dataset: DataFrame) -> Model:
        summary = self._trained(dataset)
        model = self._copyValues(Model(self._predictor(summary.values.get(0))))
        model.summary = summary
        return model

    def _trained(self, dataset: DataFrame) -> Summary:
        from howdah.spark.cluster import Cluster, check_shuffle

        value = self.getOrDefault
        shuffle = None if value("shuffle") < 0 else value("shuffle")
        check_shuffle(shuffle, cache=value("cache"))
        rows, validation = self._rows(dataset)
        cluster_options: dict[str, Any] = {
            **{name: value(name) for name in _OF_CLUSTER},
            **{name: value(name) or None for name in _OF_CLUSTER_IF_GIVEN},
        }
        with Cluster.start(
            dataset.sparkSession,
            self._train,
            self._arguments(),
            **cluster_options,
        ) as cluster:
            feeding: dict[str, Any] = {
                "epochs": value("epochs"),
                "align": value("align"),
                "cache": value("cache"),
                "timeout_s": value("feed_timeout_s") or None,
            }
            beside = (
                ValidationFeed(cluster, validation, feeding) if validation is not None else None
            )
            report = cluster.train(rows, shuffle=shuffle, **feeding)
            if beside is not None:
                beside.finish()
            return Summary(job_id=cluster.job_id, report=report, values=cluster.results())

    def _arguments(self) -> SimpleNamespace:
        own = {param.name: self.getOrDefault(param) for param in self.params}
        del own["args"]
        return SimpleNamespace(**{**own, **self.getOrDefault("args"), "callbacks": self._callbacks})

    def _rows(self, dataset: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """What is trained on, and what is held back, under the tensors' names."""
        from pyspark.sql import functions as F

        weight, held_back = self.getOrDefault("weight_col"), self.getOrDefault("validation_col")
        fraction, label = self.getOrDefault("validation_fraction"), self.getOrDefault("label_col")
        one_way(self, "label_col", "label_mapping")
        one_way(self, "validation_col", "validation_fraction")
        mapping = {**self.inputs(FEATURES), **self.getOrDefault("label_mapping")}
        if label:
            mapping[label] = LABEL
        _demand(dataset.columns, [*mapping, *filter(None, (weight, held_back))])
        if not mapping:
            mapping = {name: name for name in dataset.columns if name not in (weight, held_back)}
        if weight:
            mapping[weight] = WEIGHT
        columns = fed_columns(mapping)
        if held_back:
            # A null is no true: such rows are trained on.
            flag = F.coalesce(_column(held_back).cast("boolean"), F.lit(False))
        elif fraction:
            # Not by chance: each task that makes these rows, and each retry, must come to the same.
            value = F.xxhash64(F.lit(self.getOrDefault("seed")), *map(_column, mapping))
            flag = F.pmod(value, F.lit(_PARTS)) < F.lit(int(fraction * _PARTS))
        else:
            return dataset.select(*columns), None
        return dataset.where(~flag).select(*columns), dataset.where(flag).select(*columns)

    def _predictor(self, value: Any) -> Any:
        try:
            found = self._to_model(value) if self._to_model is not None else value
            if found is None and self.getOrDefault("export_dir"):
                found = self.getOrDefault("export_dir")
            return predictor(found)
        except ScoringError as error:
            raise BadInput(
                f"the training function returned {_short(value)} in rank 0, and no model can be made "
                "of it: return a function predict(batch) or the path of a saved model, set "
                "export_dir and save it there, or give to_model=…"
            ) from error

    def write(self) -> StageWriter:
        """A writer for `save`."""
        payload = {"train": self._train, "to_model": self._to_model, "callbacks": self._callbacks}
        return StageWriter(self, payload)

    @classmethod
    def read(cls) -> StageReader:
        """A reader for `load`, which unpickles: load only what you trust."""
        return StageReader(cls)

    @classmethod
    def _from_payload(cls, payload: dict[str, Any], files: str) -> Estimator:
        return cls(payload["train"], to_model=payload["to_model"], callbacks=payload["callbacks"])


def fed_columns(mapping: Mapping[str, str]) -> list[Any]:
    """Columns by the names of tensors; those of one tensor as one array."""
    from pyspark.sql import functions as F

    by_tensor: dict[str, list[Any]] = {}
    for name, tensor in mapping.items():
        by_tensor.setdefault(tensor, []).append(_column(name))
    return [
        (columns[0] if len(columns) == 1 else F.array(*columns)).alias(tensor)
        for tensor, columns in by_tensor.items()
    ]


def _column(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col(quoted(name))


def _demand(there: list[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in there]:
        raise BadInput(
            f"the rows have no column {', '.join(map(repr, missing))}; they have "
            f"{', '.join(map(repr, there))}: correct input_mapping or features_col, label_mapping or "
            "label_col, weight_col or validation_col"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


class ValidationFeed:
    """The feed ``validation`` of a fit, one epoch for each of training, from a thread of its own.

    Programs read it after each epoch, once at the end, in part or not at all: so it ends when they
    have used all of it, or have returned.
    """

    def __init__(self, cluster: Cluster, rows: Any, feeding: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._rows = rows
        self._feeding = feeding
        self._thread = cluster._live.session.thread(self._run)
        self._thread.start()

    def finish(self) -> None:
        """After training: wait until the programs are done with it."""
        self._cluster.end_feed("train")  # those that validate once come to it now
        self._thread.join()

    def _run(self) -> None:
        # What matters of an error the programs get too, and `Cluster.results` tells; the rest is
        # that they returned without reading everything.
        with contextlib.suppress(FeedError):
            self._cluster.train(self._rows, feed="validation", **self._feeding)
