"""Independent calls of one function in Spark's executors, with their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


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
