"""Who may look at a job's page through the cluster's web proxy."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
from collections.abc import Iterable

from howdah.backends.base import PageReaders
from howdah.hadoop.configuration import Configuration
from howdah.spec.model import Acl

log = logging.getLogger(__name__)

_PROXY = "yarn.web-proxy.address"


def readers(configuration: Configuration, acl: Acl, owner: str, own_host: str) -> PageReaders:
    """The proxy's addresses, and whom the job shows itself to.

    It is the ResourceManager itself where ``yarn.web-proxy.address`` names no other. It is known by
    its address alone. So an address that programs on this node have too
    (its own, or 127.0.0.1) is not taken for it: any user's program could say it was the proxy. With
    ``yarn.acl.enable`` the owner, ``[acl] view`` and the cluster's administrators may look, as
    everywhere in YARN; without it all whom the proxy lets in. Resolves names: not for event loops.
    """
    hosts = {address.host for address in configuration.rm_addresses("webapp")}
    own_proxy = configuration.get(_PROXY)
    if own_proxy:
        hosts = {own_proxy.rpartition(":")[0] or own_proxy}
    addresses = _resolved(hosts) - _resolved({own_host, "localhost", "127.0.0.1", "::1"})
    if not addresses:
        log.info("no address can be told to be the cluster's web proxy's: it shows no page")
    return PageReaders(addresses=frozenset(addresses), users=_users(configuration, acl, owner))


def _users(configuration: Configuration, acl: Acl, owner: str) -> frozenset[str] | None:
    if not configuration.boolean("yarn.acl.enable"):
        return None
    # "users groups": the groups are not known here.
    administrators = configuration.get("yarn.admin.acl", "*").partition(" ")[0].split(",")
    users = frozenset((owner, *acl.view, *(name.strip() for name in administrators))) - {""}
    return None if "*" in users else users


def _resolved(hosts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for host in hosts:
        with contextlib.suppress(OSError):
            found |= {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    return {address for address in found if not ipaddress.ip_address(address).is_unspecified}
