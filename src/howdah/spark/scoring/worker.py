"""What scores rows in Spark's Python workers: record batches in, record batches with answers out.

A loaded model stays in the worker for its next task. Rows keep their order; columns pass through
as they came, without a copy.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from howdah.spark.errors import ScoringError
from howdah.spark.feed.arrow.answers import untyped
from howdah.spark.feed.arrow.columns import array, ordered
from howdah.spark.scoring import columns
from howdah.spark.scoring.columns import Batch, Tensor, as_type, plain, side_by_side
from howdah.spark.scoring.files import ModelFiles, at_hand, present
from howdah.spark.scoring.predictors import Loaded, Predictor, named

log: logging.Logger = logging.getLogger(__name__)

KEPT_MODELS = 2
"""In one worker; more of them evict the one that was used longest ago."""

_models: OrderedDict[str, tuple[str, Loaded]] = OrderedDict()
"""With the state of their files."""


class ScoringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All a worker needs to know; pickled into Spark's task."""

    predictor: bytes
    """By cloudpickle."""
    path: tuple[str, ...] = ()
    """The driver's ``sys.path``: where the modules of pickled functions may be."""
    files: ModelFiles = ModelFiles()
    inputs: tuple[tuple[str, str], ...] = ()
    """Column and tensor; several columns of one tensor become its columns, in this order. Empty:
    the columns named as the model's inputs, or all where it names none."""
    outputs: tuple[tuple[str, str], ...] = ()
    """Tensor and column. Empty: all, by their own names. An empty tensor is the only one there is, or the one that is called as
    its column."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Tensor and the shape of one row, over what the model says."""
    batch_size: int = 1024
    pad: bool = False
    """Fill short batches by repeating their last row: for models of a fixed batch size."""
    keep: tuple[str, ...] = ()
    """Columns that pass through."""
    schema: Any = None
    """Arrow schema of the answers; None: as they come."""


def score_batches(plan: ScoringPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for ``mapInArrow``."""
    model: Loaded | None = None
    for batch in rechunk(batches, plan.batch_size):
        model = model or loaded(plan)
        answers = answer(plan, model, batch)
        kept = [batch.column(name) for name in plan.keep]
        yield pa.RecordBatch.from_arrays(
            [*kept, *answers.columns], names=[*plan.keep, *answers.schema.names]
        )


def describe_batches(
    plan: ScoringPlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Scores the first batch and yields the Arrow schema of the answers, in one row; nothing without rows.

    Raises:
        ScoringError: the answers are nulls or empty lists, which tell no type.
    """
    first = next((batch for batch in rechunk(batches, plan.batch_size) if batch.num_rows), None)
    if first is not None:
        schema = answer(plan, loaded(plan), first).schema
        if unknown := untyped(schema):
            raise ScoringError(
                f"the model's {unknown!r} has only nulls or empty lists for the first rows, which tell no "
                'type: give schema="…", such as "prediction array<double>"'
            )
        yield _schema_row(schema)


def declare_batches(
    plan: ScoringPlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For each batch the Arrow schema of what the model declares to answer, if it does."""
    for _ in batches:
        outputs = loaded(plan).outputs
        schema = _declared(plan, outputs) if outputs else None
        if schema is not None:
            yield _schema_row(schema)


def rechunk(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of ``size``. Shorter are the last one, and parts of one whose texts or
    binaries exceed the 2 GiB that an Arrow array holds."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while batch.num_rows - start + rows >= size:
            piece = batch.slice(start, size - rows)
            start += piece.num_rows
            yield from _joined([*held, piece])
            held, rows = [], 0
        if start < batch.num_rows:
            held.append(batch.slice(start))
            rows += batch.num_rows - start
    if held:
        yield from _joined(held)


def loaded(plan: ScoringPlan) -> Loaded:
    """The model as its files are now: from memory if an earlier task of this worker has loaded these.

    What cannot be loaded may just be written: the model of before is taken then, if there is one.
    """
    name = hashlib.sha256(plan.predictor).hexdigest() + plan.files.path
    state, model = _models.get(name, ("", None))
    while model is None and len(_models) >= KEPT_MODELS:
        _models.popitem(last=False)
    try:
        files = present(plan.files)
        if model is None or files.key != state:
            model = _load(plan, files)
            state = files.key
    except Exception as error:
        if model is None:
            raise
        log.warning("%s is not loaded anew: %s", plan.files.path, error)
    _models[name] = state, model
    _models.move_to_end(name)
    return model


def _load(plan: ScoringPlan, files: ModelFiles) -> Loaded:
    _claim_gpus()
    sys.path += [entry for entry in plan.path if entry not in sys.path and os.path.exists(entry)]
    predictor: Predictor = pickle.loads(plan.predictor)  # noqa: S301 - sent by the driver
    with at_hand(files) as path:
        return predictor.load(path)


def answer(plan: ScoringPlan, model: Loaded, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The answers to one batch.

    Raises:
        ScoringError: columns, model and mappings do not fit each other.
    """
    rows = batch.num_rows
    tensors = tensors_of(plan, model, batch)
    padded = plan.pad and rows < plan.batch_size
    if padded:
        order = np.minimum(np.arange(plan.batch_size), rows - 1)
        tensors = ordered(tensors, order)
    answers = named(model(tensors), model.outputs)
    answered = plan.batch_size if padded else rows
    mapping = plan.outputs or tuple((name, name) for name in answers)
    found: list[pa.Array] = []
    for tensor, column in mapping:
        if not tensor:
            tensor = next(iter(answers)) if len(answers) == 1 else column
        if tensor not in answers:
            raise ScoringError(
                f"the model answers {_words(answers)}, not {tensor!r}; correct the output mapping or the "
                "schema"
            )
        kind = plan.schema.field(column).type if plan.schema is not None else None
        found.append(columns.to_arrow(tensor, answers[tensor], answered, kind).slice(0, rows))
    return pa.RecordBatch.from_arrays(found, names=[column for _, column in mapping])


def tensors_of(plan: ScoringPlan, model: Loaded, batch: pa.RecordBatch) -> Batch:
    """The columns that a model takes, as it takes them."""
    declared = {tensor.name: tensor for tensor in model.inputs or ()}
    shapes = dict(plan.shapes)
    mapping = _mapping(plan, model, batch.schema.names)
    together = [tensor for _, tensor in mapping]
    gathered: dict[str, list[Any]] = {}
    for column, tensor in mapping:
        if model.inputs and tensor not in declared:
            raise ScoringError(
                f"the model takes {_words(declared)}, not {tensor!r}; correct the input mapping"
            )
        values = array(batch.column(column), column)
        if model.inputs or tensor in shapes or together.count(tensor) > 1:
            values = plain(values, column)
        if tensor in declared:
            # A model whose type numpy has not takes numbers as they are, but no mask.
            dtype = declared[tensor].dtype or ("float64" if np.ma.isMaskedArray(values) else "")
            values = as_type(values, np.dtype(dtype), column) if dtype else values
        gathered.setdefault(tensor, []).append(values)
    if model.inputs and (missing := [name for name in declared if name not in gathered]):
        raise ScoringError(
            f"the model also takes {_words(missing)}; map columns to it: the rows have "
            f"{_words(batch.schema.names)}"
        )
    # In the model's own order, for those that take them by place.
    order = [name for name in declared if name in gathered] or list(gathered)
    return {
        name: _fit(gathered[name], declared.get(name) or Tensor(name), shapes.get(name))
        for name in order
    }


def _mapping(plan: ScoringPlan, model: Loaded, names: list[str]) -> tuple[tuple[str, str], ...]:
    if plan.inputs:
        only = model.inputs[0].name if model.inputs and len(model.inputs) == 1 else "features"
        return tuple((column, tensor or only) for column, tensor in plan.inputs)
    if not model.inputs:
        return tuple((name, name) for name in names)
    wanted = [tensor.name for tensor in model.inputs]
    if len(wanted) == 1 and len(names) == 1:
        return ((names[0], wanted[0]),)
    if missing := [name for name in wanted if name not in names]:
        raise ScoringError(
            f"the model takes {_words(wanted)} and the rows have {_words(names)}: say which column "
            f"is {_words(missing)}"
        )
    return tuple((name, name) for name in wanted)


def _fit(parts: list[Any], tensor: Tensor, shape: tuple[int, ...] | None) -> Any:
    values = side_by_side(parts)
    wanted = shape or tensor.shape
    if wanted is None or isinstance(values, dict) or tuple(values.shape[1:]) == tuple(wanted):
        return values
    if len(wanted) == values.ndim - 1 and all(
        want in (None, has) for want, has in zip(wanted, values.shape[1:])
    ):
        return values
    unknown = sum(length is None for length in wanted)
    try:
        if unknown > 1:
            raise ValueError("more than one length is open")
        return values.reshape(len(values), *(-1 if length is None else length for length in wanted))
    except ValueError as error:
        raise ScoringError(
            f"{tensor.name!r} takes rows of shape {tuple(wanted)}; the columns give "
            f"{tuple(values.shape[1:])}: {error}"
        ) from error


def _declared(plan: ScoringPlan, outputs: tuple[Tensor, ...]) -> pa.Schema | None:
    wanted = plan.outputs or tuple((output.name, output.name) for output in outputs)
    by_name = {output.name: output for output in outputs}
    fields = []
    for tensor, column in wanted:
        output = by_name.get(tensor)
        if output is None or not output.dtype or output.shape is None:
            return None
        fields.append((column, columns.arrow_type(output.dtype, len(output.shape))))
    return pa.schema(fields)


def _schema_row(schema: pa.Schema) -> pa.RecordBatch:
    encoded = pa.array([schema.serialize().to_pybytes()], pa.binary())
    return pa.RecordBatch.from_arrays([encoded], names=["schema"])


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return batches
    return pa.Table.from_batches(batches).combine_chunks().to_batches()


def _claim_gpus() -> None:
    """Let frameworks see the GPUs that Spark gave the task, before one is imported."""
    from pyspark import TaskContext

    context = TaskContext.get()
    resources = context.resources() if context is not None else {}
    if "gpu" in resources:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(resources["gpu"].addresses)


def _words(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
