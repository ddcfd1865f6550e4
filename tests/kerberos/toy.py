"""A package that gets tokens of a service called toy, installed as packages are."""

from __future__ import annotations

from tests.kerberos.person import Person

_PROVIDER = """
from howdah.hadoop.security.credentials import Token

def tokens(request):
    assert request.renewer.startswith("rm/"), request
    if "says" in request.settings:
        raise RuntimeError(request.settings["says"])
    if not request.settings:
        return {}
    if not request.login.kerberos:
        return None
    identifier = f"{request.login.principal} at {request.settings['url']}"
    return {"toy": Token(identifier.encode(), b"secret", "TOY_TOKEN", "toy:1")}
"""
_ENTRY_POINTS = "[howdah.token_providers]\ntoy = toy_tokens:tokens\n"


def install(person: Person) -> None:
    """For all commands of that person's."""
    place = person.folder / "installed"
    info = place / "toy_tokens-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "toy_tokens.py").write_text(_PROVIDER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-tokens\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    person.env["PYTHONPATH"] = str(place)
