"""Where the names of a ViewFs lead to."""

from __future__ import annotations

import pytest

from howdah.hadoop import viewfs
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError

_TABLES = "fs.viewfs.mounttable"


def configured(**links: str) -> Configuration:
    """A table ``big`` with these entries, ``__`` for ``.``."""
    return Configuration(
        {
            f"{_TABLES}.big.homedir": "/homes",
            f"{_TABLES}.big.link./homes": "hdfs://one/user",
            f"{_TABLES}.big.link./homes/eve": "hdfs://two:8020/eve/",
            f"{_TABLES}.big.link./data/raw": "hdfs://two:8020/",
            f"{_TABLES}.default.link./a": "s3a://bucket/a",
            **{f"{_TABLES}.{name.replace('__', '.')}": url for name, url in links.items()},
        }
    )


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("viewfs://big/homes", "hdfs://one/user"),
        ("viewfs://big/homes/", "hdfs://one/user"),
        ("viewfs://big/homes/ann/a%20b", "hdfs://one/user/ann/a%20b"),
        ("viewfs://big/homes/eve/x", "hdfs://two:8020/eve/x"),
        ("viewfs://big/homes/evelyn", "hdfs://one/user/evelyn"),
        ("viewfs://big//data/./raw/x", "hdfs://two:8020/x"),
        ("viewfs:///a/b", "s3a://bucket/a/b"),
        ("viewfs:/a", "s3a://bucket/a"),
        ("hdfs://one/data", "hdfs://one/data"),
    ],
)
def test_the_longest_link_leads_there(url: str, there: str) -> None:
    assert viewfs.resolve(url, configured()) == there


def test_what_no_link_leads_to_is_at_the_fallback() -> None:
    table = configured(big__linkFallback="hdfs://rest/")
    assert viewfs.resolve("viewfs://big/else/where", table) == "hdfs://rest/else/where"
    assert viewfs.resolve("viewfs://big/", table) == "hdfs://rest"
    assert viewfs.resolve("viewfs://big/homes/ann", table) == "hdfs://one/user/ann"


def test_a_merged_root_is_all_of_it() -> None:
    table = configured(all__linkMergeSlash="hdfs://one/")
    assert viewfs.resolve("viewfs://all/a/b", table) == "hdfs://one/a/b"


def test_a_name_without_a_table_is_of_the_default_file_system_or_the_default_table() -> None:
    named = configured(default__name__key="big")
    assert viewfs.resolve("viewfs:///homes/ann", named) == "hdfs://one/user/ann"
    default = configured().with_values({"fs.defaultFS": "viewfs://big/"})
    assert viewfs.resolve("viewfs:///homes/ann", default) == "hdfs://one/user/ann"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("viewfs://big/data", "below no link of the mount table 'big'"),
        ("viewfs://big/else", "its links are: /data/raw, /homes, /homes/eve"),
        ("viewfs://small/a", "its links are: none"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_links_there_are(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        viewfs.resolve(url, configured())


@pytest.mark.parametrize("kind", ["linkMerge./m", "linkNfly.minReplication=2,repairOnRead=true./m"])
def test_a_link_to_several_places_is_refused_where_it_is_used(kind: str) -> None:
    table = configured(**{f"big.{kind}": "hdfs://one/m,hdfs://two/m"})
    assert viewfs.resolve("viewfs://big/homes", table) == "hdfs://one/user"
    with pytest.raises(ConfigurationError, match=kind.partition(".")[0]):
        viewfs.resolve("viewfs://big/m/x", table)


def test_rules_are_not_applied_by_halves() -> None:
    table = configured(**{"big.linkRegex.^/homes/(.*)": "hdfs://three/$1"})
    with pytest.raises(ConfigurationError, match="linkRegex"):
        viewfs.resolve("viewfs://big/homes/ann", table)


def test_homes_and_file_systems_are_those_of_the_table() -> None:
    assert viewfs.homes("viewfs://big", configured()) == "/homes"
    assert viewfs.homes("viewfs:", configured()) == "/user"
    assert viewfs.homes("hdfs://one", configured()) == "/user"
    assert viewfs.targets("viewfs://big", configured()) == [
        "hdfs://one/user",
        "hdfs://two:8020/",
        "hdfs://two:8020/eve/",
    ]


def test_file_systems_of_links_to_several_places_are_each_of_them() -> None:
    nfly = f"{_TABLES}.big.linkNfly.minReplication=2./copies"
    table = configured().with_values({nfly: "hdfs://three/a,hdfs://four/a"})
    found = viewfs.targets("viewfs://big", table)
    assert found[0] == "hdfs://four/a"
    assert "hdfs://three/a" in found
