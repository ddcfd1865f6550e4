"""Who may look at a job's page through the cluster's web proxy."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Set

from howdah.backends.base import BackendError, PageReaders
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import HadoopError
from howdah.hadoop.namenode import UserMappings
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.login import Login
from howdah.spec.model import Acl

log: logging.Logger = logging.getLogger(__name__)

GROUPS_S = 300.0
"""How long a user's groups are taken to be the same, as by Hadoop (``hadoop.security.groups.cache.secs``)."""
RESOLVED_S = 300.0
"""How long the proxy is taken to have the same addresses."""
ANSWER_S = 10.0
_PROXY = "yarn.web-proxy.address"
_MOST_USERS = 1000


class Groups:
    """Users' groups, of which the NameNode knows: the cluster's own word, where nodes may have others."""

    def __init__(
        self, configuration: Configuration, url: str | None, login: Callable[[], Login]
    ) -> None:
        self._configuration = configuration
        self._url = url
        self._login = login
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    async def __call__(self, user: str) -> frozenset[str]:
        """See `howdah.backends.base.PageReaders.groups_of`."""
        now = time.monotonic()
        until, groups = self._known.get(user, (0.0, frozenset[str]()))
        if now < until:
            return groups
        policy = RetryPolicy(max_wait_s=ANSWER_S, try_timeout_s=ANSWER_S)
        try:
            async with UserMappings(
                self._configuration, self._login(), url=self._url, retry=policy
            ) as mappings:
                groups = frozenset(await mappings.groups(user))
        except HadoopError as error:
            raise BackendError(f"the NameNode does not tell the user's groups: {error}") from error
        if len(self._known) >= _MOST_USERS:
            self._known.clear()
        self._known[user] = now + GROUPS_S, groups
        return groups


def readers(
    configuration: Configuration,
    acl: Acl,
    owner: str,
    own_host: str,
    groups_of: Callable[[str], Awaitable[frozenset[str]]],
) -> PageReaders:
    """The proxy's addresses, and whom the job shows itself to.

    It is the ResourceManager itself where ``yarn.web-proxy.address`` names no other. It is known by
    its address alone. So an address that programs on this node have too
    (its own, or 127.0.0.1) is not taken for it: any user's program could say it was the proxy. With
    ``yarn.acl.enable`` the owner, whom ``[acl]`` lets see and the cluster's administrators may look, as
    everywhere in YARN; without it all whom the proxy lets in. Resolves names: not for event loops.
    """
    hosts = {address.host for address in configuration.rm_addresses("webapp")}
    own_proxy = configuration.get(_PROXY)
    if own_proxy:
        hosts = {own_proxy.rpartition(":")[0] or own_proxy}
    addresses = ProxyAddresses(hosts, {own_host, "localhost", "127.0.0.1", "::1"})
    if not addresses:
        log.info("no address can be told to be the cluster's web proxy's: it shows no page")
    users, groups = _may_look(configuration, acl, owner)
    return PageReaders(addresses=addresses, users=users, groups=groups, groups_of=groups_of)


def _may_look(
    configuration: Configuration, acl: Acl, owner: str
) -> tuple[frozenset[str] | None, frozenset[str]]:
    """Users, None for all, and groups."""
    if not configuration.boolean("yarn.acl.enable"):
        return None, frozenset()
    administrators, their_groups = configuration.access_list("yarn.admin.acl")
    users = {owner, *acl.view, *administrators}
    groups = {*acl.view_groups, *their_groups}
    return (None if "*" in users else frozenset(users)), frozenset(groups)


class ProxyAddresses(Set[str]):
    """What the proxy's hosts resolve to, but for addresses of this node.

    Looked at `RESOLVED_S` later, they are resolved again, and asked meanwhile it answers as before: a
    proxy may move. The last answer for a host stays while none comes.
    """

    def __init__(self, hosts: Set[str], own: Set[str]) -> None:
        self._hosts, self._own = hosts, own
        self._answers: dict[str, set[str]] = {}
        self.resolved: threading.Event = threading.Event()
        """Not set while they are resolved."""
        self._resolve()

    def __contains__(self, address: object) -> bool:
        if self.resolved.is_set() and time.monotonic() >= self._until:
            self.resolved.clear()
            threading.Thread(target=self._resolve, name="resolve proxy", daemon=True).start()
        return address in self._addresses

    def __iter__(self) -> Iterator[str]:
        return iter(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)

    def _resolve(self) -> None:
        for host in self._hosts | self._own:
            try:
                found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
            except OSError as error:
                log.warning("%s, perhaps of the web proxy, is not resolved: %s", host, error)
                continue
            self._answers[host] = {
                each for each in found if not ipaddress.ip_address(each).is_unspecified
            }

        def of(names: Set[str]) -> set[str]:
            return {each for name in names for each in self._answers.get(name, ())}

        self._addresses = frozenset(of(self._hosts) - of(self._own))
        self._until = time.monotonic() + RESOLVED_S
        self.resolved.set()
