"""What people who may only look at a job are not shown: values of ``[env]``, the job's token, and the
secrets of its pages, wherever they turn up in an answer.

The gate masks every answer to a reader, so that a route added later is masked too; logs, of which a
reader may ask any part, are masked where they are read. A masked text keeps its length, so offsets
stay what they are.

Not guaranteed: values shorter than `SHORTEST` characters, numbers of fewer than `DIGITS` digits and
words that Howdah's own answers are made of are hidden in the job file only; a program may print its
secrets in another form; pages of the job's own programs are passed on as they are.
"""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from starlette.types import Message, Send

from howdah.coordinator.web.documents import Changes, LogMatches, LogPage, SeriesPage, Stage
from howdah.coordinator.web.page_texts import texts
from howdah.core.messages import Level, Task
from howdah.core.plan import Plan
from howdah.core.state import JobPhase, Outcome, TaskState
from howdah.spec.model import Job
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogUpdate, Sample, WebAddress
from howdah.wire.status import JobView

HIDDEN = "(not shown)"
SHORTEST = 6
DIGITS = 12


class SecretHolder(Protocol):
    """What has secrets: a `howdah.coordinator.clients.live_job.LiveJob`."""

    token: str

    def job(self) -> Job:
        """The job file."""
        ...

    def web_targets(self) -> dict[str, WebAddress]:
        """Announced pages."""
        ...


class Mask:
    """Hides texts in bytes."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        self.longest: int = max(map(len, forms), default=0)
        self._beginnings = {form[:end] for form in forms for end in range(4, len(form))}
        pattern = b"|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
        self._pattern = re.compile(pattern) if forms else None

    def __call__(self, data: bytes) -> bytes:
        """The same, of the same length, with asterisks for what is hidden."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda found: b"*" * len(found[0]), data)

    def whole(self, data: bytes) -> int:
        """How many bytes can be judged already: the rest may be the beginning of what is hidden."""
        for length in range(min(self.longest - 1, len(data)), 3, -1):
            if data[-length:] in self._beginnings:
                return len(data) - length
        return len(data)


def _forms(secret: str) -> set[bytes]:
    """As it may stand in JSON, HTML, an address, or by itself."""
    texts = {
        secret,
        json.dumps(secret)[1:-1],
        msgspec.json.encode(secret).decode()[1:-1],
        html.escape(secret),
        quote(secret, safe=""),
    }
    return {text.encode("utf-8", "surrogateescape") for text in texts}


def mask_of(source: SecretHolder) -> Mask:
    pages = {page.secret for page in source.web_targets().values() if page.secret}
    values = frozenset(value for value in _values(source.job()) if _is_telling(value))
    return _mask(values | pages | {source.token})


@functools.lru_cache(maxsize=8)
def _mask(secrets: frozenset[str]) -> Mask:
    return Mask(secrets)


def _tables(job: Job) -> list[Any]:
    return [job, *job.roles.values(), *([job.preprocess] if job.preprocess is not None else [])]


def _values(job: Job) -> set[str]:
    """And each line of those that have several: many answers are lists of lines."""
    values = {str(value) for table in _tables(job) for value in table.env.values()}
    return values | {line.strip() for value in values for line in value.splitlines()}


def _is_telling(value: str) -> bool:
    """Whether it is so much its own that it can be looked for."""
    if len(value) < (DIGITS if value.isdecimal() else SHORTEST):
        return False
    return value not in _vocabulary()


@functools.cache
def _vocabulary() -> frozenset[str]:
    """Words of Howdah's own answers: without them the page could not be read."""
    page = texts()["job.html"]
    schemas = msgspec.json.schema_components(
        (JobView, Changes, LogPage, LogMatches, SeriesPage, Sample, Plan, Job)
    )
    states = [
        state.value for kind in (JobPhase, TaskState, Outcome, Level, Stage) for state in kind
    ]
    words = re.findall(r"[A-Za-z_-]+", f"{page} {json.dumps(schemas)} {' '.join(states)}")
    return frozenset(word for word in words if word.isalpha() or word.islower())


def without_values(job: Job) -> Job:
    """The job file with the names of its environment variables alone."""

    def hidden(table: Any) -> Any:
        return msgspec.structs.replace(table, env=dict.fromkeys(table.env, HIDDEN))

    roles = {name: hidden(role) for name, role in job.roles.items()}
    preprocess = None if job.preprocess is None else hidden(job.preprocess)
    return msgspec.structs.replace(hidden(job), roles=roles, preprocess=preprocess)


def masked(send: Send, mask: Mask) -> Send:
    """``send`` that hides in the bodies of answers."""
    rest = b""

    async def sending(message: Message) -> None:
        nonlocal rest
        if message["type"] == "http.response.body":
            data = mask(rest + message.get("body", b""))
            end = mask.whole(data) if message.get("more_body", False) else len(data)
            rest = data[end:]
            message = {**message, "body": data[:end]}
        await send(message)

    return sending


class ReadersJob:
    """A job as readers are given it: its logs and its job file masked, the rest as it is."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def job(self) -> Job:
        """The job file without values of environment variables."""
        return without_values(self._source.job())

    async def read_log(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart:
        """As `LiveJob.read_log`: with what stands before and behind, to know what it is part of."""
        mask = mask_of(self._source)
        part = await self._source.read_log(task, attempt, offset, limit)
        begin, size = max(0, part.offset - mask.longest), len(part.data)
        wide = await self._source.read_log(
            task, attempt, begin, part.offset - begin + size + mask.longest
        )
        start = part.offset - wide.offset
        data = mask(wide.data)[start : start + size] if start >= 0 else b""
        return LogPart(
            part.offset, data if len(data) == size else mask(part.data), part.next_offset
        )

    async def follow_log(
        self, task: Task, attempt: int | None, offset: int
    ) -> AsyncIterator[LogUpdate]:
        """As `LiveJob.follow_log`; the beginning of what may be a secret waits for what follows it."""
        mask = mask_of(self._source)
        held: LogUpdate | None = None
        async for update in self._source.follow_log(task, attempt, offset):
            if held is not None:
                if (held.attempt, held.offset + len(held.data)) == (update.attempt, update.offset):
                    data = held.data + update.data
                    update = msgspec.structs.replace(update, offset=held.offset, data=data)
                else:
                    yield held
            data = mask(update.data)
            end = mask.whole(data)
            held = _from(update, data, end) if end < len(data) else None
            if end:
                yield msgspec.structs.replace(update, data=data[:end])
        if held is not None:
            yield held


def _from(update: LogUpdate, data: bytes, place: int) -> LogUpdate:
    return msgspec.structs.replace(update, offset=update.offset + place, data=data[place:])
