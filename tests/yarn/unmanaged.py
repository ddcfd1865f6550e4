"""An application whose master is this process: YARN gives it a token and starts nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.security.credentials import AMRM_TOKEN, Credentials, Token


async def submit(configuration: Configuration, user: str, name: str) -> tuple[ApplicationId, Token]:
    """A new application and its AMRM token. It may register again, as a new attempt would:
    the ResourceManager allows that where containers are kept."""
    async with ResourceManager(configuration, user) as manager:
        new = await manager.new_application()
        context = yarn.ApplicationSubmissionContextProto(
            application_id=new.id.to_proto(),
            application_name=name,
            applicationType="HOWDAH",
            unmanaged_am=True,
            maxAppAttempts=1,
            keep_containers_across_application_attempts=True,
        )
        context.am_container_spec.SetInParent()
        context.resource.memory = 128
        context.resource.virtual_cores = 1
        await manager.submit_and_wait(context)
        while True:
            report = await manager.application_report(new.id)
            if report.HasField("am_rm_token") and report.am_rm_token.identifier:
                break
            await asyncio.sleep(0.05)
        token = report.am_rm_token
        return new.id, Token(
            token.identifier, token.password, token.kind or AMRM_TOKEN, token.service
        )


def write_credentials(token: Token, path: Path) -> None:
    """A credential file as a master finds it."""
    Credentials({"amrm": token}).write(path)
