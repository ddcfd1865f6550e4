"""Saving and loading of stages by Spark ML's own means, as parts of pipelines too.

A stage is saved as Spark ML saves its own: ``metadata/`` has class, uid and parameters as JSON.
Beside it ``howdah/`` (Parquet, written and read through Spark, so that any file system of Spark's
will do) has what JSON cannot hold: functions and values by cloudpickle, and the files of a model.

Loading a stage unpickles what lies there, which can run any code: load only what comes from a
place that you trust, as you would only import a module from there.
"""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.ml.param import Params
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from howdah.client.errors import BadInput
from howdah.spark.pipeline.params import survives_json
from howdah.spark.scoring.files import pack, unpack

PART_BYTES = 16 << 20
"""Of a file, in one row."""


class StageWriter(MLWriter):
    """Writes a stage; ``payload`` is pickled, ``files`` is a local path or empty."""

    def __init__(self, stage: Params, payload: dict[str, Any], files: str = "") -> None:
        super().__init__()
        self._stage = stage
        self._payload = payload
        self._files = files

    def saveImpl(self, path: str) -> None:
        """See `MLWriter.save`.

        Raises:
            BadInput: something of it cannot be pickled.
        """
        import cloudpickle

        chosen = {param.name: value for param, value in self._stage._paramMap.items()}
        plain = {name: value for name, value in chosen.items() if survives_json(value)}
        rest = {name: value for name, value in chosen.items() if name not in plain}
        try:
            payload = cloudpickle.dumps({**self._payload, "params": rest})
        except Exception as error:
            raise BadInput(
                f"{type(self._stage).__name__} cannot be saved: its functions or arguments cannot be "
                f"pickled: {error}"
            ) from error
        spark = self.sparkSession
        DefaultParamsWriter.saveMetadata(self._stage, path, metadata_session(spark), paramMap=plain)
        rows = [("payload", 0, bytearray(payload))]
        with tempfile.TemporaryDirectory(prefix="howdah-model-") as folder:
            if self._files:
                packed = Path(folder) / "packed"
                pack(Path(self._files), packed)
                with packed.open("rb") as file:
                    parts = iter(lambda: file.read(PART_BYTES), b"")
                    rows += [("files", at, bytearray(part)) for at, part in enumerate(parts)]
        frame = spark.createDataFrame(rows, "name string, part int, data binary")
        frame.coalesce(1).write.parquet(f"{path.rstrip('/')}/howdah")


class StageReader(MLReader):
    """Reads what `StageWriter` wrote."""

    def __init__(self, stage: type[Any]) -> None:
        super().__init__()
        self._stage = stage

    def load(self, path: str) -> Any:
        """The stage.

        Raises:
            BadInput: a stage of another class lies there.
        """
        spark: Any = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, metadata_session(spark))
        expected = f"{self._stage.__module__}.{self._stage.__name__}"
        if metadata["class"] != expected:
            raise BadInput(f"{path} is a {metadata['class']}, not a {expected}; load it as that")
        saved = spark.read.parquet(f"{path.rstrip('/')}/howdah")
        rows = saved.where("name = 'payload'").collect()
        payload: dict[str, Any] = pickle.loads(bytes(rows[0]["data"]))  # noqa: S301 - see above
        stage = self._stage._from_payload(payload, _files(saved))
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        stage._set(**payload["params"])
        return stage


def _files(saved: Any) -> str:
    """A local copy of the files, for as long as this process lives."""
    parts = saved.where("name = 'files'").orderBy("part").select("data").toLocalIterator()
    folder = Path(tempfile.mkdtemp(prefix="howdah-model-"))
    packed = folder / "packed"
    with packed.open("wb") as file:
        for row in parts:
            file.write(row["data"])
    if not packed.stat().st_size:
        shutil.rmtree(folder)
        return ""
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    inner = folder / "files"
    inner.mkdir()
    found = unpack(packed, inner)
    packed.unlink()
    return str(found)


def metadata_session(spark: Any) -> Any:
    """What Spark ML's readers and writers want: a session, before Spark 4 its context."""
    return spark if int(pyspark.__version__.split(".")[0]) >= 4 else spark.sparkContext
