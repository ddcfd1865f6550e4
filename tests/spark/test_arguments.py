"""Names and arguments that the Spark interfaces know, and what they say of others, without Spark."""

from __future__ import annotations

import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.tuning import ParamGridBuilder

import howdah.spark
from howdah.client.errors import BadInput
from howdah.client.submission import functions
from howdah.client.submission.functions import exception_of
from howdah.spark import foreground, scoring
from howdah.spark.feed.messages import Options
from howdah.spark.feed.trainer import _sent
from howdah.spark.inference import answered
from howdah.spark.pipeline import Estimator
from howdah.spark.rows import source_of
from howdah.spark.scoring import Function, score, worker
from howdah.spark.training import Training


def train(args: Any, ctx: Any, rate: float = 0.0) -> Any:
    return args, ctx, rate


def test_parameters_have_the_names_that_spark_would_give_them() -> None:
    estimator: Any = Estimator(train, featuresCol="x")
    assert estimator.featuresCol is estimator.features_col
    grid = ParamGridBuilder().addGrid(estimator.batchSize, [16, 32]).build()
    assert [[*each.items()] for each in grid] == [
        [(estimator.batch_size, size)] for size in (16, 32)
    ]
    names = [each.name for each in estimator.params]
    assert len({*names}) == len(names) and "featuresCol" not in names


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"align": "dorp"}, "align='dorp': .*'drop' or 'none' is needed"),
        ({"workers": -1}, "workers=-1: .*a whole number from 0 on is needed"),
        ({"workers": 0}, "workers=0: a cluster needs at least one worker or a chief"),
        ({"epochs": -1}, "epochs=-1: .*a whole number from 1 on is needed"),
        ({"batchSize": 0}, "batchSize=0: .*a whole number from 1 on is needed"),
        ({"slots": "none"}, "slots='none': .*'held' or 'shared' is needed"),
    ],
)
def test_an_estimator_says_at_once_what_it_cannot_do(given: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        Estimator(train, **given)


def test_a_package_that_loads_names_later_lists_them() -> None:
    assert {"Cluster", "run", "parallel"} <= {*dir(howdah.spark)}
    assert {"score", "Torch"} <= {*dir(scoring)}


class Started:
    """Stands for `Cluster`: makes the call here."""

    given: dict[str, Any]
    value: Any

    @classmethod
    def start(
        cls, spark: Any, train: Any, args: Any, *, workers: int, mode: str, restarts: int = 2
    ) -> Started:
        cls.given = {"workers": workers, "restarts": restarts}
        made = cls()
        made.value = train(args, None)
        return made

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def results(self) -> dict[int, Any]:
        return {0: self.value}


def test_keywords_that_are_no_options_are_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("howdah.spark.cluster.Cluster", Started)
    found = foreground.run(train, 1, spark="s", workers=2, rate=0.1, restarts=0, ctx="c")
    assert found == [(1, "c", 0.1)] and Started.given == {"workers": 2, "restarts": 0}
    with pytest.raises(BadInput, match="train: got an unexpected keyword argument 'rat'"):
        foreground.run(train, 1, 2, spark="s", workers=2, rat=0.1)


def test_a_function_that_cannot_be_sent_is_called_by_its_name() -> None:
    lock = threading.Lock()

    def with_lock() -> Any:
        return lock

    with pytest.raises(BadInput, match="with_lock or its arguments cannot be sent"):
        functions.FunctionJob(train, (with_lock,), title=functions.function_title(with_lock))


def test_what_a_function_raised_comes_to_the_driver_whole() -> None:
    error = exception_of(_sent(ValueError("no", {"rate": 0.1})))
    assert isinstance(error, ValueError) and error.args == ("no", {"rate": 0.1})
    assert _sent(ValueError(threading.Lock())) == b"" and exception_of(b"") is None


def frame(*columns: str) -> Any:
    """A DataFrame as far as it is looked at before anything runs."""
    fields = [SimpleNamespace(name=name) for name in columns]
    schema = SimpleNamespace(names=[*columns], fields=fields)
    return type("DataFrame", (), {"mapInArrow": None, "columns": [*columns], "schema": schema})()


def test_rows_without_columns_are_refused() -> None:
    with pytest.raises(BadInput, match="has no columns: there is nothing to feed"):
        source_of(SimpleNamespace(), frame())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="have no columns: there is nothing to score"):
        score(frame(), train)
    with pytest.raises(BadInput, match=r"pandas's DataFrame cannot be fed.*of Spark"):
        import pandas as pd

        source_of(SimpleNamespace(), pd.DataFrame())  # type: ignore[arg-type]


def test_answers_may_not_have_a_columns_name_in_another_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("howdah.spark.inference._opened", lambda *_: None)
    rows = frame("Score", "x")
    with pytest.raises(BadInput, match="the answers have the columns score"):
        answered(None, rows, feed="f", schema=_schema("score"), keep=True, columns=None)  # type: ignore[arg-type]


def _schema(name: str) -> Any:
    from pyspark.sql.types import DoubleType, StructField, StructType

    return StructType([StructField(name, DoubleType())])


def test_a_schema_of_one_column_names_a_single_answer() -> None:
    def answers(function: Any, *outputs: tuple[str, str]) -> Any:
        plan = worker.ScoringPlan(predictor=b"", outputs=outputs)
        rows = pa.record_batch({"x": [1, 2]})
        return worker.answer(plan, Function(function=function).load(""), rows).to_pydict()

    assert answers(lambda batch: batch["x"], ("", "p")) == {"p": [1, 2]}
    several = {"p": [3, 4], "q": [5, 6]}
    assert answers(lambda _: several, ("", "p")) == {"p": [3, 4]}
    with pytest.raises(Exception, match="the model answers 'p', 'q', not 'r'"):
        answers(lambda _: several, ("", "r"))


def training(feed: str, *asks: set[str]) -> Training:
    """A run of that feed, beside programs that have asked for these."""
    made = Training.__new__(Training)
    made._options = Options(feed=feed)
    made._left = False
    trainers = {
        rank: SimpleNamespace(asks=each, enough=set(), channel=1) for rank, each in enumerate(asks)
    }
    made._controller = SimpleNamespace(trainers=trainers, waiting=lambda: "", expected=len(asks))  # type: ignore[assignment]
    made._run = SimpleNamespace(epochs={})  # type: ignore[assignment]
    return made


def test_rows_that_no_function_has_looked_at_are_told() -> None:
    with pytest.warns(UserWarning, match=r"no row was trained.*'train', but of other.*ctx.feed"):
        training("train", {"other"}, set())._warn_unread()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training("train", {"train"}, set())._warn_unread()
        training("validation", {"train"})._warn_unread()


def test_a_feed_that_is_waited_for_in_vain_says_which_is_asked_for() -> None:
    state = training("train", {"other"}, set())._state()
    assert "rank 0 has not asked for rows of 'train', but of other; rank 1 has not asked" in state
