"""Whom the job's page on YARN is shown to (through YARN's proxy: tests/browser/test_through_yarns_proxy.py)."""

from __future__ import annotations

import socket
from unittest.mock import AsyncMock

import pytest

from howdah.backends.base import PageReaders
from howdah.backends.yarn.master import view_acls
from howdah.backends.yarn.master.view_acls import ProxyAddresses, readers
from howdah.hadoop.configuration import Configuration
from howdah.spec.model import Acl


def shown_to(site: dict[str, str], acl: Acl = Acl(), host: str = "10.0.0.9") -> PageReaders:  # noqa: B008
    return readers(Configuration(site), acl, "ann", host, AsyncMock())


def test_the_proxys_address_is_trusted_unless_programs_here_have_it_too() -> None:
    site = {"yarn.resourcemanager.webapp.address": "10.0.0.1:8088"}
    assert shown_to(site).addresses == {"10.0.0.1"}
    assert shown_to(site, host="10.0.0.1").addresses == frozenset()
    own = {**site, "yarn.web-proxy.address": "10.0.0.2:9046"}  # the RM is none then
    assert shown_to(own, host="10.0.0.1").addresses == {"10.0.0.2"}
    local = {"yarn.resourcemanager.webapp.address": "127.0.0.1:8088"}
    assert shown_to(local).addresses == frozenset()


def test_a_proxy_that_moves_is_known_at_its_new_address_and_a_silent_dns_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"proxy.example": "10.0.0.1", "this.example": "10.0.0.9"}

    def resolve(host: str, port: None) -> list[tuple[object, ...]]:
        if host.endswith("example") and host not in names:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(0, 0, 0, "", (names.get(host, "127.0.0.1"), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(view_acls, "RESOLVED_S", 0.0)
    site = {"yarn.web-proxy.address": "proxy.example:9046"}
    addresses = shown_to(site, host="this.example").addresses
    assert isinstance(addresses, ProxyAddresses)

    def seen_after_a_look() -> set[str]:
        assert "10.0.0.3" not in addresses
        assert addresses.resolved.wait(10)
        return set(addresses)

    del names["proxy.example"]
    assert seen_after_a_look() == {"10.0.0.1"}
    names["proxy.example"] = "10.0.0.2"
    assert seen_after_a_look() == {"10.0.0.2"}
    names["proxy.example"] = names["this.example"]
    assert seen_after_a_look() == set()


def test_where_yarn_heeds_access_lists_so_does_the_page() -> None:
    site = {"yarn.acl.enable": "true", "yarn.admin.acl": "root,hal ops, sre"}
    acl = Acl(view=("bob",), view_groups=("team",))
    shown = shown_to(site, acl)
    assert shown.users == {"ann", "bob", "root", "hal"}
    assert shown.groups == {"team", "ops", "sre"}
    assert shown_to({**site, "yarn.admin.acl": " ops"}, acl).users == {"ann", "bob"}
    assert shown_to(site, Acl(view=("*",))).users is None
    assert shown_to({"yarn.acl.enable": "false"}, acl).users is None
