"""Pages that list what the code has list all of it, and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from howdah.client.errors import ExitCode
from howdah.core.causes import RULES, FailureCause
from howdah.core.plan import Join
from howdah.frameworks import registry
from howdah.storage import layout
from tests.docs.pages import DOCS, PAGES, ROOT, blocks
from tests.unit.frameworks import gangs

SOURCE = ROOT / "src" / "howdah"


def generator(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED: dict[str, Callable[[], str]] = {
    "reference/job-file.md": lambda: generator("generate_job_file").page(),
    "../src/howdah/spec/job-file.schema.json": lambda: generator("generate_job_file").schema(),
    "reference/cli.md": lambda: generator("generate_cli").page(),
    "reference/http-api.md": lambda: generator("generate_http_api").page(),
    "design/005-attacks.md": lambda: generator("generate_attacks").page(),
    "design/reliability.md": lambda: generator("generate_reliability").page(),
    "guides/kerberos.md": lambda: generator("generate_kerberos").page(),
    "guides/from-tony.md": lambda: generator("generate_tony").page(),
}


@pytest.mark.parametrize("page", GENERATED)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == GENERATED[page](), (
        f"docs/{page} is not what its generator writes: run it and commit the result"
    )


def test_the_pages_of_states_are_up_to_date() -> None:
    for path, text in generator("generate_states").documents().items():
        assert path.read_text() == text, "run docs/generate_states.py and commit what it writes"


def test_the_diagrams_are_what_their_texts_say() -> None:
    for path, text in generator("generate_diagrams").documents().items():
        assert path.read_text() == text, "run docs/generate_diagrams.py and commit what it writes"


def section(page: str, title: str) -> str:
    """The text below a heading of the second level."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found is not None, f"docs/{page} has no section {title!r}"
    return found[1]


@pytest.mark.parametrize("cause", list(FailureCause), ids=lambda cause: cause.value)
def test_the_failure_handbook_has_every_class(cause: FailureCause) -> None:
    text = section("guides/failures.md", cause.value)
    for what in ("**You see**", "**Why.**", "**What to do.**", "**Counts**", "**Restarts**"):
        assert what in text, f"{cause.value}: {what}"
    rule = RULES[cause]
    again = re.search(r"\*\*Restarts\*\* (yes|no)", text)
    assert again is not None and again[1] == ("yes" if rule.again else "no")
    if rule.again:
        counts = re.search(r"\*\*Counts\*\* (yes|no)", text)
        assert counts is not None and counts[1] == ("yes" if rule.counted else "no")


def test_the_failure_handbook_lists_classes_by_strength() -> None:
    text = (DOCS / "guides/failures.md").read_text(encoding="utf-8")
    listed = [FailureCause(name) for name in re.findall(r"^\| \[`([a-z-]+)`\]\(#", text, re.M)]
    assert sorted(listed, key=lambda cause: -RULES[cause].strength) == listed
    assert set(listed) == set(FailureCause)


def test_every_variable_is_described() -> None:
    named: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        named |= set(re.findall(r"\bHOWDAH_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8")))
    page = (DOCS / "reference/environment.md").read_text(encoding="utf-8")
    described = set(re.findall(r"\bHOWDAH_[A-Z_]*[A-Z]\b", page))
    of_mpi = {f"HOWDAH_MPI_{name}" for name in ("HOSTFILE", "HOSTS", "NODE", "NODES")}
    assert named - of_mpi == described


@pytest.mark.parametrize("framework", registry.BUILT_IN)
def test_every_framework_has_a_page_with_all_its_variables(framework: str) -> None:
    code = (SOURCE / "frameworks" / f"{framework}.py").read_text(encoding="utf-8")
    body = code.split('"""', 2)[2]
    variables = set(re.findall(r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|RANK|WORLD)"', body))
    page = (DOCS / "frameworks" / f"{framework}.md").read_text(encoding="utf-8")
    missing = {name for name in variables if not re.search(rf"\b{name}\b", page)}
    assert not missing
    table = (DOCS / "frameworks" / "index.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert f"| [{framework}]({framework}.md)" in table


def test_the_framework_shown_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "frameworks" / "index.md"
    (code,) = [block.text for block in blocks("python") if block.page == page]
    project = next(block.text for block in blocks("text") if "[project.entry" in block.text)
    ((name, value),) = tomllib.loads(project)["project"]["entry-points"][registry.GROUP].items()
    shown = ModuleType(value.partition(":")[0])
    monkeypatch.setitem(sys.modules, shown.__name__, shown)
    point = EntryPoint(name, value, registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point])
    exec(code, vars(shown))
    registry.get.cache_clear()
    made = gangs.job("toy", {"worker": 2, "tensorboard": 1})
    place = gangs.topology(("worker:0", 0), ("worker:1", 1), ("tensorboard:0", None))
    assert gangs.environment(made, place, "worker:1") == {"TOY_SIZE": "2", "TOY_RANK": "1"}
    assert gangs.environment(made, place, "tensorboard:0") == {}
    assert gangs.roles(made)["worker"].join is Join.NOW
    del shown.Toy.role
    assert gangs.roles(made)["worker"].join is Join.NETWORK, "as the page says"
    registry.get.cache_clear()


def test_the_page_of_the_job_directory_has_every_name() -> None:
    page = (DOCS / "reference/job-directory.md").read_text(encoding="utf-8")
    for name, value in vars(layout).items():
        if name.isupper() and isinstance(value, str):
            assert value in page, value


def test_the_page_of_exit_codes_has_every_code() -> None:
    table = section("reference/exit-codes.md", "Of howdah")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)} == set(ExitCode)


def test_the_page_of_dependencies_has_every_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    page = (DOCS / "design/dependencies.md").read_text(encoding="utf-8")
    for requirement in wanted:
        name = re.match(r"[A-Za-z0-9-]+", requirement)
        assert name is not None
        assert re.search(rf"^\| {re.escape(name[0])}[ |]", page, re.M), requirement
    listed = set(
        re.findall(r"^\| ([a-z0-9-]+)(?: \(extra| \|)", page.partition("## For dev")[0], re.M)
    )
    assert listed == {re.match(r"[A-Za-z0-9-]+", each)[0] for each in wanted}  # type: ignore[index]


def test_no_page_names_a_path_of_the_machine_it_was_written_on() -> None:
    for page in [*DOCS.rglob("*.md"), Path(ROOT / "README.md")]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/work/|/root/|/tmp/(hw|howdah-dev)", text), page


def test_the_overview_lists_the_rooms_as_imports_are_checked() -> None:
    text = (DOCS / "design/001-overview.md").read_text(encoding="utf-8")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each for each in contracts["contracts"] if each["type"] == "layers")["layers"]
    rooms = re.findall(r"^\| `(\w+)` \|", text.partition("### Where to start")[0], re.M)
    assert [f"howdah.{room}" for room in rooms] == layers


@pytest.mark.parametrize(
    "room", [path.parent.name for path in sorted(SOURCE.glob("*/__init__.py"))]
)
def test_a_room_says_where_to_start_and_names_modules_that_are_there(room: str) -> None:
    text = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text()))
    assert text, "an engineer who looks for something begins here"
    for name in re.findall(r"(?<!`)`([a-z_]+(?:\.[a-z_]+)*)`(?!`)", text):
        module = SOURCE.parent / name.replace(".", "/")
        if not name.startswith("howdah."):
            module = SOURCE / room / name.replace(".", "/")
        assert module.is_dir() or module.with_suffix(".py").is_file(), f"{room} has no {name}"


def test_the_overview_names_files_that_are_there() -> None:
    text = (DOCS / "design/001-overview.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?!tests/)([\w/]+/\w+\.py)`", text)
    assert len(named) > 30
    assert [name for name in named if not (SOURCE / name).is_file()] == []
    of_core = re.findall(
        r"`(\w+\.py)`", text.partition("| File of `core` |")[2].partition("\n\n")[0]
    )
    assert {path.name for path in SOURCE.joinpath("core").glob("*.py")} - {"__init__.py"} == {
        *of_core
    }


def test_every_test_that_a_page_names_by_its_path_is_there() -> None:
    missing: list[str] = []
    for page in PAGES:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8"))
        for path, test in named:
            file = ROOT / path
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            if not text or (test and not re.search(rf"^(async )?def {test}\(", text, re.M)):
                missing.append(f"{page.relative_to(ROOT)}: {path}::{test}")
    assert not missing


def test_each_promise_has_a_test_in_the_default_tier() -> None:
    text = (DOCS / "design/promises.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!Promise)[^-|][^|]*\|[^|]*\|([^|]*)\|([^|]*)\|$", text, re.M)
    assert len(rows) > 20
    named = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
    assert all(named.search(default) for default, _ in rows)
    for tests, nightly in ((0, False), (1, True)):
        for file, test in (found for row in rows for found in named.findall(row[tests])):
            assert is_nightly(file, test) is nightly, f"{file}::{test}"


def is_nightly(file: str, test: str) -> bool:
    """By its own mark or its file's."""
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (
        n for n in ast.walk(module) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    (function,) = (each for each in functions if each.name == test)
    marks = map(ast.unparse, function.decorator_list)
    of_file = (ast.unparse(node) for node in module.body)
    return any(mark.startswith("pytest.mark.nightly") for mark in marks) or any(
        line.startswith("pytestmark") and "mark.nightly" in line for line in of_file
    )


def test_a_page_that_promises_something_links_to_the_tests() -> None:
    """Generated pages and the security page, which names its own tests, do without."""
    text = (DOCS / "design/promises.md").read_text(encoding="utf-8")
    pages = set(re.findall(r"^\| [^|]+\| \[[^]]+\]\(([^)#]+)", text, re.M))
    without = {"../reference/cli.md", "005-security.md"}
    assert len(pages) > 12 and without < pages
    for page in pages - without:
        linked = (DOCS / "design" / page).read_text(encoding="utf-8")
        assert "promises.md" in linked, page
