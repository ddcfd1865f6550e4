"""The parameters of TensorFlowOnSpark's pipeline stages: ``Has…``, each with a setter and a getter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.ml.param import Params, TypeConverters

from howdah.spark.pipeline.params import param


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
