"""A command beside a task's program, from the client's side."""

from __future__ import annotations

import asyncio
from typing import Any

from howdah.client.errors import BadInput, Refused, Unreachable
from howdah.client.following.remote import ANSWER_S, Remote
from howdah.storage.jobdir import JobDirectory
from howdah.wire.channel import Channel
from howdah.wire.messages import EXEC_PROTOCOL, Answer, OpenExec


async def open_exec(directory: JobDirectory, wanted: OpenExec) -> Channel[Any]:
    """Have that command started; the connection is the command's from then on.

    Raises:
        BadInput: the job has ended.
        Refused: it has not begun, or it will not be done; the text says why.
        Unreachable: the coordinator does not answer.
    """
    remote = Remote(directory)
    job_id = directory.job_id
    if await remote.not_begun():
        raise Refused(f"{job_id} has not begun: {wanted.task} does not run yet")
    try:
        async with asyncio.timeout(ANSWER_S):
            channel = await remote.open()
            if channel is None:
                raise BadInput(f"{job_id} has ended: nothing can be run beside {wanted.task}")
            try:
                if remote.protocol < EXEC_PROTOCOL:
                    raise Refused(
                        f"the coordinator of {job_id} is of an older Howdah, which runs no commands; "
                        "submit the job anew with this one"
                    )
                channel.send(wanted)
                answer = await channel.receive()
                if not isinstance(answer, Answer):
                    raise ConnectionError(channel.problem or "the coordinator gave no answer")
                if answer.problem:
                    raise Refused(answer.problem)
            except BaseException:
                channel.abort()
                raise
    except (OSError, TimeoutError) as error:
        why = f": {error}" if str(error) else f" within {ANSWER_S:g} s"
        raise Unreachable(f"the coordinator of {job_id} did not answer{why}; try again") from None
    return channel
