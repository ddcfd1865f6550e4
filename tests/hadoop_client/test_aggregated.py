"""Aggregated logs as real NodeManagers write them, and damaged ones."""

from __future__ import annotations

import re

import pytest

from howdah.hadoop.aggregated import AggregatedLogs, LogFormatError, javaserial
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId
from tests.hadoop.cluster import Cluster
from tests.hadoop_client.logfiles import (
    OTHER,
    STDOUT,
    Memory,
    aggregated,
    check,
    read_all,
    sample,
)
from tests.hadoop_client.webhdfs import WebHdfs


async def test_logs_of_all_attempts_are_listed_and_read(
    hadoop: Cluster, configuration: Configuration, user: str
) -> None:
    files = WebHdfs(hadoop)
    logs = AggregatedLogs(configuration, files)
    app = await aggregated(configuration, user, attempts=2)
    found = check(logs, app, user, attempts=2)
    # A small log costs one read, wherever it is.
    files.reads = 0
    assert b"".join(logs.read([log for log in found if log.name == "other.log"][-1])) == OTHER
    assert files.reads == 1


async def test_nothing_is_found_where_nothing_is(
    hadoop: Cluster, configuration: Configuration, user: str
) -> None:
    logs = AggregatedLogs(configuration, WebHdfs(hadoop))
    assert logs.of(ApplicationId(1, 1), user) == []


def test_older_clusters_have_their_logs_in_other_folders() -> None:
    configuration = Configuration(
        {
            "yarn.nodemanager.remote-app-log-dir": "/app-logs/",
            "yarn.log-aggregation.file-formats": "IndexedFile,TFile",
            "yarn.log-aggregation.IndexedFile.remote-app-log-dir": "/indexed",
            "yarn.log-aggregation.IndexedFile.remote-app-log-dir-suffix": "ifile",
        }
    )
    logs = AggregatedLogs(configuration, Memory({}))
    assert logs.folders(ApplicationId(9, 12345), "alice") == [
        "/indexed/alice/bucket-ifile/2345/application_9_12345",
        "/indexed/alice/ifile/application_9_12345",
        "/app-logs/alice/bucket-logs-tfile/2345/application_9_12345",
        "/app-logs/alice/logs-tfile/application_9_12345",
        "/app-logs/alice/bucket-logs-ifile/2345/application_9_12345",
        "/app-logs/alice/logs-ifile/application_9_12345",
        "/app-logs/alice/logs/application_9_12345",
    ]


@pytest.fixture(scope="module")
def samples(hadoop: Cluster) -> dict[str, bytes]:
    """A real file of aggregated logs, by its path; the application's user and id are in it."""
    import asyncio

    configuration = Configuration.load(hadoop.conf_dir, env={})
    user = hadoop.site.user
    app = asyncio.run(aggregated(configuration, user, attempts=1))
    return sample(configuration, WebHdfs(hadoop), app, user)


def test_a_truncated_file_is_an_error_that_names_it(samples: dict[str, bytes]) -> None:
    ((path, data),) = samples.items()
    assert read_all(samples) > len(STDOUT)
    for size in (0, 10, 31, 1000, len(data) // 2, len(data) - 1):
        with pytest.raises(LogFormatError, match=re.escape(path)):
            read_all({path: data[:size]})


JAVA = bytes.fromhex("aced0005")
# Written by Java's ObjectOutputStream: a HashMap with an ArrayList of an Integer, a null, a text
# twice (the second time a reference), a long[] and an enum's value.
SAMPLE = bytes.fromhex(
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f616446"
    "6163746f724900097468726573686f6c6478703f4000000000000c7708000000100000000174000b6bc3a9c0"
    "80eda0bdedb880737200136a6176612e7574696c2e41727261794c6973747881d21d99c7619d030001490004"
    "73697a65787000000006770400000006737200116a6176612e6c616e672e496e746567657212e2a0a4f78187"
    "3802000149000576616c7565787200106a6176612e6c616e672e4e756d62657286ac951d0b94e08b02000078"
    "7000000007707400047465787471007e0008757200025b4a782004b512b17593020000787000000002000000"
    "0000000001fffffffffffffffe7e72001d6a6176612e7574696c2e636f6e63757272656e742e54696d65556e"
    "697400000000000000001200007872000e6a6176612e6c616e672e456e756d00000000000000001200007870"
    "740004444159537878"
)


def test_javas_objects_are_read() -> None:
    found = javaserial.loads(SAMPLE)
    ((key, value),) = found.items()
    assert (found.class_name, key) == ("java.util.HashMap", "ké\0\U0001f600")
    number, nothing, text, again, array, constant = value.elements()
    assert (number.class_name, number.fields) == ("java.lang.Integer", {"value": 7})
    assert (nothing, text, again, array, constant) == (None, "text", "text", [1, -2], "DAYS")


def test_nesting_without_end_is_refused() -> None:
    array = b"\x75\x72\x00\x02[L" + bytes(8) + b"\x02\x00\x00\x78\x70\x00\x00\x00\x01"
    again = b"\x75\x71\x00\x7e\x00\x00\x00\x00\x00\x01"
    with pytest.raises(LogFormatError, match="deep"):
        javaserial.loads(JAVA + array + again * 500)
