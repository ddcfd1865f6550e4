"""Score files with a saved model: what ``howdah score`` does."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from howdah.backends.spark.error_texts import error_text
from howdah.client.errors import BadInput, ExitCode, HowdahError
from howdah.spark.errors import ScoringError
from howdah.spark.scoring.frames import score, struct_type
from howdah.spark.scoring.predictors import Make, Predictor, Torch, predictor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ScoringFailed(HowdahError):
    """Spark could not read, score or write."""

    exit_code = ExitCode.FAILED


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be scored, how, and where the answers go."""

    model: str = ""
    """Path or URL."""
    predict: str = ""
    """``module:function`` that makes the predict function, of the model's path if there is one."""
    factory: str = ""
    """``module:function`` that makes the PyTorch module of a state dict."""
    signature: str = ""
    tags: tuple[str, ...] = ()
    inputs: tuple[str, ...]
    format: str = "parquet"
    schema: str = ""
    """Of the input."""
    read_options: dict[str, str] = {}
    mapping: dict[str, str] = {}
    """Column to tensor."""
    output_mapping: dict[str, str] = {}
    """Tensor to column."""
    output_schema: str = ""
    keep: tuple[str, ...] | None = None
    """Columns of the input that are written too; None: all."""
    batch_size: int = 1024
    pad: bool = False
    output: str
    output_format: str = "parquet"
    mode: str = "error"
    partitions: int | None = None


class ScoringResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    output: str
    rows: int | None
    """None where Spark does not tell."""
    seconds: float
    columns: dict[str, str]
    """Name to type."""


def run(spark: Any, request: Request) -> ScoringResult:
    """Read, score, write.

    Raises:
        BadInput: something of the request is wrong.
        ScoringFailed: Spark or the model has failed.
    """
    began = time.monotonic()
    chosen = model_of(request)
    try:
        rows = _read(spark, request)
        if request.partitions is not None:
            rows = rows.repartition(request.partitions)
        scored = score(
            rows,
            chosen,
            inputs=request.mapping,
            outputs=request.output_mapping,
            schema=request.output_schema or None,
            batch_size=request.batch_size,
            keep=True if request.keep is None else request.keep,
            pad=request.pad,
        )
        count = _written(scored, request)
    except HowdahError:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(str(error)) from error
    except Exception as error:  # Spark's own, of many kinds
        kind = BadInput if type(error).__name__ == "AnalysisException" else ScoringFailed
        raise kind(error_text(error)) from error
    return ScoringResult(
        output=request.output,
        rows=count,
        seconds=round(time.monotonic() - began, 3),
        columns={field.name: field.dataType.simpleString() for field in scored.schema},
    )


def model_of(request: Request) -> Predictor:
    """The predictor that a command line names.

    Raises:
        BadInput: none, or one that cannot be imported.
    """
    if request.predict:
        return Make(request.model, make=imported(request.predict))
    if not request.model:
        raise BadInput("which model? Give --model PATH, or --predict MODULE:FUNCTION")
    if request.factory:
        return Torch(request.model, factory=imported(request.factory))
    try:
        return predictor(request.model, signature=request.signature, tags=request.tags)
    except ScoringError as error:
        raise BadInput(str(error)) from error


def imported(name: str) -> Callable[..., Any]:
    """The function that ``module:function`` names; modules of the current folder are found.

    Raises:
        BadInput: there is none.
    """
    module, colon, function = name.partition(":")
    if not colon:
        raise BadInput(f"{name!r} names no function; write it as MODULE:FUNCTION")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # the module is the user's: it may raise anything
        raise BadInput(f"{name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise BadInput(f"{name!r} is a {type(found).__name__}, not a function")
    return found


def _read(spark: Any, request: Request) -> DataFrame:
    paths = list(request.inputs)
    schema = struct_type(spark, request.schema) if request.schema else None
    if request.format == "tfrecord":
        from howdah.spark.tfrecord import functions, options

        given = {**request.read_options, "paths": json.dumps(paths)}
        return functions.read(spark, options.options(given), schema)
    reader = spark.read.format(request.format)
    if schema is not None:
        reader = reader.schema(schema)
    elif request.format == "csv":
        # Without a schema it has its names in the first line, or it could not be mapped.
        reader = reader.options(header="true", inferSchema="true")
    return reader.options(**request.read_options).load(paths)


def _written(scored: DataFrame, request: Request) -> int | None:
    if request.output_format == "tfrecord":
        from howdah.spark.tfrecord import write_tfrecords

        return write_tfrecords(scored, request.output, mode=request.mode)
    observed, frame = _counted(scored)
    frame.write.format(request.output_format).mode(request.mode).save(request.output)
    return None if observed is None else int(observed.get["rows"])


def _counted(scored: DataFrame) -> tuple[Any, DataFrame]:
    """The same frame, counted by Spark while it is written, where this Spark can."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    try:
        observed = Observation()
        return observed, scored.observe(observed, F.count(F.lit(1)).alias("rows"))
    except Exception:  # Connect before Spark 4
        return None, scored
