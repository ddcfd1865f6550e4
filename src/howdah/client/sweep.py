"""One job file, many settings: ``howdah sweep`` and `howdah.sweep`.

Each setting is a job of its own, a trial, with every right of a job: its directory, page, retries. All
are checked before the first one starts, and each bears the sweep's tag.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from howdah.backends.base import BackendError, Step, Submission
from howdah.client.errors import BadInput, HowdahError
from howdah.client.handle import AsyncJobHandle, submitted
from howdah.client.measurements import Measurement, last
from howdah.client.submission.submit import submit
from howdah.client.sync import Background
from howdah.packing.archives import PackingError
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job
from howdah.spec.overrides import parse_key
from howdah.spec.problems import JobFileError, closest
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.journal import JournalError
from howdah.wire.status import JobView

TROUBLES = (
    HowdahError,
    BackendError,
    JobFileError,
    PackingError,
    StorageError,
    JournalError,
    OSError,
)
"""What can keep one trial from being submitted or followed, and no other."""

MANY = 1000
"""Trials of one sweep. More are a slip of the hand: a grid grows by each parameter."""
TAGGED = 4
"""Parameters that a trial's tags say."""
_WORD = re.compile(r"[!-+\--~]{1,100}")
KEYS = {field.encode_name for field in msgspec.structs.fields(Job)}
_RANGE = re.compile(r"(?P<kind>[A-Za-z]+):(?P<low>[^\s,]*)\.\.(?P<high>[^\s,]*)")
_OPENING, _CLOSING = "[{(", "]})"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a sweep."""

    number: int
    """From 1, in the order in which they begin."""
    parameters: dict[str, str]
    """What is different between the trials: key to value, as they were given."""
    job_id: str | None = None
    """None before it has been submitted, or where it could not be."""
    view: JobView | None = None
    """The job's status document, once it has ended."""
    values: dict[str, float] = {}
    """What the job's first task that reported a value reported last (`howdah.task.report`)."""
    problem: str = ""
    """Why it could not be submitted, or not be followed to its end."""


# -- which settings there are ------------------------------------------------------------------------


def settings(
    given: Sequence[str], *, draws: int | None = None, seed: int = 0, side_by_side: bool = False
) -> tuple[list[str], list[dict[str, str]]]:
    """What ``--set`` says of a sweep: settings that all trials share, and the parameters of each.

    Pure. Several values of a key are written with commas between them (``env.LR=0.1,0.01``); commas
    within quotes and brackets belong to a value. All combinations are taken, the last key changing
    fastest.

    Args:
        given: ``key=values``. A single word that is no key of a job file is a variable of the
            programs' environment: ``lr=0.1,0.01`` is ``env.lr=0.1,0.01``.
        draws: take so many combinations by chance. Values may be ranges then: ``uniform:0.1..0.9``, or
            ``log:1e-5..1e-1``, whose logarithm is uniform.
        seed: of that choice; the same seed makes the same one.
        side_by_side: take the first value of each key, then the second of each, and so on.

    Raises:
        BadInput: nothing varies, or what is given makes no sense; the text says what.
    """
    common: list[str] = []
    values: dict[str, list[str]] = {}
    ranges: dict[str, Callable[[random.Random], str]] = {}
    seen: set[str] = set()
    for each in given:
        key, equals, text = each.partition("=")
        path = parse_key(key)
        if not equals or path is None:
            raise BadInput(f"{each!r} is no setting: write key=values, such as env.LR=0.1,0.01")
        key = key.strip()
        if len(path) == 1 and path[0] not in KEYS:
            key = f"env.{key}"
        if key in seen:
            raise BadInput(f"{shown(key)} is given twice: write all its values into one --set")
        seen.add(key)
        draw = _range(key, text)
        found = _split(key, text)
        if draw is not None:
            ranges[key] = draw
        elif len(found) > 1:
            values[key] = found
        else:
            common.append(f"{key}={text}")
    for key, found in values.items():
        for value in found:
            if found.count(value) > 1:
                raise BadInput(
                    f"{shown(key)} has the value {value!r} twice: each value makes a trial of its own"
                )
    if ranges and draws is None:
        key = next(iter(ranges))
        raise BadInput(
            f"{shown(key)} is a range: say how many trials are drawn from it, such as --random 20, or "
            "list its values"
        )
    if not values and not ranges:
        raise BadInput(
            "nothing varies: give a key several values, with commas between them, such as "
            "--set env.LR=0.1,0.01"
        )
    if side_by_side:
        trials = _side_by_side(values, draws)
    elif draws is None:
        count = math.prod(map(len, values.values()))
        if count > MANY:
            raise BadInput(
                f"these are {count:,} combinations, and a sweep has at most {MANY:,} trials: give "
                "fewer values, or draw some of them by --random N"
            )
        trials = [_together(values, each) for each in itertools.product(*values.values())]
    else:
        trials = _drawn(values, ranges, draws, random.Random(seed))
    return common, trials


def shown(key: str) -> str:
    """A parameter's key as it is written: ``lr`` for ``env.lr``."""
    return key.removeprefix("env.")


def new_variables(
    load: Callable[[Sequence[str]], LoadedJob], common: Sequence[str], parameters: Iterable[str]
) -> list[str]:
    """A sentence for each variable that the job does not have by itself: a slip of the keyboard makes
    them too.

    Args:
        load: makes a job from settings, ``key=value``.
        common: settings that all trials share, as `settings` gives them.
        parameters: keys that vary.
    """
    keys = [*(each.partition("=")[0] for each in common), *parameters]
    variables = [shown(key) for key in keys if key.startswith("env.")]
    try:
        others = [each for each in common if not each.startswith("env.")]
        has = load(others).job.env if variables else {}
    except JobFileError:
        return []  # it is one with its parameters only
    sentences: list[str] = []
    for name in variables:
        if name not in has:
            near = closest(name, [*KEYS, *has])
            meant = f"; did you mean {near}?" if near else ""
            sentences.append(
                f"{name} is a new variable: the job's [env] has none of that name{meant}"
            )
    return sentences


def _split(key: str, text: str) -> list[str]:
    """The values between top-level commas.

    Raises:
        BadInput: one is empty, or a quote or bracket is not closed.
    """
    parts = [""]
    depth, quote = 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPENING or char in _CLOSING:
            depth += 1 if char in _OPENING else -1
        elif char == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += char
    if len(parts) == 1 and not quote and not depth:
        return [text]
    if quote or depth:
        raise BadInput(
            f"{shown(key)}={text}: a quote or bracket is not closed, so it cannot be told where a value "
            "ends"
        )
    if not all(part.strip() for part in parts):
        raise BadInput(f'{shown(key)}={text}: a value is empty; write "" if an empty text is meant')
    return [part.strip() for part in parts]


def _range(key: str, text: str) -> Callable[[random.Random], str] | None:
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return None
    kind = found["kind"]
    try:
        low, high = float(found["low"]), float(found["high"])
    except ValueError:
        low = high = math.nan
    if kind not in ("uniform", "log"):
        if math.isnan(low):
            return None  # a text such as file:../data
        raise BadInput(
            f"{shown(key)}: {kind!r} is no kind of range: write uniform:0.1..0.9, or log:1e-5..1e-1"
        )
    if not low < high < math.inf or low == -math.inf or (kind == "log" and low <= 0):
        positive = " above zero" if kind == "log" else ""
        raise BadInput(
            f"{shown(key)}: {text.strip()!r} is no range: write two numbers{positive}, the lower one "
            f"first, such as {kind}:0.001..0.1"
        )
    if kind == "uniform":
        return lambda chance: f"{chance.uniform(low, high):.6g}"
    return lambda chance: f"{math.exp(chance.uniform(math.log(low), math.log(high))):.6g}"


def _together(keys: Mapping[str, object], values: Sequence[str]) -> dict[str, str]:
    return dict(zip(keys, values, strict=True))


def _side_by_side(values: dict[str, list[str]], draws: int | None) -> list[dict[str, str]]:
    if draws is not None:
        raise BadInput("--zip takes the values as they are listed: it does not go with --random")
    lengths = {key: len(found) for key, found in values.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{shown(key)} has {length}" for key, length in lengths.items())
        raise BadInput(f"--zip needs the same number of values for each key: {told}")
    return [_together(values, each) for each in zip(*values.values(), strict=True)]


def _drawn(
    values: dict[str, list[str]],
    ranges: dict[str, Callable[[random.Random], str]],
    draws: int,
    chance: random.Random,
) -> list[dict[str, str]]:
    if not 0 < draws <= MANY:
        raise BadInput(f"--random {draws}: a sweep has 1 to {MANY:,} trials")
    count = math.prod(map(len, values.values()))
    if not ranges:
        # Without repetition: each of a grid's places is a number, its digits choose the values.
        return [_place(values, at) for at in chance.sample(range(count), min(draws, count))]
    return [
        {
            **_place(values, chance.randrange(count)),
            **{key: draw(chance) for key, draw in ranges.items()},
        }
        for _ in range(draws)
    ]


def _place(values: dict[str, list[str]], at: int) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for key, found in reversed(values.items()):
        at, index = divmod(at, len(found))
        chosen[key] = found[index]
    return {key: chosen[key] for key in values}


# -- running them ------------------------------------------------------------------------------------


class Sweep:
    """The trials of one sweep, some at once, in their order."""

    def __init__(
        self,
        parameters: Sequence[dict[str, str]],
        load: Callable[[Sequence[str]], LoadedJob],
        *,
        backend: str | None = None,
        at_once: int = 1,
        on_trial: Callable[[Trial], Any] = lambda trial: None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Check all trials; nothing has been started yet.

        Args:
            parameters: of each trial, as `settings` gives them.
            load: makes the job of a trial from its settings, ``key=value``.
            on_trial: called when a trial has been submitted, and when it has ended.
            note: is told what a user should know about a job that is submitted, once for all.

        Raises:
            JobFileError: a trial's job cannot be run; all problems of the first such one.
            BadInput: ``at_once`` is not positive.
        """
        if at_once < 1:
            raise BadInput(f"{at_once} trials at once: at least one has to run")
        self.tag: str = f"sweep-{secrets.token_hex(3)}"
        self.trials: list[Trial] = [
            Trial(number=number, parameters=each) for number, each in enumerate(parameters, 1)
        ]
        self._jobs = [
            _tagged(load([f"{key}={value}" for key, value in each.items()]), self.tag, each)
            for each in parameters
        ]
        self._backend = backend
        self._at_once = at_once
        self._on_trial = on_trial
        self._note = note
        self._noted: set[str] = set()

    async def run(self) -> list[Trial]:
        """Run all of them. One that fails keeps none of the others from running.

        Cancelled, it stops those that run, and waits for their ends.
        """
        waiting = iter(range(len(self.trials)))

        async def worker() -> None:
            for index in waiting:
                await self._run(index)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(self.trials))):
                group.create_task(worker())
        return self.trials

    async def _run(self, index: int) -> None:
        try:
            handle = await submitted(
                partial(self._submit, index), self._backend, partial(self._stop, index)
            )
        except TROUBLES as error:
            self._change(index, problem=str(error))
            return
        self._change(index, job_id=handle.job_id)
        try:
            await self._end(index, handle)
        except TROUBLES as error:
            self._change(index, problem=str(error))
        except asyncio.CancelledError:
            await self._stop(index, handle)
            raise

    async def _end(self, index: int, handle: AsyncJobHandle) -> None:
        view = await handle.wait()
        try:
            values = _values(await handle.metrics())
        except TROUBLES as error:
            self._change(index, view=view, problem=f"what it reported is not known: {error}")
        else:
            self._change(index, view=view, values=values)

    def _submit(self, index: int, submission: Submission) -> JobDirectory:
        return submit(
            self._jobs[index],
            backend=self._backend,
            submission=submission,
            progress=self._note_once,
        )

    def _note_once(self, step: Step) -> None:
        if step.note and step.note not in self._noted:
            self._noted.add(step.note)
            self._note(step.note)

    async def _stop(self, index: int, handle: AsyncJobHandle) -> None:
        try:
            self._change(index, job_id=handle.job_id)
            await handle.stop("its sweep was stopped")
            await self._end(index, handle)
        except TROUBLES as error:
            self._change(index, problem=str(error))

    def _change(self, index: int, **fields: Any) -> None:
        self.trials[index] = msgspec.structs.replace(self.trials[index], **fields)
        self._on_trial(self.trials[index])


def run_sweep(sweep: Sweep) -> list[Trial]:
    """`Sweep.run` for programs without asyncio. Leaving early (Ctrl-C) stops the trials that run."""
    over = threading.Event()

    async def whole() -> list[Trial]:
        try:
            return await sweep.run()
        finally:
            over.set()

    try:
        return Background.call(whole())
    except BaseException:
        over.wait()
        raise


def written(parameters: Mapping[str, Sequence[Any]]) -> list[str]:
    """Lists of values as ``--set`` has them.

    Raises:
        BadInput: a value is nothing that a job file can say on one line, or is no list of values.
    """
    for key, found in parameters.items():
        if isinstance(found, bytes | bytearray | Mapping):
            raise BadInput(
                f"{key}: {found!r} is no list of values; write {{{key!r}: [value, …]}}, with a text, number, switch or "
                "list for each trial"
            )
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise BadInput(
                f"{key}: {found!r} is one value; write a list: {{{key!r}: [{found!r}, …]}}"
            )
    return [
        f"{key}={','.join(_text(key, each) for each in found)}" for key, found in parameters.items()
    ]


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str | int | float | list | tuple):
        raise BadInput(f"{key}: {value!r} is no text, number, switch or list")
    if isinstance(value, str) and not set(value) & set(f"{_OPENING}{_CLOSING},\"'\n"):
        return value
    # TOML's texts, numbers, switches and lists are JSON's.
    return json.dumps(value)


def _tagged(loaded: LoadedJob, tag: str, parameters: Mapping[str, str]) -> LoadedJob:
    """The job with the sweep's tag and its parameters', so that lists tell the trials apart."""
    said = [f"{shown(key)}={value}" for key, value in parameters.items()]
    # A tag is one word, and clusters take few and short ones.
    words = [each for each in said if _WORD.fullmatch(each)][:TAGGED]
    tags = dict.fromkeys((*loaded.job.tags, tag, *words))
    return msgspec.structs.replace(
        loaded, job=msgspec.structs.replace(loaded.job, tags=tuple(tags))
    )


def _place_of(task: str) -> tuple[str, int]:
    role, _, index = task.rpartition(":")
    return role, int(index)


def _values(found: Sequence[Measurement]) -> dict[str, float]:
    values: dict[str, float] = {}
    for each in sorted(last(found), key=lambda each: _place_of(each.task)):
        values = {**each.values, **values}
    return values
