"""A model as a stage of a pipeline: scores rows, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.ml import Model as MLModel
from pyspark.ml.util import MLReadable, MLWritable

from howdah.spark.pipeline.params import ScoringParams, accessors, set_all, set_defaults
from howdah.spark.pipeline.persistence import StageReader, StageWriter
from howdah.spark.scoring.files import local_path
from howdah.spark.scoring.frames import score
from howdah.spark.scoring.predictors import Predictor, predictor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from howdah.spark.reports import TrainReport


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How a model was trained."""

    job_id: str
    """Of the cluster: ``howdah status`` and the portal know it."""
    report: TrainReport
    """What became of the rows."""
    values: dict[int, Any]
    """What the training function returned, by rank."""


@accessors
class Model(MLModel, ScoringParams, MLReadable, MLWritable):
    """Scores rows with a saved model or a function; see `howdah.spark.scoring`."""

    def __init__(self, model: Any, **params: Any) -> None:
        """``model`` as `howdah.spark.scoring.predictor` takes it; parameters by name.

        Raises:
            BadInput: there is no such parameter.
            ScoringError: it is no model.
        """
        super().__init__()
        set_defaults(self)
        self._predictor = predictor(model)
        self.summary: Summary | None = None
        """None for a model that was loaded."""
        set_all(self, params)

    @property
    def predictor(self) -> Predictor:
        """What it scores by."""
        return self._predictor

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return score(
            dataset,
            self._predictor,
            inputs=self.inputs(),
            outputs=self.outputs(),
            schema=self.getOrDefault("output_schema") or None,
            shapes=self.getOrDefault("shapes"),
            batch_size=self.getOrDefault("predict_batch_size"),
            keep=self.getOrDefault("keep_columns"),
        )

    def write(self) -> StageWriter:
        """A writer for `save`. The files of a model on this machine are saved too; of one at a URL,
        or at a path that only the executors see, the URL or path is."""
        path = self._predictor.path
        local = local_path(path) if path else None
        files = str(local) if local is not None and local.exists() else ""
        return StageWriter(self, {"predictor": self._predictor}, files)

    @classmethod
    def read(cls) -> StageReader:
        """A reader for `load`, which unpickles: load only what you trust."""
        return StageReader(cls)

    @classmethod
    def _from_payload(cls, payload: dict[str, Any], files: str) -> Model:
        found: Predictor = payload["predictor"]
        if files:
            found = msgspec.structs.replace(found, path=files)
        return cls(found)
