"""TensorFlowOnSpark's ``pipeline``: `TFEstimator` and `TFModel` as stages of Spark ML.

`howdah.spark.pipeline` has the better form: any framework, validation, sample weights, resume.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.param import Params, TypeConverters
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

from howdah.compat.tensorflowonspark import TFCluster, TFSparkNode, util
from howdah.compat.tensorflowonspark.namespace import Namespace as Namespace
from howdah.compat.tensorflowonspark.namespace import yield_batch as yield_batch
from howdah.spark.frames import select
from howdah.spark.pipeline.params import param, set_defaults
from howdah.spark.pipeline.persistence import metadata_session
from howdah.spark.scoring.frames import score
from howdah.spark.scoring.predictors import Predictor, predictor

logger: logging.Logger = logging.getLogger(__name__)


class TFTypeConverters:
    """Converters that Spark has not."""

    @staticmethod
    def toDict(value: Any) -> dict[str, Any]:
        """A dictionary.

        Raises:
            TypeError: it is none.
        """
        if isinstance(value, dict):
            return value
        raise TypeError(f"{value!r} is no dictionary")


def _has(*parameters: tuple[str, str, str, Callable[[Any], Any], Any]) -> Any:
    """A class with these parameters: what follows ``set`` and ``get``, name, meaning, converter, default."""
    members: dict[str, Any] = {"__module__": __name__}
    for word, name, doc, convert, default in parameters:
        members[name] = param(doc, convert, default)
        members[f"set{word}"] = lambda self, value, name=name: self._set(**{name: value})
        members[f"get{word}"] = lambda self, name=name: self.getOrDefault(name)
    return type(f"Has{parameters[0][0]}", (Params,), members)


_int, _bool, _string = TypeConverters.toInt, TypeConverters.toBoolean, TypeConverters.toString
_dict = TFTypeConverters.toDict

HasBatchSize: Any = _has(("BatchSize", "batch_size", "Rows per batch", _int, 100))
HasClusterSize: Any = _has(("ClusterSize", "cluster_size", "Nodes of the cluster", _int, 1))
HasEpochs: Any = _has(("Epochs", "epochs", "How often the rows are fed", _int, 1))
HasGraceSecs: Any = _has(
    ("GraceSecs", "grace_secs", "Kept for programs that set it: functions are waited for", _int, 30)
)
HasInputMapping: Any = _has(("InputMapping", "input_mapping", "Column to tensor", _dict, {}))
HasInputMode: Any = _has(
    ("InputMode", "input_mode", "0: through TFRecord files (TENSORFLOW), 1: fed (SPARK)", _int, 1)
)
HasMasterNode: Any = _has(
    ("MasterNode", "master_node", "Name of the chief: chief or master", _string, "chief")
)
HasModelDir: Any = _has(("ModelDir", "model_dir", "Folder of checkpoints", _string, None))
HasNumPS: Any = _has(
    ("NumPS", "num_ps", "Parameter servers among the nodes", _int, 0),
    ("DriverPSNodes", "driver_ps_nodes", "Parameter servers on the driver's machine", _bool, False),
)
HasOutputMapping: Any = _has(("OutputMapping", "output_mapping", "Tensor to new column", _dict, {}))
HasProtocol: Any = _has(("Protocol", "protocol", "For the program: grpc", _string, "grpc"))
HasReaders: Any = _has(("Readers", "readers", "For the program: reading threads", _int, 1))
HasSteps: Any = _has(("Steps", "steps", "For the program: most steps to train", _int, 1000))
HasTensorboard: Any = _has(("Tensorboard", "tensorboard", "Run TensorBoard too", _bool, False))
HasTFRecordDir: Any = _has(
    (
        "TFRecordDir",
        "tfrecord_dir",
        "Where rows are written for InputMode.TENSORFLOW",
        _string,
        None,
    )
)
HasExportDir: Any = _has(("ExportDir", "export_dir", "Folder of the SavedModel", _string, None))
HasSignatureDefKey: Any = _has(
    ("SignatureDefKey", "signature_def_key", "Signature of the SavedModel", _string, None)
)
HasTagSet: Any = _has(("TagSet", "tag_set", "Tags of the SavedModel, by commas", _string, None))

# -- what TensorFlowOnSpark's stages do not have ----------------------------------------------------

HasFeedTimeout: Any = _has(
    ("FeedTimeout", "feed_timeout", "Seconds without progress until feeding fails", _int, 600)
)
HasReservationTimeout: Any = _has(
    (
        "ReservationTimeout",
        "reservation_timeout",
        "Seconds until all nodes have to be there",
        _int,
        600,
    )
)
HasLogDir: Any = _has(("LogDir", "log_dir", "Where TensorBoard reads summaries", _string, None))
HasEvalNode: Any = _has(("EvalNode", "eval_node", "One node is the evaluator", _bool, False))
HasReleasePort: Any = _has(
    ("ReleasePort", "release_port", "False: the program calls ctx.release_port()", _bool, True)
)
HasKeepColumns: Any = _has(
    ("KeepColumns", "keep_columns", "transform keeps the columns it is given", _bool, False)
)


class TFParams(Params):
    """Arguments of a program beside Spark's parameters."""

    args: Any = None
    """A `Namespace`."""

    def merge_args_params(self) -> Namespace:
        """A copy of the arguments in which every parameter is set too; parameters win."""
        merged = copy.copy(self.args)
        for each in self.params:
            setattr(merged, each.name, self.getOrDefault(each.name))
        return merged


class TFEstimator(
    Estimator,
    TFParams,
    HasInputMapping,
    HasClusterSize,
    HasNumPS,
    HasInputMode,
    HasMasterNode,
    HasProtocol,
    HasGraceSecs,
    HasTensorboard,
    HasModelDir,
    HasExportDir,
    HasTFRecordDir,
    HasBatchSize,
    HasEpochs,
    HasReaders,
    HasSteps,
    HasFeedTimeout,
    HasReservationTimeout,
    HasLogDir,
    HasEvalNode,
    HasReleasePort,
):
    """Trains by ``train_fn(args, ctx)`` on a cluster that it starts and ends; gives a `TFModel`."""

    def __init__(self, train_fn: Any, tf_args: Any, export_fn: Any = None) -> None:
        """
        Args:
            train_fn: as `TFCluster.run`'s ``map_fun``; its arguments have every parameter too.
            tf_args: a dictionary, a namespace, or a list of words (then the function gets those).
            export_fn: called as ``export_fn(args)`` in one Spark task after training, to write the
                SavedModel from its checkpoint.
        """
        super().__init__()
        self.train_fn = train_fn
        self.export_fn = export_fn
        self.args = Namespace(tf_args)
        set_defaults(self)

    def _fit(self, dataset: Any) -> TFModel:
        merged = self.merge_args_params()
        files = merged.input_mode == TFCluster.InputMode.TENSORFLOW
        if files:
            vars(merged)["tfrecord_dir"] = self._as_files(dataset, merged.tfrecord_dir)
        given = self.args.argv if self.args.argv else merged
        context = dataset.sparkSession.sparkContext
        cluster = TFCluster.run(
            context,
            self.train_fn,
            given,
            merged.cluster_size,
            merged.num_ps,
            tensorboard=merged.tensorboard,
            input_mode=merged.input_mode,
            log_dir=merged.log_dir,
            driver_ps_nodes=merged.driver_ps_nodes,
            master_node=merged.master_node,
            reservation_timeout=merged.reservation_timeout,
            eval_node=merged.eval_node,
            release_port=merged.release_port,
        )
        try:
            if not files:
                columns = sorted(self.getInputMapping())
                rows = select(dataset, columns) if columns else dataset
                cluster.train(rows, merged.epochs, feed_timeout=merged.feed_timeout)
        except BaseException:
            cluster.howdah.stop("feeding failed")
            raise
        cluster.shutdown(grace_secs=merged.grace_secs)
        if self.export_fn is not None:
            _export(context, self.export_fn, given)
        return self._copyValues(TFModel(self.args))

    def _as_files(self, dataset: Any, folder: str | None) -> str:
        """The folder of TFRecords with these rows."""
        from howdah.compat.tensorflowonspark import dfutil

        if dfutil.isLoadedDF(dataset):
            return dfutil.loadedDF[dataset]
        if not folder:
            raise ValueError(
                "input_mode TENSORFLOW hands the rows over in TFRecord files: name a folder that "
                "all executors see by setTFRecordDir"
            )
        dfutil.saveAsTFRecords(dataset, folder)
        return folder


class TFModel(
    Model,
    TFParams,
    HasInputMapping,
    HasOutputMapping,
    HasBatchSize,
    HasModelDir,
    HasExportDir,
    HasSignatureDefKey,
    HasTagSet,
    HasKeepColumns,
    MLWritable,
    MLReadable,
):
    """A saved model that scores DataFrames, in Spark's Python workers, each with its own copy."""

    def __init__(self, tf_args: Any) -> None:
        """``tf_args``: as `TFEstimator`'s."""
        super().__init__()
        self.args = Namespace(tf_args)
        set_defaults(self)

    def _transform(self, dataset: Any) -> Any:
        """New columns in the order of their tensors' names; with ``keep_columns`` after the old."""
        merged = self.merge_args_params()
        return score(
            dataset,
            self._predictor(merged),
            inputs=dict(sorted(merged.input_mapping.items())) or None,
            outputs=dict(sorted(merged.output_mapping.items())) or None,
            batch_size=merged.batch_size,
            keep=merged.keep_columns,
        )

    def _predictor(self, merged: Namespace) -> Predictor:
        path: str | None = getattr(merged, "export_dir", None) or getattr(merged, "model_dir", None)
        if not path:
            raise ValueError(
                "Inferencing requires either export_dir or model_dir: the folder of a SavedModel, or "
                "a .keras file"
            )
        tags: str | None = getattr(merged, "tag_set", None)
        return predictor(
            path,
            signature=getattr(merged, "signature_def_key", None) or "",
            tags=tuple(tags.split(",")) if tags else (),
        )

    def write(self) -> MLWriter:
        """Parameters and arguments, as JSON: for `PipelineModel.save`."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """For `PipelineModel.load`."""
        return _Reader()


class _Writer(MLWriter):
    def __init__(self, instance: TFModel) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        args = self._instance.args
        DefaultParamsWriter.saveMetadata(
            self._instance,
            path,
            metadata_session(self.sparkSession),
            extraMetadata={"tf_args": args.argv if args.argv else _plain(vars(args))},
        )


class _Reader(MLReader):
    def load(self, path: str) -> TFModel:
        metadata = DefaultParamsReader.loadMetadata(path, metadata_session(self.sparkSession))
        model = TFModel(metadata["tf_args"])
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """What JSON can say; the rest is left out, which the log tells."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            logger.warning("the argument %s is not saved: JSON cannot say %r", name, value)
        else:
            kept[name] = value
    return kept


def _export(context: Any, export_fn: Any, given: Any) -> None:
    def export(_: Any) -> None:
        single_node_env(given)
        export_fn(given)

    context.parallelize([1], 1).foreachPartition(export)


def get_meta_graph_def(saved_model_dir: str, tag_set: str) -> Any:
    """The ``MetaGraphDef`` of a saved model that has these tags, separated by commas.

    Args:
        saved_model_dir: a path, or a URL that TensorFlow reads, as `ctx.absolute_path` gives.
        tag_set: all of its tags.

    Raises:
        OSError: there is no ``saved_model.pb`` or ``saved_model.pbtxt``, or it is damaged.
        RuntimeError: none has them.
    """
    from tensorflow.python.tools import saved_model_utils

    found = saved_model_utils.read_saved_model(saved_model_dir)
    tags = {tag.strip() for tag in tag_set.split(",")}
    known = [sorted(each.meta_info_def.tags) for each in found.meta_graphs]
    for each in found.meta_graphs:
        if set(each.meta_info_def.tags) == tags:
            return each
    raise RuntimeError(
        f"MetaGraphDef associated with tag-set {tag_set} could not be found in {saved_model_dir}; it has "
        f"{known}"
    )


def single_node_env(args: Any) -> None:
    """The environment of a process that works on its own: ``sys.argv``, and `util.single_node_env`."""
    words = args if isinstance(args, list) else getattr(args, "argv", None)
    if words:
        sys.argv = list(words)
    wanted = TFSparkNode.wanted_gpus(args)
    util.single_node_env(1 if wanted is None else wanted)
