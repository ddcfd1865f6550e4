"""The page's files: relative, of this place alone, nothing inline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import howdah.coordinator.web
from tests.unit.web.serving import Served

WEB = Path(howdah.coordinator.web.__file__).parent
OWN = [
    path
    for path in sorted([*WEB.glob("static/*"), *WEB.glob("templates/*")])
    if path.is_file() and path.suffix in (".js", ".css", ".html", ".svg")
]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_file_asks_for_anything_elsewhere(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z]+\.", text)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_link_begins_at_the_root(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"""(?:href|src|action)=["']/""", text)
    assert not re.search(r"""(?:fetch|EventSource|ask|post|url)\(\s*["'`]/""", text)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_script_or_style_is_inline(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"\s(?:on[a-z]+|style)=[\"']", text)
    assert "innerHTML" not in text
    assert "insertAdjacentHTML" not in text


def test_the_page_holds_what_is_known_at_once(served: Served) -> None:
    served.do(lambda job: job.change(name="<b>digits</b>"))
    answer = served.get("/")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b'<h1 id="title">&lt;b&gt;digits&lt;/b&gt;</h1>' in answer.body
    assert b"<b>digits" not in answer.body


def test_every_file_the_page_names_is_there_and_may_be_kept(served: Served) -> None:
    page = served.get("/").body.decode()
    names = re.findall(r'(?:href|src)="(static/[^"]+)"', page)
    assert len(names) >= 6
    for name in names:
        answer = served.get(f"/{name}")
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]
    scripts = [name for name in names if name.endswith("app.js")]
    folder = scripts[0].rpartition("/")[0]
    for path in WEB.glob("static/*.js"):
        for imported in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert served.get(f"/{folder}/{imported}").status == 200


def test_an_old_version_of_a_file_is_answered_but_not_kept(served: Served) -> None:
    answer = served.get("/static/0123456789ab/app.js")
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "vendor", "nothing.js", "", "%00"])
def test_no_other_file_can_be_had(served: Served, name: str) -> None:
    assert served.get(f"/static/x/{name}").status == 404


def test_vendored_files_come_with_version_and_licence() -> None:
    readme = (WEB / "static" / "vendor" / "README.md").read_text()
    assert re.search(r"uPlot 1\.\d+\.\d+", readme)
    assert "MIT" in (WEB / "static" / "vendor" / "uPlot.LICENSE").read_text()
