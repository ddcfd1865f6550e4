"""TensorFlowOnSpark's ``dfutil``: DataFrames to TFRecord files and back."""

from __future__ import annotations

from howdah.spark.tfrecord.dfutil import fromTFExample as fromTFExample
from howdah.spark.tfrecord.dfutil import infer_schema as infer_schema
from howdah.spark.tfrecord.dfutil import isLoadedDF as isLoadedDF
from howdah.spark.tfrecord.dfutil import loadedDF as loadedDF
from howdah.spark.tfrecord.dfutil import loadTFRecords as loadTFRecords
from howdah.spark.tfrecord.dfutil import saveAsTFRecords as saveAsTFRecords
from howdah.spark.tfrecord.dfutil import toTFExample as toTFExample
