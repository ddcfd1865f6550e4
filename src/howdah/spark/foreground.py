"""One function in Spark's executors in one line: connected, which is TorchDistributor's way (`run`),
or each call for itself (`parallel`)."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from howdah.backends.spark.application import active
from howdah.client.errors import BadInput
from howdah.client.submission.functions import function_title
from howdah.spec.model import Job

_OF_CALL = {"train", "args", "fields"}
"""Names in `Cluster.start` that a caller of `run` does not give there."""


def run(
    fn: Callable[..., Any], *args: Any, workers: int, spark: Any = None, **options: Any
) -> list[Any]:
    """Call ``fn(*args)``, with further keywords, in ``workers`` processes that know each other, and wait for their values.

    The processes hold their Spark tasks until they end (``mode="foreground"``), and nothing of them
    is left when this returns or raises. `howdah.task.context` tells a function who it is.

    Args:
        fn: the function; the framework it imports says which variables it finds (``RANK``,
            ``TF_CONFIG``, …), unless ``framework=`` does.
        args: its arguments.
        spark: the session; by default the one that is active here.
        options: those of `howdah.spark.cluster.Cluster.start`, but for ``mode``; what is none of these, nor
            a field of `howdah.Job`, is a keyword of the function.

    Returns:
        What each rank returned, by rank.

    Raises:
        BadInput: there is no active session, or the function does not take these arguments; or as
            `Cluster.start` says.
        JobFailed: a rank raised; its traceback is in the text.
    """
    from howdah.spark.cluster import Cluster

    if "mode" in options:
        raise BadInput("run has no mode=: it waits for the function. Cluster.start has both modes")
    known = {*inspect.signature(Cluster.start).parameters, *Job.__struct_fields__} - _OF_CALL
    keywords = {name: options.pop(name) for name in [*options] if name not in known}
    with contextlib.suppress(ValueError):  # a function that does not tell what it takes
        try:
            inspect.signature(fn).bind(*args, **keywords)
        except TypeError as error:
            raise BadInput(f"{function_title(fn)}: {error}") from error

    def call(given: tuple[Any, ...], ctx: Any) -> Any:
        return fn(*given, **keywords)

    call.__name__ = getattr(fn, "__name__", "run")
    call.__wrapped__ = fn  # type: ignore[attr-defined]
    session = active() if spark is None else spark
    if session is None:
        raise BadInput("no Spark session is active here: make one, or give it by spark=")
    with Cluster.start(
        session, call, args, workers=workers, mode="foreground", **options
    ) as cluster:
        values = cluster.results()
    return [values[rank] for rank in sorted(values)]


def parallel(
    spark: Any,
    fn: Callable[..., Any],
    n: int,
    args: Sequence[Any] = (),
    **options: Any,
) -> list[Any]:
    """Call ``fn(*args, ctx)`` in ``n`` independent containers of Spark's executors at once.

    Nothing connects the instances: each reads its own share (``ctx.index`` of ``ctx.num_workers``).
    ``options`` are those of `howdah.spark.cluster.Cluster.start`.

    Returns:
        The values, by index.

    Raises:
        JobFailed: an instance raised; its traceback is in the text.
    """
    from howdah.spark.cluster import Cluster

    def call(given: Sequence[Any], ctx: Any) -> Any:
        return fn(*given, ctx)

    call.__name__ = getattr(fn, "__name__", "parallel")
    options = {"mode": "foreground", "framework": "command", **options}
    with Cluster.start(spark, call, list(args), workers=n, **options) as cluster:
        values = cluster.results()
    return [values.get(rank) for rank in range(n)]
