"""Delegation tokens of other services (Hive, HBase), from packages that know how to get them.

A package adds a provider with an entry point in the group ``howdah.token_providers`` that names a function
of a `howdah.hadoop.security.providers.TokenRequest`. It returns the tokens by alias, or None where that cluster needs
none; it raises what it likes, and the text is shown. It runs on the submitter's machine, in a thread, for jobs that
name it under ``[hadoop.tokens]``, and for no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from howdah.backends.base import BackendError
from howdah.backends.findings import DoctorFinding, fine, problem
from howdah.backends.yarn.access import Access
from howdah.backends.yarn.client.cluster import listed
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.providers import TokenRequest
from howdah.plugins import entry_points
from howdah.spec.problems import closest

GROUP = "howdah.token_providers"

Provider = Callable[[TokenRequest], Mapping[str, Token] | None]


def find(wanted: Iterable[str]) -> dict[str, Provider]:
    """The providers of those names.

    Raises:
        BackendError: one is not installed, or can't be loaded.
    """
    names = [*wanted]
    if not names:
        return {}
    points = {point.name: point for point in entry_points(group=GROUP)}
    found: dict[str, Provider] = {}
    for name in names:
        if name not in points:
            near = closest(name, points)
            hint = f" Did you mean {near!r}?" if near else ""
            raise BackendError(
                f"hadoop.tokens.{name}: no installed package gets tokens of {name!r}; there is: "
                f"{listed(sorted(points)) or 'none'}.{hint} Install one that has an entry point of that name in "
                f"the group {GROUP}, beside Howdah on the machine that submits"
            )
        try:
            found[name] = points[name].load()
        except Exception as error:  # a plug-in may fail in any way
            raise BackendError(
                f"hadoop.tokens.{name}: {points[name].value} cannot be loaded: {_text(error)}"
            ) from error
    return found


def collect(
    providers: Mapping[str, Provider],
    settings: Mapping[str, Mapping[str, str]],
    access: Access,
    renewer: str,
) -> dict[str, Token]:
    """The tokens of all of them, by alias. ``settings`` are the job's for each, by name.

    Raises:
        BackendError: one of them gets none.
    """
    found: dict[str, Token] = {}
    for name, provider in providers.items():
        request = TokenRequest(access.login, access.configuration, renewer, settings[name])
        try:
            tokens = provider(request)
        except Exception as error:  # a plug-in may fail in any way
            raise BackendError(
                f"hadoop.tokens.{name}: there is no token of {name!r}: {_text(error)}"
            ) from error
        if tokens is None:
            continue
        if not _are_tokens(tokens):
            raise BackendError(
                f"hadoop.tokens.{name}: the provider {name!r} has returned {tokens!r:.200}; "
                "it must return tokens by alias, or None where the cluster needs none"
            )
        if twice := found.keys() & tokens.keys():
            raise BackendError(
                f"hadoop.tokens.{name}: it has a token with the alias {listed(sorted(twice))}, and so "
                "has another provider of [hadoop.tokens]; name one of them"
            )
        found |= tokens
    return found


def _are_tokens(found: object) -> bool:
    if not isinstance(found, Mapping) or not found:
        return False
    return all(isinstance(token, Token) for token in cast("Mapping[Any, object]", found).values())


def examine() -> Iterable[DoctorFinding]:
    """The installed providers, for ``howdah doctor``."""
    for point in entry_points(group=GROUP):
        what = f"tokens of {point.name}"
        try:
            point.load()
        except Exception as error:  # a plug-in may fail in any way
            yield problem(what, f"{point.value} cannot be loaded: {_text(error)}")
        else:
            yield fine(what, f"got by {point.value}, for jobs with [hadoop.tokens.{point.name}]")


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
