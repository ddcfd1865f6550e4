"""``howdah portal``: the jobs of all users, for a team."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from howdah.cli.arguments import json_option
from howdah.cli.commands.pages import show
from howdah.cli.commands.removal import size_of, span_of

if TYPE_CHECKING:
    from howdah.coordinator.web.server import WebServer
    from howdah.portal.access_control import Team
    from howdah.portal.copies import ClusterStore, FolderStore, UserFolders
    from howdah.portal.pruning import PruneSchedule
    from howdah.portal.task_pages.page_origin import PageOrigin

_HEADER = re.compile(r"[A-Za-z0-9-]+")
_ON_HDFS = ("hdfs://", "viewfs://")


def _time(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        span_of(text)
    return text


def _size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        size_of(text)
    return text


@click.command("portal")
@click.option(
    "--store",
    required=True,
    metavar="URL",
    help="Folder (or hdfs:// URL) with a folder of job directories for each user: `store` of "
    "their job files or of the site file.",
)
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="ADDR:PORT",
    help="Address at which the reverse proxy reaches it.",
)
@click.option(
    "--prefix",
    default="",
    metavar="/PATH",
    help="Beginning of all paths, if the reverse proxy does not remove it.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    required=True,
    multiple=True,
    metavar="ADDR",
    help="Address or network (10.0.0.0/24) of the reverse proxy; repeatable. Other requests "
    "are refused.",
)
@click.option(
    "--user-header",
    default="X-Forwarded-User",
    show_default=True,
    metavar="NAME",
    help="Header in which the proxy names the user.",
)
@click.option(
    "--group-header",
    metavar="NAME",
    help="Header in which the proxy names the user's groups, separated by commas.",
)
@click.option(
    "--admin",
    "admins",
    multiple=True,
    metavar="USER",
    help="User who may see and stop every job; repeatable.",
)
@click.option(
    "--pages-url",
    metavar="URL",
    help="Show pages of jobs' tasks (TensorBoard, notebooks), each job's at a host name of its own: "
    "https://pages.example stands for https://JOB.pages.example. The reverse proxy has to lead all "
    "of these names to --pages-port.",
)
@click.option(
    "--pages-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port, at the address of --listen, at which the reverse proxy reaches these pages.",
)
@click.option(
    "--prune-older-than",
    callback=_time,
    metavar="TIME",
    help="Each day, remove jobs that ended longer ago than this, such as 90d, as 'howdah "
    "prune' of their owners does.",
)
@click.option(
    "--prune-keep-size",
    callback=_size,
    metavar="SIZE",
    help="Each day, remove the oldest jobs of each user whose jobs need more room than this, such as 200g. "
    "With --prune-older-than, only jobs that are old enough as well.",
)
@json_option
def command(
    store: str,
    listen: str,
    prefix: str,
    proxies: tuple[str, ...],
    user_header: str,
    group_header: str | None,
    admins: tuple[str, ...],
    pages_url: str | None,
    pages_port: int | None,
    prune_older_than: str | None,
    prune_keep_size: str | None,
    as_json: bool,
) -> int:
    """Show the jobs of all users below a store to a team, behind a reverse proxy, until Ctrl-C.

    The proxy signs people in and says in a header who they are. All see and stop the jobs whose
    [acl] allows it. Run this as an account that can read all job directories: root for a folder, or
    a member of the superuser's group for HDFS.

    With --json: one JSON object, {"address": …, "folder": …}, once it listens; with --pages-url,
    "pages_port" as well.
    """
    from howdah.client.errors import ExitCode

    team = _team(proxies, user_header, group_header, admins)
    if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+/?", prefix):
        raise click.UsageError(f"--prefix {prefix!r} is no path; write it as /howdah")
    where = _address(listen)
    pages = _pages(pages_url, pages_port)
    pruning, found = None, store_of(store)
    if prune_older_than is not None or prune_keep_size is not None:
        pruning = _pruning(found, prune_older_than, prune_keep_size)
    asyncio.run(_serve(found, where, prefix.rstrip("/"), team, pages, pruning, as_json=as_json))
    return ExitCode.STOPPED


def _pruning(
    found: FolderStore | ClusterStore, older_than: str | None, keep_size: str | None
) -> PruneSchedule:
    from howdah.portal.copies import FolderStore
    from howdah.portal.pruning import CannotPrune, LocalOwners, PruneSchedule, RemoteOwners

    option = "--prune-keep-size" if older_than is None else "--prune-older-than"
    try:
        local = isinstance(found, FolderStore)
        owners = LocalOwners(Path(found.place)) if local else RemoteOwners(found)
        return PruneSchedule(owners, older_than, keep_size)
    except (CannotPrune, OSError) as error:
        raise click.UsageError(f"{option}: {error}") from None


def _pages(url: str | None, port: int | None) -> tuple[PageOrigin, int] | None:
    from howdah.portal.task_pages.page_origin import PageOrigin

    if url is None and port is None:
        return None
    if url is None or port is None:
        raise click.UsageError(
            "--pages-url and --pages-port go together: where browsers find pages of jobs' tasks, and "
            "where the reverse proxy does"
        )
    try:
        return PageOrigin(url), port
    except ValueError as error:
        raise click.UsageError(f"--pages-url: {error}") from None


def store_of(store: str) -> FolderStore | ClusterStore:
    """The jobs of all users below that folder or URL.

    Raises:
        click.UsageError: no jobs can be there.
    """
    from howdah.backends import registry
    from howdah.portal.copies import FolderStore

    if store.startswith(_ON_HDFS):
        return registry.cluster_store(store)
    if "://" in store.removeprefix("file://"):
        raise click.UsageError(
            f"--store {store!r}: job directories are in folders and on HDFS, nowhere else"
        )
    folder = Path(store.removeprefix("file://")).expanduser().absolute()
    if not folder.is_dir():
        raise click.UsageError(f"--store {store!r} is no folder")
    return FolderStore(folder)


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = ""
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(
            f"--listen {listen!r} is no address with a port; write it as 127.0.0.1:8080 or [::1]:8080"
        )
    return host, int(port)


def _team(
    proxies: tuple[str, ...],
    user_header: str,
    group_header: str | None,
    admins: tuple[str, ...],
) -> Team:
    from howdah.portal.access_control import Team

    for option, name in (("--user-header", user_header), ("--group-header", group_header)):
        if name is not None and not _HEADER.fullmatch(name):
            raise click.UsageError(f"{option} {name!r} is no name of a header")
    networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    for each in proxies:
        try:
            networks.append(ipaddress.ip_network(each))
        except ValueError as error:
            raise click.UsageError(f"--trusted-proxy {each!r} is no address: {error}") from None
    return Team(
        user_header=user_header,
        group_header=group_header,
        proxies=tuple(networks),
        admins=frozenset(admins),
    )


async def _serve(
    store: UserFolders,
    address: tuple[str, int],
    prefix: str,
    team: Team,
    pages: tuple[PageOrigin, int] | None,
    pruning: PruneSchedule | None,
    *,
    as_json: bool,
) -> None:
    from howdah.portal.app import create_portal
    from howdah.portal.copies import Copies, InUse
    from howdah.portal.jobs import Jobs, list_folder
    from howdah.wire.addresses import listening

    host, port = address
    folder = list_folder()
    try:
        copies = Copies(store, folder)
    except InUse as error:
        raise click.UsageError(str(error)) from None
    option = f"--listen {host}:{port}"
    try:
        sock = listening(host, (port, port) if port else None)
        option, beside = f"--pages-port {pages and pages[1]}", None
        if pages is not None:
            beside = listening(host, (pages[1], pages[1]) if pages[1] else None)
    except OSError as error:
        copies.close()
        raise click.UsageError(
            f"{option} can't be used ({error.strerror or error}); give another one"
        ) from None
    app = create_portal(
        Jobs(copies.base, folder, copies),
        secrets.token_urlsafe(32),
        team=team,
        prefix=prefix,
        pruning=pruning,
        origin=pages and pages[0],
    )

    def url(server: WebServer) -> str:
        shown = f"[{server.host}]" if ":" in server.host else server.host
        return f"http://{shown}:{server.port}{prefix}/"

    told = f"shows the jobs in {store.place} to whom the proxy names"
    if pages is not None and beside is not None:
        told += f", pages of their tasks at {pages[0].url} (port {beside.getsockname()[1]})"
    if any(network.is_loopback for network in team.proxies):
        told = (
            "note: a proxy on this machine is trusted, so every program of this machine can say who "
            f"reads; let nobody else sign in here\n{told}"
        )
    removing = None if pruning is None else asyncio.ensure_future(pruning.run())
    try:
        await show(app, sock, url, folder=store.place, told=told, as_json=as_json, pages=beside)
    finally:
        if removing is not None:
            removing.cancel()
            await asyncio.wait({removing})
        copies.close()
