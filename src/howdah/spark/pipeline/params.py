"""Parameters of pipeline stages, with a setter and a getter each: ``setBatchSize`` of
``batch_size``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters

from howdah.client.errors import BadInput

Stage = TypeVar("Stage", bound=type)


def param(name: str, doc: str, convert: Callable[[Any], Any] | None = None) -> Any:
    """A parameter for a class; ``Any``, since the instance's own one takes its place."""
    return Param(Params._dummy(), name, doc, convert)


def accessors(stage: Stage) -> Stage:
    """Class decorator: give every parameter of the class that has none its setter and getter."""
    for name in dir(stage):
        found: Any = getattr(stage, name, None)
        if not isinstance(found, Param):
            continue
        suffix = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        if not hasattr(stage, f"set{suffix}"):
            setattr(stage, f"set{suffix}", _setter(name, found.doc))
        if not hasattr(stage, f"get{suffix}"):
            setattr(stage, f"get{suffix}", _getter(name, found.doc))
    return stage


def set_all(stage: Params, values: Mapping[str, Any]) -> None:
    """Set parameters by name.

    Raises:
        BadInput: there is none of that name, or it cannot have that value.
    """
    known = {each.name for each in stage.params}
    for name, value in values.items():
        if name not in known:
            import difflib

            close = difflib.get_close_matches(name, known, n=1)
            raise BadInput(
                f"{type(stage).__name__} has no parameter {name!r}"
                + (
                    f"; did you mean {close[0]!r}?"
                    if close
                    else f"; it has {', '.join(sorted(known))}"
                )
            )
        if value is None:
            continue
        try:
            stage._set(**{name: value})
        except TypeError as error:
            raise BadInput(f"{name}={value!r}: {error}") from error


def as_dict(value: Any) -> dict[str, Any]:
    """Converter: a mapping with string keys.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise TypeError(f"a dictionary with string keys is needed, not {value!r}")


def as_arguments(value: Any) -> dict[str, Any]:
    """Converter: a mapping, or an object with attributes (argparse's Namespace).

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, Mapping):
        return as_dict(value)
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    raise TypeError(f"a dictionary or a namespace is needed, not {value!r}")


def survives_json(value: Any) -> bool:
    """Whether it is the same after a way through JSON."""
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        return False


class ScoringParams(Params):
    """How a model scores rows: of estimators too, which hand them to the models they make."""

    input_mapping: Any = param(
        "input_mapping",
        "Columns that the model takes: column to tensor. Several columns of one tensor are put side "
        "by side. Empty: columns are called as the tensors are",
        as_dict,
    )
    output_mapping: Any = param(
        "output_mapping",
        "What the model answers: tensor to new column. Empty: all, by the model's own names",
        as_dict,
    )
    output_schema: Any = param(
        "output_schema",
        "Types of the new columns, such as 'prediction float'. Empty: as the model answers one row",
        TypeConverters.toString,
    )
    shapes: Any = param(
        "shapes", "Tensor to the shape of one row, such as {'x': [28, 28]}", as_dict
    )
    predict_batch_size: Any = param(
        "predict_batch_size", "Rows scored at once", TypeConverters.toInt
    )
    keep_columns: Any = param(
        "keep_columns", "The columns of the rows stay beside the new ones", TypeConverters.toBoolean
    )

    def _set_scoring_defaults(self) -> None:
        self._setDefault(
            input_mapping={},
            output_mapping={},
            output_schema="",
            shapes={},
            predict_batch_size=1024,
            keep_columns=True,
        )


class TrainingParams(ScoringParams):
    """How a cluster is started and fed."""

    args: Any = param("args", "What the training function is given as args", as_arguments)
    workers: Any = param("workers", "Workers of the cluster", TypeConverters.toInt)
    ps: Any = param("ps", "Parameter servers", TypeConverters.toInt)
    chief: Any = param("chief", "1: the first worker has the role chief", TypeConverters.toInt)
    evaluator: Any = param(
        "evaluator", "One more process has the role evaluator", TypeConverters.toBoolean
    )
    driver_ps: Any = param(
        "driver_ps", "Parameter servers run on the driver's machine", TypeConverters.toBoolean
    )
    slots: Any = param(
        "slots",
        "held: the workers keep Spark's slots; shared: they outlive the tasks that start them. Empty: "
        "held where one slot is left to feed them",
        TypeConverters.toString,
    )
    gpus: Any = param("gpus", "GPUs of each worker", TypeConverters.toInt)
    framework: Any = param(
        "framework",
        "As in a job file: tensorflow, pytorch, … Empty: the one that the function uses",
        TypeConverters.toString,
    )
    label_mapping: Any = param(
        "label_mapping",
        "Columns that are fed beside those of input_mapping, to train only: column to tensor",
        as_dict,
    )
    weight_col: Any = param(
        "weight_col", "Weights of the rows; fed as sample_weight", TypeConverters.toString
    )
    validation_col: Any = param(
        "validation_col",
        "A boolean column: rows with true are not trained on; they go to the feed 'validation'",
        TypeConverters.toString,
    )
    batch_size: Any = param(
        "batch_size", "For the training function: args.batch_size", TypeConverters.toInt
    )
    epochs: Any = param("epochs", "How often the rows are fed", TypeConverters.toInt)
    align: Any = param(
        "align", "Uneven ends of an epoch: drop, pad or none", TypeConverters.toString
    )
    cache: Any = param(
        "cache", "Keep the rows at the workers between epochs", TypeConverters.toBoolean
    )
    shuffle: Any = param(
        "shuffle",
        "Seed for another order in each cached epoch; -1: as they come",
        TypeConverters.toInt,
    )
    export_dir: Any = param(
        "export_dir",
        "Where the training function saves the model (args.export_dir): a path that driver and "
        "executors see, or a URL",
        TypeConverters.toString,
    )
    model_dir: Any = param(
        "model_dir", "For the training function: args.model_dir", TypeConverters.toString
    )
    checkpoint: Any = param(
        "checkpoint",
        "True, or the job's checkpoint table ({'store': …}): what the function writes into "
        "ctx.checkpoint_dir comes back after a failure",
    )
    resume: Any = param(
        "resume",
        "Id of an earlier fit's job (summary.job_id), whose last checkpoint this one begins with",
        TypeConverters.toString,
    )
    tensorboard: Any = param(
        "tensorboard", "Run TensorBoard beside the cluster", TypeConverters.toBoolean
    )
    restarts: Any = param("restarts", "Failures that the cluster survives", TypeConverters.toInt)
    start_timeout_s: Any = param(
        "start_timeout_s", "Longest wait for the cluster's slots", TypeConverters.toFloat
    )
    feed_timeout_s: Any = param(
        "feed_timeout_s", "Longest time without progress", TypeConverters.toFloat
    )
    env: Any = param("env", "Environment variables of all processes", as_dict)

    def _set_training_defaults(self) -> None:
        self._set_scoring_defaults()
        self._setDefault(
            args={},
            workers=1,
            ps=0,
            chief=0,
            evaluator=False,
            driver_ps=False,
            slots="",
            gpus=0,
            framework="",
            label_mapping={},
            weight_col="",
            validation_col="",
            batch_size=32,
            epochs=1,
            align="drop",
            cache=False,
            shuffle=-1,
            export_dir="",
            model_dir="",
            checkpoint=False,
            resume="",
            tensorboard=False,
            restarts=2,
            start_timeout_s=600.0,
            feed_timeout_s=600.0,
            env={},
        )


def _setter(name: str, doc: str) -> Callable[[Any, Any], Any]:
    def setter(self: Any, value: Any) -> Any:
        set_all(self, {name: value})
        return self

    setter.__doc__ = f"{doc}."
    return setter


def _getter(name: str, doc: str) -> Callable[[Any], Any]:
    def getter(self: Any) -> Any:
        return self.getOrDefault(name)

    getter.__doc__ = f"{doc}."
    return getter
