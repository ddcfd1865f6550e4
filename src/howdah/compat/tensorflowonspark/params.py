"""The parameters of TensorFlowOnSpark's pipeline stages: ``Has…``, each with a setter and a getter."""

from __future__ import annotations

from typing import Any, TypeVar

from pyspark.ml.param import Params, TypeConverters

from howdah.spark.pipeline.params import param

Stage = TypeVar("Stage", bound=Params)


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


class HasBatchSize(Params):
    batch_size: Any = param("batch_size", "Rows per batch", TypeConverters.toInt)

    def setBatchSize(self: Stage, value: int) -> Stage:
        return self._set(batch_size=value)

    def getBatchSize(self) -> int:
        return self.getOrDefault(self.batch_size)


class HasClusterSize(Params):
    cluster_size: Any = param("cluster_size", "Nodes of the cluster", TypeConverters.toInt)

    def setClusterSize(self: Stage, value: int) -> Stage:
        return self._set(cluster_size=value)

    def getClusterSize(self) -> int:
        return self.getOrDefault(self.cluster_size)


class HasEpochs(Params):
    epochs: Any = param("epochs", "How often the rows are fed", TypeConverters.toInt)

    def setEpochs(self: Stage, value: int) -> Stage:
        return self._set(epochs=value)

    def getEpochs(self) -> int:
        return self.getOrDefault(self.epochs)


class HasGraceSecs(Params):
    grace_secs: Any = param(
        "grace_secs",
        "Kept for programs that set it: functions are waited for",
        TypeConverters.toInt,
    )

    def setGraceSecs(self: Stage, value: int) -> Stage:
        return self._set(grace_secs=value)

    def getGraceSecs(self) -> int:
        return self.getOrDefault(self.grace_secs)


class HasInputMapping(Params):
    input_mapping: Any = param("input_mapping", "Column to tensor", TFTypeConverters.toDict)

    def setInputMapping(self: Stage, value: dict[str, str]) -> Stage:
        return self._set(input_mapping=value)

    def getInputMapping(self) -> dict[str, str]:
        return self.getOrDefault(self.input_mapping)


class HasInputMode(Params):
    input_mode: Any = param(
        "input_mode", "0: through TFRecord files (TENSORFLOW), 1: fed (SPARK)", TypeConverters.toInt
    )

    def setInputMode(self: Stage, value: int) -> Stage:
        return self._set(input_mode=value)

    def getInputMode(self) -> int:
        return self.getOrDefault(self.input_mode)


class HasMasterNode(Params):
    master_node: Any = param(
        "master_node", "Name of the chief: chief or master", TypeConverters.toString
    )

    def setMasterNode(self: Stage, value: str) -> Stage:
        return self._set(master_node=value)

    def getMasterNode(self) -> str | None:
        return self.getOrDefault(self.master_node)


class HasModelDir(Params):
    model_dir: Any = param("model_dir", "Folder of checkpoints", TypeConverters.toString)

    def setModelDir(self: Stage, value: str) -> Stage:
        return self._set(model_dir=value)

    def getModelDir(self) -> str | None:
        return self.getOrDefault(self.model_dir)


class HasNumPS(Params):
    num_ps: Any = param("num_ps", "Parameter servers among the nodes", TypeConverters.toInt)
    driver_ps_nodes: Any = param(
        "driver_ps_nodes", "Parameter servers on the driver's machine", TypeConverters.toBoolean
    )

    def setNumPS(self: Stage, value: int) -> Stage:
        return self._set(num_ps=value)

    def getNumPS(self) -> int:
        return self.getOrDefault(self.num_ps)

    def setDriverPSNodes(self: Stage, value: bool) -> Stage:
        return self._set(driver_ps_nodes=value)

    def getDriverPSNodes(self) -> bool:
        return self.getOrDefault(self.driver_ps_nodes)


class HasOutputMapping(Params):
    output_mapping: Any = param("output_mapping", "Tensor to new column", TFTypeConverters.toDict)

    def setOutputMapping(self: Stage, value: dict[str, str]) -> Stage:
        return self._set(output_mapping=value)

    def getOutputMapping(self) -> dict[str, str]:
        return self.getOrDefault(self.output_mapping)


class HasProtocol(Params):
    protocol: Any = param("protocol", "For the program: grpc", TypeConverters.toString)

    def setProtocol(self: Stage, value: str) -> Stage:
        return self._set(protocol=value)

    def getProtocol(self) -> str:
        return self.getOrDefault(self.protocol)


class HasReaders(Params):
    readers: Any = param("readers", "For the program: reading threads", TypeConverters.toInt)

    def setReaders(self: Stage, value: int) -> Stage:
        return self._set(readers=value)

    def getReaders(self) -> int:
        return self.getOrDefault(self.readers)


class HasSteps(Params):
    steps: Any = param("steps", "For the program: most steps to train", TypeConverters.toInt)

    def setSteps(self: Stage, value: int) -> Stage:
        return self._set(steps=value)

    def getSteps(self) -> int:
        return self.getOrDefault(self.steps)


class HasTensorboard(Params):
    tensorboard: Any = param("tensorboard", "Run TensorBoard too", TypeConverters.toBoolean)

    def setTensorboard(self: Stage, value: bool) -> Stage:
        return self._set(tensorboard=value)

    def getTensorboard(self) -> bool:
        return self.getOrDefault(self.tensorboard)


class HasTFRecordDir(Params):
    tfrecord_dir: Any = param(
        "tfrecord_dir", "Where rows are written for InputMode.TENSORFLOW", TypeConverters.toString
    )

    def setTFRecordDir(self: Stage, value: str) -> Stage:
        return self._set(tfrecord_dir=value)

    def getTFRecordDir(self) -> str | None:
        return self.getOrDefault(self.tfrecord_dir)


class HasExportDir(Params):
    export_dir: Any = param("export_dir", "Folder of the SavedModel", TypeConverters.toString)

    def setExportDir(self: Stage, value: str) -> Stage:
        return self._set(export_dir=value)

    def getExportDir(self) -> str | None:
        return self.getOrDefault(self.export_dir)


class HasSignatureDefKey(Params):
    signature_def_key: Any = param(
        "signature_def_key", "Signature of the SavedModel", TypeConverters.toString
    )

    def setSignatureDefKey(self: Stage, value: str) -> Stage:
        return self._set(signature_def_key=value)

    def getSignatureDefKey(self) -> str | None:
        return self.getOrDefault(self.signature_def_key)


class HasTagSet(Params):
    tag_set: Any = param("tag_set", "Tags of the SavedModel, by commas", TypeConverters.toString)

    def setTagSet(self: Stage, value: str) -> Stage:
        return self._set(tag_set=value)

    def getTagSet(self) -> str | None:
        return self.getOrDefault(self.tag_set)


# -- what TensorFlowOnSpark's stages do not have ----------------------------------------------------


class HasFeedTimeout(Params):
    feed_timeout: Any = param(
        "feed_timeout", "Seconds without progress until feeding fails", TypeConverters.toInt
    )

    def setFeedTimeout(self: Stage, value: int) -> Stage:
        return self._set(feed_timeout=value)

    def getFeedTimeout(self) -> int:
        return self.getOrDefault(self.feed_timeout)


class HasReservationTimeout(Params):
    reservation_timeout: Any = param(
        "reservation_timeout", "Seconds until all nodes have to be there", TypeConverters.toInt
    )

    def setReservationTimeout(self: Stage, value: int) -> Stage:
        return self._set(reservation_timeout=value)

    def getReservationTimeout(self) -> int:
        return self.getOrDefault(self.reservation_timeout)


class HasLogDir(Params):
    log_dir: Any = param("log_dir", "Where TensorBoard reads summaries", TypeConverters.toString)

    def setLogDir(self: Stage, value: str) -> Stage:
        return self._set(log_dir=value)

    def getLogDir(self) -> str | None:
        return self.getOrDefault(self.log_dir)


class HasEvalNode(Params):
    eval_node: Any = param("eval_node", "One node is the evaluator", TypeConverters.toBoolean)

    def setEvalNode(self: Stage, value: bool) -> Stage:
        return self._set(eval_node=value)

    def getEvalNode(self) -> bool:
        return self.getOrDefault(self.eval_node)


class HasReleasePort(Params):
    release_port: Any = param(
        "release_port", "False: the program calls ctx.release_port()", TypeConverters.toBoolean
    )

    def setReleasePort(self: Stage, value: bool) -> Stage:
        return self._set(release_port=value)

    def getReleasePort(self) -> bool:
        return self.getOrDefault(self.release_port)


class HasKeepColumns(Params):
    keep_columns: Any = param(
        "keep_columns", "transform keeps the columns it is given", TypeConverters.toBoolean
    )

    def setKeepColumns(self: Stage, value: bool) -> Stage:
        return self._set(keep_columns=value)

    def getKeepColumns(self) -> bool:
        return self.getOrDefault(self.keep_columns)
