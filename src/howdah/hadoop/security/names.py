"""Short names of Kerberos principals, by the cluster's ``hadoop.security.auth_to_local``.

Source: ``org.apache.hadoop.security.authentication.util.KerberosName``.
"""

from __future__ import annotations

import dataclasses
import re

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError

_KEY = "hadoop.security.auth_to_local"
_MECHANISM = "hadoop.security.auth_to_local.mechanism"
_PRINCIPAL = re.compile(r"([^/@]+)(?:/([^/@]+))?(?:@([^/@]+))?")
_RULE = re.compile(
    r"\s*(?:DEFAULT|RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?)/?(?P<lower>L)?"
)
_PARAMETER = re.compile(r"\$(\d)")


@dataclasses.dataclass(frozen=True)
class Principal:
    """``first/second@realm``; the second part and the realm may be missing."""

    first: str
    second: str = ""
    realm: str = ""

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Raises ConfigurationError: it is none."""
        found = _PRINCIPAL.fullmatch(text)
        if found is None:
            raise ConfigurationError(f"{text!r} is no Kerberos principal (name/host@REALM)")
        return cls(*(part or "" for part in found.groups()))

    def __str__(self) -> str:
        return (
            self.first + f"/{self.second}" * bool(self.second) + f"@{self.realm}" * bool(self.realm)
        )


def short_name(principal: str, configuration: Configuration, default_realm: str) -> str:
    """Who a principal is on the cluster: the owner of its files and applications.

    Raises:
        ConfigurationError: no rule fits, or a rule is malformed.
    """
    name = Principal.parse(principal)
    if not (name.second or name.realm):
        return name.first
    rules = configuration.get(_KEY) or "DEFAULT"
    at = 0
    while rules[at:].strip():
        found = _RULE.match(rules, at)
        if found is None:
            raise configuration.wrong(
                _KEY, rules[at:].strip(), "RULE:[n:format](regex)s/…/…/ or DEFAULT"
            )
        at = found.end()
        short = _apply(found, name, default_realm)
        if short is None:
            continue
        if configuration.get(_MECHANISM, "hadoop").lower() == "hadoop" and re.search("[/@]", short):
            raise configuration.wrong(
                _KEY, rules, f"a name without / and @ for {principal}, not {short!r}"
            )
        return short.lower() if found["lower"] else short
    raise ConfigurationError(
        f"no rule of {_KEY} ({configuration.source(_KEY)}) gives {principal} a name on the cluster"
    )


def _apply(rule: re.Match[str], name: Principal, default_realm: str) -> str | None:
    """The short name; None if the rule is for others."""
    if rule["format"] is None:
        return name.first if name.realm == default_realm else None
    parts = [name.realm, name.first, *([name.second] if name.second else [])]
    if len(parts) - 1 != int(rule["parts"] or 0):
        return None
    try:
        base = _PARAMETER.sub(lambda number: parts[int(number[1])], rule["format"])
        if rule["match"] and not re.fullmatch(rule["match"], base):
            return None
        if rule["old"] is None:
            return base
        new = _PARAMETER.sub(r"\\g<\1>", rule["new"].replace("\\", "\\\\"))
        return re.sub(rule["old"], new, base, count=0 if rule["all"] else 1)
    except (re.error, IndexError) as error:
        raise ConfigurationError(
            f"a rule of {_KEY} cannot be used: {rule[0].strip()!r}: {error}"
        ) from None
