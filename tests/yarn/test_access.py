"""One process's access to a cluster."""

from __future__ import annotations

from pathlib import Path

from howdah.backends.yarn.access import shared


def test_a_process_that_lives_long_goes_by_the_configuration_as_it_is_now(tmp_path: Path) -> None:
    """A portal or a notebook runs for weeks, and the cluster's files are changed meanwhile."""

    def name_node(address: str) -> None:
        (tmp_path / "core-site.xml").write_text(
            f"<configuration><property><name>fs.defaultFS</name><value>{address}</value></property>"
            "</configuration>"
        )

    name_node("hdfs://one:8020")
    first = shared(tmp_path, {})
    assert shared(tmp_path, {}) is first
    name_node("hdfs://two:8020")
    second = shared(tmp_path, {})
    assert second.configuration.default_fs == "hdfs://two:8020"
    assert shared(tmp_path, {}) is second
    for access in (first, second):
        access.close()
