"""Which file systems a job uses."""

from __future__ import annotations

from howdah.backends.yarn.client import staging
from howdah.hadoop.configuration import Configuration
from howdah.spec.model import Checkpoint, Environment, Hadoop, Job, Outputs, Role

TABLE = "fs.viewfs.mounttable.v.link"
CONFIGURATION = Configuration(
    {
        "fs.defaultFS": "viewfs://v",
        f"{TABLE}./user": "hdfs://one/user",
        f"{TABLE}./tmp": "hdfs://one/tmp",
        f"{TABLE}./models": "hdfs://two/models",
        f"{TABLE}./bucket": "s3a://bucket/",
    }
)
JOBS = "hdfs://one/user/ann/.howdah/jobs/ann/job-1"


def test_file_systems_are_those_of_all_that_a_job_names_each_once() -> None:
    job = Job(
        command="true",
        roles={"worker": Role(files=("viewfs://v/models/base -> base", "hdfs://three/words.txt"))},
        checkpoint=Checkpoint(store="hdfs://four:9000/kept"),
        outputs=Outputs(folders=("results",), store="hdfs://five/results"),
        environment=Environment(archive="hdfs://six/env.tar.gz"),
        hadoop=Hadoop(name_nodes=("hdfs://seven",)),
    )
    configuration = CONFIGURATION.with_values({"fs.defaultFS": "hdfs://one"})
    names = ["one", "four:9000", "five", "six", "two", "three", "seven"]
    found = staging.file_systems(job, JOBS, configuration)
    assert found == [f"hdfs://{name}" for name in names]
    assert staging.written(job, configuration) == {
        "checkpoint.store": "hdfs://four:9000/kept",
        "outputs.store": "hdfs://five/results",
    }


def test_of_a_default_file_system_that_is_a_viewfs_they_are_all_it_is_made_of() -> None:
    job = Job(command="true", outputs=Outputs(folders=("a",), store="s3://bucket/results"))
    assert staging.file_systems(job, JOBS, CONFIGURATION) == ["hdfs://one", "hdfs://two"]
    assert staging.written(job, CONFIGURATION) == {}
