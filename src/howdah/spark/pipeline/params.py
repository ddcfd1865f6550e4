"""Parameters of pipeline stages, with a setter and a getter each: ``setBatchSize`` of
``batch_size``."""

from __future__ import annotations

import copy
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters

from howdah.client.errors import BadInput

Stage = TypeVar("Stage", bound=type)
FEATURES, LABEL, WEIGHT = "features", "label", "sample_weight"
"""Tensors of ``features_col``, ``label_col`` and ``weight_col``."""


to_int, to_float = TypeConverters.toInt, TypeConverters.toFloat
to_bool, to_text = TypeConverters.toBoolean, TypeConverters.toString


class _Parameter(Param[Any]):
    """Takes the name of the class attribute that it is."""

    default: Any

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def param(doc: str, convert: Callable[[Any], Any] | None, default: Any) -> Any:
    """A parameter for a class; ``Any``, since the instance's own one takes its place."""
    made = _Parameter(Params._dummy(), "", doc, convert)
    made.default = default
    return made


def set_defaults(stage: Params) -> None:
    """Give the parameters of a new stage their default values."""
    stage._setDefault(
        **{
            each.name: copy.copy(each.default)
            for each in stage.params
            if isinstance(each, _Parameter)
        }
    )


def accessors(stage: Stage) -> Stage:
    """Class decorator: give every parameter of the class that has none its setter and getter, and the
    name that Spark would give it, ``featuresCol``."""
    for name in dir(stage):
        found: Any = getattr(stage, name, None)
        if not isinstance(found, Param):
            continue
        suffix = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        if not hasattr(stage, f"set{suffix}"):
            setattr(stage, f"set{suffix}", _setter(name, found.doc))
        if not hasattr(stage, f"get{suffix}"):
            setattr(stage, f"get{suffix}", _getter(name, found.doc))
        if not hasattr(stage, camel := suffix[:1].lower() + suffix[1:]):
            # A property: pyspark takes whatever else is a parameter for a further one.
            setattr(stage, camel, property(operator.attrgetter(name), doc=f"{found.doc}."))
    return stage


def set_all(stage: Params, values: Mapping[str, Any]) -> None:
    """Set parameters by name, ``features_col`` or as Spark spells its own, ``featuresCol``.

    Raises:
        BadInput: there is none of that name, or it cannot have that value.
    """
    known = {each.name for each in stage.params}
    for given, value in values.items():
        name = given if given in known else re.sub(r"(?<=[a-z])([A-Z])", r"_\1", given).lower()
        if name not in known:
            import difflib

            close = difflib.get_close_matches(name, known, n=1)
            raise BadInput(
                f"{type(stage).__name__} has no parameter {given!r}"
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
            raise BadInput(f"{given}={value!r}: {error}") from error


# -- converters: a `TypeError` says what is needed, and `set_all` of which parameter ---------------


def as_dict(value: Any) -> dict[str, Any]:
    """A mapping with string keys."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise TypeError(f"a dictionary with string keys is needed, not {value!r}")


def as_arguments(value: Any) -> dict[str, Any]:
    """A mapping, or an object with attributes (argparse's Namespace)."""
    if isinstance(value, Mapping):
        return as_dict(value)
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    raise TypeError(f"a dictionary or a namespace is needed, not {value!r}")


def as_columns(value: Any) -> str | list[str]:
    """The name of a column, or a list of names."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return list(value)
    raise TypeError(f"the name of a column or a list of names is needed, not {value!r}")


def at_least(least: int) -> Callable[[Any], int]:
    """A whole number from there on."""

    def convert(value: Any) -> int:
        number = to_int(value)
        if number < least:
            raise TypeError(f"a whole number from {least} on is needed")
        return number

    return convert


def one_of(*words: str) -> Callable[[Any], str]:
    """One of these words."""

    def convert(value: Any) -> str:
        if value not in words:
            raise TypeError(f"{' or '.join(repr(word) for word in words if word)} is needed")
        return value

    return convert


def as_fraction(value: Any) -> float:
    """A number from 0 up to, and without, 1."""
    fraction = to_float(value)
    if not 0 <= fraction < 1:
        raise TypeError("a number from 0 up to, and without, 1 is needed")
    return fraction


# -- stages ----------------------------------------------------------------------------------------


def survives_json(value: Any) -> bool:
    """Whether it is the same after a way through JSON."""
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        return False


def one_way(stage: Params, first: str, second: str) -> None:
    """Refuse two parameters that say the same thing.

    Raises:
        BadInput: both are given.
    """
    if stage.getOrDefault(first) and stage.getOrDefault(second):
        raise BadInput(f"{first} and {second} are both given; give one of them")


class ScoringParams(Params):
    """How a model scores rows: of estimators too, which hand them to the models they make."""

    features_col: Any = param(
        "The column that the model takes, such as a VectorAssembler's, or a list of columns: fed as the tensor 'features'. Instead of input_mapping",
        as_columns,
        "",
    )
    prediction_col: Any = param(
        "The new column, of a model with one answer. Instead of output_mapping", to_text, ""
    )
    input_mapping: Any = param(
        "Columns that the model takes: column to tensor. Several columns of one tensor are put side by side. Empty: columns are called as the tensors are",
        as_dict,
        {},
    )
    output_mapping: Any = param(
        "What the model answers: tensor to new column. Empty: all, by the model's own names",
        as_dict,
        {},
    )
    output_schema: Any = param(
        "Types of the new columns, such as 'prediction float'. Empty: as the model answers some rows",
        to_text,
        "",
    )
    shapes: Any = param("Tensor to the shape of one row, such as {'x': [28, 28]}", as_dict, {})
    predict_batch_size: Any = param("Rows scored at once", at_least(1), 1024)
    keep_columns: Any = param("The columns of the rows stay beside the new ones", to_bool, True)

    def inputs(self, only: str = "") -> dict[str, str]:
        """Column to tensor; ``only`` is the tensor of ``features_col``: empty, the only one of a model.

        Raises:
            BadInput: they are given in both ways.
        """
        columns = self.getOrDefault("features_col")
        one_way(self, "features_col", "input_mapping")
        listed = [columns] if isinstance(columns, str) else columns
        return dict.fromkeys(filter(None, listed), only) or self.getOrDefault("input_mapping")

    def outputs(self) -> dict[str, str]:
        """Tensor to new column; an empty tensor is a model's only one.

        Raises:
            BadInput: they are given in both ways.
        """
        one_way(self, "prediction_col", "output_mapping")
        column = self.getOrDefault("prediction_col")
        return {"": column} if column else self.getOrDefault("output_mapping")


class TrainingParams(ScoringParams):
    """How a cluster is started and fed."""

    args: Any = param("What the training function is given as args", as_arguments, {})
    workers: Any = param("Workers of the cluster", at_least(0), 1)
    ps: Any = param("Parameter servers", at_least(0), 0)
    chief: Any = param("1: the first worker has the role chief", at_least(0), 0)
    evaluator: Any = param("One more process has the role evaluator", to_bool, False)
    driver_ps: Any = param("Parameter servers run on the driver's machine", to_bool, False)
    slots: Any = param(
        "held: the workers keep Spark's slots; shared: they outlive the tasks that start them. Empty: held where one slot is left to feed them",
        one_of("", "held", "shared"),
        "",
    )
    gpus: Any = param("GPUs of each worker", at_least(0), 0)
    framework: Any = param(
        "As in a job file: tensorflow, pytorch, … Empty: the one that the function uses",
        to_text,
        "",
    )
    label_mapping: Any = param(
        "Columns that are fed beside those of input_mapping, to train only: column to tensor",
        as_dict,
        {},
    )
    label_col: Any = param(
        "The column with the labels: fed as the tensor 'label'. Instead of label_mapping",
        to_text,
        "",
    )
    weight_col: Any = param("Weights of the rows; fed as sample_weight", to_text, "")
    validation_col: Any = param(
        "A boolean column: rows with true are not trained on; they go to the feed 'validation'",
        to_text,
        "",
    )
    validation_fraction: Any = param(
        "So much of the rows, such as 0.1, is not trained on; they go to the feed 'validation'. Which, their values and the seed decide: the same in each run, and equal rows stay together",
        as_fraction,
        0.0,
    )
    seed: Any = param("Of validation_fraction, and for the training function", to_int, 0)
    batch_size: Any = param("For the training function: args.batch_size", at_least(1), 32)
    epochs: Any = param("How often the rows are fed", at_least(1), 1)
    align: Any = param("Uneven ends of an epoch: drop or none", one_of("drop", "none"), "drop")
    cache: Any = param("Keep the rows at the workers between epochs", to_bool, False)
    shuffle: Any = param(
        "Seed for another order in each cached epoch, with cache; -1: as they come", to_int, -1
    )
    export_dir: Any = param(
        "Where the training function saves the model (args.export_dir): a path that driver and executors see, or a URL",
        to_text,
        "",
    )
    model_dir: Any = param("For the training function: args.model_dir", to_text, "")
    checkpoint: Any = param(
        "True, or the job's checkpoint table ({'store': …}): what the function writes into ctx.checkpoint_dir comes back after a failure",
        None,
        False,
    )
    resume: Any = param(
        "Id of an earlier fit's job (summary.job_id), whose last checkpoint this one begins with",
        to_text,
        "",
    )
    tensorboard: Any = param("Run TensorBoard beside the cluster", to_bool, False)
    restarts: Any = param("Failures that the cluster survives", at_least(0), 2)
    start_timeout_s: Any = param("Longest wait for the cluster's slots", to_float, 600.0)
    feed_timeout_s: Any = param("Longest time without progress", to_float, 600.0)
    env: Any = param("Environment variables of all processes", as_dict, {})


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
