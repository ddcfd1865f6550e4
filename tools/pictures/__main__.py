"""Make the documentation's pictures from real jobs on this machine: ``make docs-pictures``.

    python tools/pictures [pages] [recording]

`pages`: Chromium's pictures of `howdah ui` and of its jobs' pages, light and dark. `recording`: what a terminal
shows of a job one of whose workers is killed, as an SVG that CSS alone moves. All go to docs/images.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.browser.conftest import ARGUMENTS, find_chromium  # noqa: E402
from tools.pictures.terminal import Recorder, draw  # noqa: E402

IMAGES = ROOT / "docs/images"
LARGEST = 100_000
"""Bytes of a picture."""
WAIT_S = 400.0
HOWDAH = (sys.executable, "-m", "howdah")
TRAIN = Path(__file__).with_name("train.py")
JOB = """\
name = "{name}"
framework = "pytorch"
command = "python train.py {arguments}"
tags = {tags}
attempts = {attempts}

[roles.worker]
instances = 2
memory = "1g"

[checkpoint]
"""


def job(folder: Path, name: str, *arguments: str, attempts: int = 2, tags: str = "[]") -> Path:
    """A job file in a folder of its own."""
    source = folder / f"{name}{len(list(folder.iterdir()))}"
    source.mkdir()
    shutil.copy(TRAIN, source / "train.py")
    text = JOB.format(name=name, arguments=" ".join(arguments), tags=tags, attempts=attempts)
    (source / "job.toml").write_text(text)
    return source / "job.toml"


def howdah(*arguments: str) -> str:
    """Run a command to its end; what it printed."""
    return subprocess.run([*HOWDAH, *arguments], capture_output=True, text=True).stdout


def status(name: str) -> dict:
    """The status document of the newest job of that name."""
    try:
        return json.loads(howdah("status", "--json", name))
    except ValueError:
        return {}


def until(condition, what: str):
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(2)
    sys.exit(f"pictures: did not happen within {WAIT_S:g} s: {what}")


def kill(name: str, task: int) -> int:
    """Kill a task's program; the process id."""
    pid = status(name)["tasks"][task]["pids"][0]
    os.kill(pid, signal.SIGKILL)
    return pid


@contextlib.contextmanager
def own_home() -> Iterator[Path]:
    """A home with no jobs but the pictures', of a user called ada."""
    with tempfile.TemporaryDirectory(prefix="howdah-pictures-") as folder:
        home = Path(folder, "ada")
        home.mkdir()
        mine = {"HOME": str(home), "LOGNAME": "ada", "USER": "ada", "HOWDAH_SITE": ""}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ.update(mine, PATH=path)
        os.environ.pop("HOWDAH_HOME", None)
        yield home


# -- pages -----------------------------------------------------------------------------------------


def pages(home: Path) -> None:
    """The list, a running job with a restart behind it, a failed one, and runs beside each other."""
    files = home / "files"
    files.mkdir()
    ended = [
        job(files, "digits", "--rate", "0.5", tags='["sweep"]'),
        job(files, "digits", "--rate", "0.05", tags='["sweep"]'),
        job(files, "digits", "--rate", "0.005", tags='["sweep"]'),
        job(files, "letters", "--bad-label", "5", attempts=1, tags='["nightly"]'),
    ]
    for file in ended:
        howdah("run", str(file))
    long = job(
        files, "words", "--epochs", "400", "--rate", "0.002", "--pause", "0.25", "--save", "10"
    )
    howdah("submit", str(long))
    try:
        until(lambda: steps("words") >= 42, "some epochs")
        kill("words", 1)
        until(lambda: steps("words") >= 100, "more epochs, after the restart")
        with ui() as link, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
            context = browser.new_context(
                viewport={"width": 1200, "height": 760}, reduced_motion="reduce"
            )
            context.set_default_timeout(20_000)
            page = context.new_page()
            page.goto(link)
            page.wait_for_selector("#jobs tbody tr")
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                shoot_all(page, link.partition("login")[0], theme)
            browser.close()
    finally:
        howdah("stop", "--now", "words")


def steps(name: str) -> float:
    return min((task.get("step") or 0 for task in status(name).get("tasks", [])), default=0)


@contextlib.contextmanager
def ui() -> Iterator[str]:
    """The portal; the link that opens it once."""
    process = subprocess.Popen([*HOWDAH, "ui"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


_RENAMED = """home => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (text.data.includes(home)) text.data = text.data.replaceAll(home, "/home/ada");
  }
}"""
"""The temporary home is called as a home is."""


def shoot_all(page: Page, top: str, theme: str) -> None:
    page.goto(top)
    expect(page.locator("#jobs tbody tr")).to_have_count(5, timeout=20_000)
    save(page, f"jobs-{theme}", "body")
    rows = page.locator("#jobs tbody tr")
    links = {
        name: rows.filter(has_text=name).first.locator(".name > a").first.get_attribute("href")
        for name in ("words", "letters")
    }
    for box in rows.filter(has_text="digits").locator("input[type=checkbox]").all():
        box.check()
    page.get_by_role("button", name="Compare the chosen jobs").click()
    page.wait_for_selector("#charts canvas")
    save(page, f"compare-{theme}", "body", highest=1440, largest=42_600)

    page.goto(top + str(links["letters"]))
    page.wait_for_selector("#failures:not([hidden])")
    page.wait_for_selector("#log-lines > *")
    save(page, f"job-failed-{theme}", top_of="#log")

    page.goto(top + str(links["words"]))
    page.wait_for_selector("#charts canvas")
    page.wait_for_selector("#log-lines > *")
    page.wait_for_timeout(1500)  # what has been measured is drawn
    save(page, f"job-running-{theme}", top_of="#metrics")
    save(page, f"metrics-{theme}", "#metrics")
    save(page, f"log-{theme}", "#log")


def save(
    page: Page,
    name: str,
    area: str = "",
    *,
    top_of: str = "",
    highest: int = 1000,
    largest: int = LARGEST,
) -> None:
    """A picture of an element, or of all above the end of the panel before another.

    ``highest``: pixels of the whole page that are shown; ``largest``: bytes of the picture.
    """
    if area == "body":
        height = page.evaluate("document.querySelector('footer').getBoundingClientRect().bottom")
        box = {"x": 0, "y": 0, "width": 1200, "height": min(height + 10, highest)}
    elif area:
        found = page.locator(area).bounding_box()
        assert found is not None
        y = found["y"] + page.evaluate("scrollY")
        box = {"x": found["x"] - 12, "y": y - 12, "width": found["width"] + 24,
               "height": found["height"] + 24}  # fmt: skip
    else:
        found = page.locator(top_of).bounding_box()
        assert found is not None
        bottom = found["y"] + page.evaluate("scrollY") - 8
        box = {"x": 0, "y": 0, "width": 1200, "height": bottom}
    page.evaluate(_RENAMED, os.environ["HOME"])
    session = page.context.new_cdp_session(page)
    for quality in (85, 70, 60, 50, 30):
        taken = session.send(
            "Page.captureScreenshot",
            {
                "format": "webp",
                "quality": quality,
                "clip": {**box, "scale": 1},
                "captureBeyondViewport": True,
            },
        )
        picture = base64.b64decode(taken["data"])
        if len(picture) < largest:
            break
    else:
        sys.exit(f"pictures: {name} has {len(picture):,} bytes at the worst quality")
    write(f"{name}.webp", picture)


# -- recording -------------------------------------------------------------------------------------


def recording(home: Path) -> None:
    """A job of two workers, of which one is killed."""
    files = home / "files"
    files.mkdir(exist_ok=True)
    file = job(files, "digits", "--epochs", "14", "--rate", "0.002", "--pause", "0.6")
    recorder = Recorder([*HOWDAH, "run", file.name], cwd=file.parent)
    recorder.say(f"$ howdah run {file.name}", "prompt")
    recorder.start()
    until(lambda: recorder.has("epoch 6"), "the sixth epoch")
    pid = kill("digits", 1)
    recorder.say(f"$ kill -9 {pid}        # worker:1, in another terminal", "aside")
    recorder.wait()
    recorder.replace(str(home), "/home/ada")
    picture = draw(recorder.lines).encode()
    if len(picture) >= LARGEST:
        sys.exit(f"pictures: the recording has {len(picture):,} bytes")
    write("recording.svg", picture)


def write(name: str, picture: bytes) -> None:
    (IMAGES / name).write_bytes(picture)
    print(f"docs/images/{name}  {len(picture):,} bytes")


def main(wanted: list[str]) -> None:
    for each, make in (("recording", recording), ("pages", pages)):
        if not wanted or each in wanted:
            with own_home() as home:
                make(home)


if __name__ == "__main__":
    main(sys.argv[1:])
