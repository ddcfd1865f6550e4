"""``howdah score``: score files with a saved model, on Spark."""

from __future__ import annotations

from typing import Any

import click

from howdah.cli.arguments import MOST, json_option
from howdah.cli.display.terminal import echo, echo_json

_FORMATS = click.Choice(["parquet", "json", "csv", "orc", "tfrecord"])


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        # Several at once, as TensorFlowOnSpark's users write them, are JSON.
        if value.lstrip().startswith("{"):
            found.update(_object(value, param))
            continue
        name, equals, other = value.partition("=")
        if not (name and equals and other):
            raise click.BadParameter(f"{value!r} is not NAME=NAME", param=param)
        found[name] = other
    return found


def _object(text: str, param: click.Parameter) -> dict[str, str]:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise click.BadParameter(
            f"{text!r} is no JSON object of names: {error}", param=param
        ) from error


@click.command("score")
@click.option(
    "--model",
    default="",
    metavar="PATH",
    help="A SavedModel's folder, a .keras or .h5 file, a TorchScript or .pt2 file; a path or a URL.",
)
@click.option(
    "--predict",
    default="",
    metavar="MODULE:FUNCTION",
    help="In place of a model file: a function that makes the predict function; it gets the "
    "path of --model if there is one.",
)
@click.option(
    "--factory",
    default="",
    metavar="MODULE:FUNCTION",
    help="For a PyTorch state dict: the function that makes the module.",
)
@click.option(
    "--signature",
    default="",
    metavar="NAME",
    help="Signature of a SavedModel. Default: serving_default.",
)
@click.option("--tags", default="", metavar="TAG,…", help="Tags of a SavedModel. Default: serve.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="PATH",
    help="What to score: folders, files or patterns; repeatable.",
)
@click.option(
    "--format",
    "format_",
    type=_FORMATS,
    default="parquet",
    show_default=True,
    help="Format of the input.",
)
@click.option(
    "--schema",
    default="",
    metavar="DDL",
    help="Schema of the input: 'x array<float>, id long' or "
    "'struct<x:array<float>,id:bigint>'. Default: the schema that Spark finds.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="Option of Spark's reader, such as header=true; repeatable.",
)
@click.option(
    "--mapping",
    multiple=True,
    metavar="COLUMN=TENSOR",
    callback=_pairs,
    help="Column for an input of the model; repeatable. Default: columns with the names of its "
    "inputs.",
)
@click.option(
    "--output-mapping",
    multiple=True,
    metavar="TENSOR=COLUMN",
    callback=_pairs,
    help="Answer of the model to keep; repeatable. Default: all, with the model's own names.",
)
@click.option(
    "--output-schema",
    default="",
    metavar="DDL",
    help="Types of the new columns. Default: those of the model's answers to some rows.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="Write only these columns of the input; repeatable. Default: all.",
)
@click.option("--keep-none", is_flag=True, help="Write none of the input's columns.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, MOST),
    default=1024,
    show_default=True,
    help="Rows that the model gets at once.",
)
@click.option(
    "--pad", is_flag=True, help="Fill up the last batch, for models with a fixed batch size."
)
@click.option("--output", required=True, metavar="PATH", help="Folder to write, in Spark's layout.")
@click.option(
    "--output-format",
    type=_FORMATS,
    default="parquet",
    show_default=True,
    help="Format of the output.",
)
@click.option(
    "--mode",
    type=click.Choice(["error", "overwrite", "append", "ignore"]),
    default="error",
    show_default=True,
    help="What to do if the output exists.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, MOST),
    help="Spread the rows over this many tasks; their order changes.",
)
@click.option(
    "--master",
    default="",
    metavar="URL",
    help="Spark's master, such as local[4] or yarn. Default: spark-submit's, or that of spark-defaults.conf.",
)
@click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="A setting of Spark; repeatable.",
)
@json_option
def command(
    inputs: tuple[str, ...],
    format_: str,
    options: dict[str, str],
    tags: str,
    keep: tuple[str, ...],
    keep_none: bool,
    master: str,
    conf: dict[str, str],
    as_json: bool,
    **rest: Any,
) -> int:
    """Score files with a saved model, on Spark.

    \b
        howdah score --model export/ --input data.parquet --mapping pixels=x \\
            --output-mapping probability=p --output scored --output-format json

    Writes every row with all its columns (or those of --keep) and the model's answers. If there is
    a Spark application (under spark-submit, or in a program that has one), the command uses it;
    otherwise it starts one.

    With --json: {"output", "rows", "seconds", "columns": {name: type}}.
    """
    from howdah.backends.spark.application import lent
    from howdah.spark.scoring.command import Request, run

    if keep and keep_none:
        raise click.UsageError("--keep and --keep-none contradict each other; give one of them")
    request = Request(
        inputs=inputs,
        format=format_,
        read_options=options,
        tags=tuple(filter(None, tags.split(","))),
        keep=keep or (() if keep_none else None),
        **rest,
    )
    with lent(master, conf, "howdah score") as spark:
        done = run(spark, request)
    if as_json:
        echo_json(done)
    else:
        rows = "all rows" if done.rows is None else f"{done.rows} rows"
        echo(f"Scored {rows} in {done.seconds:.1f} s: {done.output}")
        for name, kind in done.columns.items():
            echo(f"  {name}  {kind}")
    return 0
