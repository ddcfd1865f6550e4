"""Nothing is unpacked outside of its folder, with the filters of `tarfile` or, on Python before 3.11.4, without them."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from howdah.packing.unpacking import unpack


@pytest.fixture(params=["filters", "none"], autouse=True)
def filters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "none":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python's tarfile has no filters")


def packed(*members: tuple[str, dict[str, Any]]) -> tarfile.TarFile:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, fields in members:
            info = tarfile.TarInfo(name)
            content = fields.pop("content", b"")
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    data.seek(0)
    return tarfile.open(fileobj=data)


def link(target: str) -> dict[str, Any]:
    return {"type": tarfile.SYMTYPE, "linkname": target}


def test_files_folders_and_links_inside_are_as_they_were_packed(tmp_path: Path) -> None:
    tar = packed(
        ("a", {"type": tarfile.DIRTYPE, "mode": 0o555}),
        ("a/run", {"content": b"x", "mode": 0o4775}),
        ("link", link("a/run")),
        ("/absolute", {"content": b"y", "mode": 0o444, "uid": 1234, "gid": 1234}),
    )
    unpack(tar, tmp_path / "to")
    assert (tmp_path / "to/link").read_bytes() == b"x"
    assert (tmp_path / "to/absolute").read_bytes() == b"y"
    assert (tmp_path / "to/a/run").stat().st_mode & 0o7777 == 0o755
    absolute = (tmp_path / "to/absolute").stat()
    assert (absolute.st_uid, absolute.st_mode & 0o777) == (os.getuid(), 0o644)


@pytest.mark.parametrize("links_outside", [False, True])
@pytest.mark.parametrize(
    "members",
    [
        [("../outside", {"content": b"x"})],
        [("a", link("..")), ("a/outside", {"content": b"x"})],
        [("outside", link("../outside")), ("outside", {"content": b"x"})],
    ],
    ids=["a name", "through a folder's link", "through a file's link"],
)
def test_nothing_is_written_outside(
    tmp_path: Path, members: list[tuple[str, dict[str, Any]]], links_outside: bool
) -> None:
    with pytest.raises(tarfile.TarError, match="outside"):
        unpack(packed(*members), tmp_path / "to", links_outside=links_outside)
    assert not (tmp_path / "outside").exists()


def test_links_lead_outside_only_where_they_may(tmp_path: Path) -> None:
    with pytest.raises(tarfile.TarError, match="outside"):
        unpack(packed(("python", link("../python3"))), tmp_path / "to")
    unpack(packed(("python", link("../python3"))), tmp_path / "to", links_outside=True)
    assert (tmp_path / "to/python").readlink() == Path("../python3")


@pytest.mark.parametrize("field", [{"type": tarfile.FIFOTYPE}, {"type": tarfile.CHRTYPE}])
def test_data_has_no_devices(tmp_path: Path, field: dict[str, Any]) -> None:
    with pytest.raises(tarfile.TarError):
        unpack(packed(("device", field)), tmp_path / "to")
