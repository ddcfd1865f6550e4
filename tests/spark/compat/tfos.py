"""TensorFlowOnSpark's tests, examples and names (2.2.5, and what 1.4.4 had), as rows.

Each has its like among ours: a test with ``@pytest.mark.tfos("the row")`` that uses a real Spark.
``docs/generate_parity.py`` makes the parity table of them.
"""

from __future__ import annotations

from tests.parity import Parity

TESTS = {
    "TFCluster: arguments reach the functions": "test_TFCluster: test_basic_tf",
    "TFCluster: sum of squares of 1,000 rows in 10 partitions": "test_inputmode_spark",
    "TFCluster: an exception while feeding": "test_inputmode_spark_exception",
    "TFCluster: a late exception, with grace": "test_inputmode_spark_late_exception",
    "TFCluster: the port is released": "test_inputmode_tf_port_released",
    "TFCluster: the port is the program's to release": "test_inputmode_tf_port_unreleased",
    "TFNode: paths of three file systems": "test_TFNode: test_hdfs_path",
    "TFNode: batches of 2, 4 and the rest": "test_datafeed",
    "TFParallel: without a barrier": "test_TFParallel: test_basic_tf",
    "TFParallel: with a barrier": "test_basic_tf_barrier",
    "TFParallel: more instances than slots": "test_basic_tf_barrier_error",
    "TFSparkNode: GPUs wanted where none are": "test_TFSparkNode: test_gpu_unavailable",
    "TFSparkNode: GPUs wanted and there": "test_gpu_available",
    "TFSparkNode: one GPU unless said otherwise": "test_gpu_default",
    "TFSparkNode: GPUs by the place in the cluster spec": "test_gpu_cluster_spec",
    "TFSparkNode: Spark's GPU resources come first": "test_gpu_spark_available",
    "TFSparkNode: free GPUs where Spark has none": "test_gpu_spark_fallback",
    "TFSparkNode: on Kubernetes only Spark's GPUs": "test_gpu_k8s",
    "TFSparkNode: the cluster spec": "test_get_cluster_spec",
    "dfutil: round trip": "test_dfutil: test_dfutils",
    "pipeline: Namespace": "test_pipeline: test_namespace",
    "pipeline: arguments and parameters merged": "test_TFParams",
    "pipeline: fit, export, transform of a linear regression": "test_spark_saved_model",
    "reservation: the store": "test_reservation: test_reservation_class",
    "reservation: server and client": "test_reservation_server",
    "reservation: several clients": "test_reservation_server_multi",
    "reservation: the host of TFOS_SERVER_HOST": "test_reservation_environment_exists_get_server_ip",
    "reservation: this machine's address": "test_reservation_environment_not_exists_get_server_ip",
    "reservation: the port of TFOS_SERVER_PORT": "test_..._start_listening_socket_port",
    "reservation: a range of ports": "test_..._start_listening_socket_port_range",
    "reservation: any port": "test_reservation_environment_not_exists_start_listening_socket",
    "reservation: no port is free": "test_..._start_listening_socket_failed",
    "1.4.4: inference from a checkpoint folder": "test_pipeline (v1): test_spark_checkpoint",
    "1.4.4: sparse rows": "test_spark_sparse_tensor",
    "1.4.4: only mapped columns are fed": "test_tf_column_filter",
    "1.4.4: export_fn": "test_tf_checkpoint_with_export_fn",
}
"""Row -> name there."""

EXAMPLES = {
    "example: data set-up as CSV and TFRecords": "mnist_data_setup.py",
    "example: Keras fed by Spark": "mnist/keras/mnist_spark.py",
    "example: Keras that reads its own data": "mnist/keras/mnist_tf.py",
    "example: training from TFRecords": "mnist/keras/mnist_tf_ds.py",
    "example: pipeline": "mnist/keras/mnist_pipeline.py",
    "example: parallel inference": "mnist/keras/mnist_inference.py",
    "example: training with an evaluator": "mnist/estimator/mnist_tf.py",
    "example: streaming with a parameter server": "mnist/estimator/mnist_spark_streaming.py",
    "example: stop a stream": "utils/stop_streaming.py",
    "example: scoring an RDD": "mnist/spark/mnist_spark.py --mode inference (v1)",
    "example: ResNet and segmentation, step by step": "resnet/, segmentation/",
}

NAMES = {
    "TFCluster.run: nodes, template, cluster_info and attributes": "TFCluster.run, TFCluster.*",
    "TFCluster.run: what is for TENSORFLOW mode only is refused": "driver_ps_nodes, eval_node",
    "TFCluster.run: more nodes than the cluster has": "TensorFlow cluster requires {} nodes, …",
    "TFCluster.run: arguments as a list become sys.argv": "tf_args",
    "TFCluster.run: parameter servers on the driver": "driver_ps_nodes=True",
    "TFCluster.run: TF_CONFIG and tf_keras are set": "master_node",
    "TFCluster.train: epochs, queues and modes are checked": "TFCluster.train",
    "TFCluster.train: DataFrames arrive as Row objects": "dataRDD=df.rdd",
    "TFCluster.train: rows of any type arrive as they were": "dataRDD",
    "TFCluster.train: the feed times out": "feed_timeout",
    "TFCluster.inference: a lazy RDD, one answer a row": "TFCluster.inference",
    "TFCluster.shutdown: functions that do not end": "timeout",
    "TFCluster: a second cluster after a failed one": "TFCluster.run",
    "TFCluster.tensorboard_url": "tensorboard=True, log_dir",
    "DataFeed.terminate ends the feeding": "DataFeed.terminate",
    "TFNodeContext: attributes": "TFNodeContext.*",
    "TFNode: functions of the past": "start_cluster_server, next_batch, …",
    "compat: export_saved_model, disable_auto_shard, is_gpu_available": "compat.*",
    "util: single_node_env, get_ip_address, find_in_path": "util.*",
    "TFManager: queues and values": "TFManager.start, connect",
    "pipeline: every parameter has a setter and a getter": "Has*",
    "pipeline: graphs by their tags": "pipeline.get_meta_graph_def",
    "pipeline: TFRecords as the way in": "setInputMode(InputMode.TENSORFLOW), setTFRecordDir",
    "pipeline: a model in a PipelineModel on disk": "(not there)",
    "pipeline: CrossValidator": "(not there)",
    "pipeline: transform keeps columns when asked": "(not there)",
    "Scala's Inference command": "com.yahoo.tensorflowonspark.Inference",
    "install(): import tensorflowonspark, in functions and modules": "import tensorflowonspark",
}

ROWS = TESTS | EXAMPLES | NAMES

PARITY = Parity(
    mark="tfos",
    rows=ROWS,
    row="a row of TensorFlowOnSpark's",
    fixtures=frozenset(
        {"spark", "standalone", "standalone_spark", "connect_spark", "run_program", "examples_ran"}
    ),
    real="a real Spark",
    files=("spark/compat/test_tfos_*.py", "spark/test_examples.py"),
)
