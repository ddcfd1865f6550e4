"""Hadoop's XML configuration, read as Hadoop reads it."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.hadoop.address import Address
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError
from howdah.hadoop.siteparser import read_properties


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"<configuration>{text}</configuration>")
    return path


def prop(name: str, value: str, final: bool = False) -> str:
    mark = "<final>true</final>" if final else ""
    return f"<property><name>{name}</name><value>{escape(value)}</value>{mark}</property>"


def load(folder: Path, **env: str) -> Configuration:
    return Configuration.load(folder, env=env)


def test_later_files_win_unless_a_value_is_final(tmp_path: Path) -> None:
    write(tmp_path, "core-site.xml", prop("a", "1") + prop("b", "1", final=True))
    write(tmp_path, "yarn-site.xml", prop("a", "2") + prop("b", "2"))
    found = load(tmp_path)
    assert (found.get("a"), found.get("b")) == ("2", "1")
    assert found.as_dict() == {"a": "2", "b": "1"}
    assert found.source("a").endswith("yarn-site.xml")


def test_within_a_file_the_last_value_wins(tmp_path: Path) -> None:
    write(tmp_path, "core-site.xml", prop("a", "1") + prop("a", "2"))
    assert load(tmp_path).get("a") == "2"


def test_variables_are_other_properties_or_the_environment(tmp_path: Path) -> None:
    write(
        tmp_path,
        "core-site.xml",
        prop("host", "h${n}")
        + prop("n", "1")
        + prop("url", "hdfs://${host}:9000")
        + prop("env", "${env.PORT}/${env.NONE-x}/${env.EMPTY:-y}/${env.EMPTY-z}/${env.GONE}")
        + prop("unknown", "${no.such}/${n}"),
    )
    found = load(tmp_path, PORT="80", EMPTY="")
    assert found.get("url") == "hdfs://h1:9000"
    assert found.get("env") == "80/x/y//${env.GONE}"
    assert found.get("unknown") == "${no.such}/1"


def test_properties_in_a_circle_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, "core-site.xml", prop("a", "${b}") + prop("b", "${a}"))
    with pytest.raises(ConfigurationError, match="circle"):
        load(tmp_path).get("a")


def test_includes_are_followed_relative_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", "shared.xml", prop("a", "included"))
    include = (
        '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="more/shared.xml"/>'
        '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="gone.xml">'
        f"<xi:fallback>{prop('b', 'fallback')}</xi:fallback></xi:include>"
    )
    write(tmp_path, "core-site.xml", include)
    found = load(tmp_path)
    assert (found.get("a"), found.get("b")) == ("included", "fallback")
    assert found.source("a").endswith("shared.xml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="gone.xml"/>', "gone.xml"),
        ('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="http://a/b"/>', "local"),
        ('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="core-site.xml"/>', "20"),
        ("<property><value>1</value></property>", "no <name>"),
        ("<property>", "well-formed"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, "core-site.xml", text)
    with pytest.raises(ConfigurationError, match=r"core-site\.xml.*" + said):
        load(tmp_path)


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<html/>")
    with pytest.raises(ConfigurationError, match="<html>"):
        load(tmp_path)


def test_properties_may_be_attributes_or_nested(tmp_path: Path) -> None:
    write(
        tmp_path,
        "core-site.xml",
        f'<property name="a" value="1"/><configuration>{prop("b", "2")}</configuration>'
        "<property><name>c</name></property><!-- nothing -->",
    )
    found = load(tmp_path)
    assert (found.get("a"), found.get("b"), "c" in found) == ("1", "2", False)


def test_the_folder_comes_from_the_environment(tmp_path: Path) -> None:
    write(tmp_path, "core-site.xml", prop("a", "1"))
    home = tmp_path / "etc" / "hadoop"
    home.mkdir(parents=True)
    write(home, "core-site.xml", prop("a", "home"))
    here = str(tmp_path)
    assert Configuration.load(env={"HADOOP_CONF_DIR": here, "YARN_CONF_DIR": "/x"}).get("a") == "1"
    assert Configuration.load(env={"YARN_CONF_DIR": here}).get("a") == "1"
    assert Configuration.load(env={"HADOOP_HOME": here}).get("a") == "home"


@pytest.mark.parametrize("env", [{}, {"HADOOP_CONF_DIR": "/no/such"}, {"HADOOP_CONF_DIR": "/proc"}])
def test_without_a_folder_the_error_says_what_to_set(env: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="HADOOP_CONF_DIR"):
        Configuration.load(env=env)


def test_numbers_times_and_sizes_have_units() -> None:
    found = Configuration(
        {"i": "12", "x": "0x10", "t": "500", "u": "2m", "s": "64k", "b": "128m", "f": "2.1"}
    )
    assert (found.integer("i"), found.integer("x"), found.integer("none", 7)) == (12, 16, 7)
    assert (found.duration_s("t"), found.duration_s("t", unit="s")) == (0.5, 500)
    assert (found.duration_s("u"), found.duration_s("none", 3.0)) == (120, 3.0)
    assert (found.size("s"), found.size("b"), found.size("i")) == (65536, 128 << 20, 12)
    assert found.number("f") == 2.1


def test_lists_and_truth_are_read_as_hadoop_reads_them() -> None:
    found = Configuration({"l": " a, b,,\n c ", "e": "", "t": " TRUE ", "f": "false", "j": "ja"})
    assert (found.list("l"), found.list("e"), found.list("no", ("x",))) == (
        ("a", "b", "c"),
        (),
        ("x",),
    )
    assert (found.boolean("t"), found.boolean("f", True), found.boolean("j", True)) == (
        True,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("method", "text"),
    [("integer", "ten"), ("duration_s", "5 weeks"), ("size", "1x"), ("number", "-")],
)
def test_a_value_of_the_wrong_kind_is_an_error_with_file_and_key(
    tmp_path: Path, method: str, text: str
) -> None:
    write(tmp_path, "yarn-site.xml", prop("some.key", text))
    with pytest.raises(ConfigurationError, match=r"yarn-site\.xml: some\.key is '" + text):
        getattr(load(tmp_path), method)("some.key")


def test_old_names_are_understood() -> None:
    found = Configuration({"fs.default.name": "hdfs://old:1/"})
    assert found.default_fs == "hdfs://old:1"
    assert found.get("fs.default.name") == "hdfs://old:1/"


def test_one_resource_manager_has_hadoops_default_ports() -> None:
    found = Configuration({"yarn.resourcemanager.hostname": "rm.example"})
    assert found.rm_addresses() == (Address("rm.example", 8032),)
    assert found.rm_addresses("scheduler") == (Address("rm.example", 8030),)
    assert found.rm_addresses("admin") == (Address("rm.example", 8033),)
    assert found.rm_addresses("webapp") == (Address("rm.example", 8088),)
    secure = found.with_values({"yarn.http.policy": "HTTPS_ONLY"})
    assert secure.rm_addresses("webapp") == (Address("rm.example", 8090),)


def test_two_resource_managers_are_found_by_their_ids() -> None:
    found = Configuration(
        {
            "yarn.resourcemanager.ha.enabled": "true",
            "yarn.resourcemanager.ha.rm-ids": "rm1,rm2",
            "yarn.resourcemanager.hostname.rm1": "one",
            "yarn.resourcemanager.address.rm2": "two:99",
        }
    )
    assert found.rm_addresses() == (Address("one", 8032), Address("two", 99))
    with pytest.raises(ConfigurationError, match=r"rm2.*hostname\.rm2"):
        found.rm_addresses("scheduler")


def test_name_nodes_are_found_through_their_service() -> None:
    found = Configuration(
        {
            "fs.defaultFS": "hdfs://nameservice1",
            "dfs.nameservices": "nameservice1,other",
            "dfs.ha.namenodes.nameservice1": "nn1,nn2",
            "dfs.namenode.rpc-address.nameservice1.nn1": "a:8020",
            "dfs.namenode.rpc-address.nameservice1.nn2": "b:8020",
            "dfs.namenode.rpc-address.other": "c:9000",
        }
    )
    assert found.name_nodes() == (Address("a", 8020), Address("b", 8020))
    assert found.name_nodes("hdfs://other/x") == (Address("c", 9000),)
    assert found.name_nodes("hdfs://host/x") == (Address("host", 8020),)
    assert found.name_nodes("hdfs://host:1/x") == (Address("host", 1),)
    with pytest.raises(ConfigurationError, match="s3a"):
        found.name_nodes("s3a://bucket")


@pytest.mark.parametrize("text", ["", ":1", "h:", "h:0", "h:70000", "h:x", "[::1", "[::1]x"])
def test_a_malformed_address_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        Address.parse(text)


def test_addresses_are_read_and_written() -> None:
    assert Address.parse("h:1") == Address("h", 1)
    assert Address.parse("h", 2) == Address("h", 2)
    assert Address.parse("[::1]:3") == Address("::1", 3)
    assert str(Address("::1", 3)) == "[::1]:3"


@given(st.text(max_size=60))
def test_any_value_is_read_or_refused_in_our_words(text: str) -> None:
    found = Configuration({"k": text, "a": "${k}", "n": "1"}, env={})
    for method in (
        found.get,
        found.integer,
        found.number,
        found.duration_s,
        found.size,
        found.boolean,
        found.list,
        found.address,
    ):
        for name in ("k", "a"):
            try:
                method(name)
            except ConfigurationError:
                pass


@given(st.binary(max_size=200))
def test_any_file_is_read_or_refused_in_our_words(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.xml"
    path.write_bytes(data)
    try:
        read_properties(path)
    except ConfigurationError:
        pass
