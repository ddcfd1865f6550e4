"""TLS contexts: version 1.3 only, both sides show a certificate of the job's own authority.

Who a peer is stands in its certificate's subject alternative name, ``<role>.<digest>.howdah`` with a
digest of the job id, for a server shows its certificate to anybody who connects:
the connecting side has the ssl module itself check that the server is the coordinator of its job,
the serving side reads the peer's role from the verified certificate (`peer_identity`).
Agents of one job share a certificate: it separates jobs and roles. Containers of one job are told apart
by secrets of their own (`howdah.wire.messages.AgentHello.secret`).
"""

from __future__ import annotations

import enum
import hashlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOMAIN = "howdah"
CA_FILE = "ca.pem"


class PeerRole(enum.StrEnum):
    """What a certificate entitles to."""

    COORDINATOR = "coordinator"
    AGENT = "agent"
    CLIENT = "client"
    FEEDER = "feeder"
    """A Spark task: it brings rows to agents and may ask the feed's master where to, nothing else."""


class IdentityError(Exception):
    """A certificate that names no role of a job."""


def certificate_name(role: str, job_id: str) -> str:
    """The name in the certificate of that role: ``agent.c0d70f0d8e9b2e9a3d6c7f11f6b1a2c4.howdah``."""
    return f"{role}.{_digest(job_id)}.{DOMAIN}"


def former_certificate_name(role: str, job_id: str) -> str:
    """The name in certificates of jobs that were submitted before names were digests."""
    return f"{role}.{job_id}.{DOMAIN}"


def names_job(name: str, job_id: str) -> bool:
    """Whether a certificate with ``name`` as its job, from `peer_identity`, is of that job."""
    return name in (_digest(job_id), job_id)


def _digest(job_id: str) -> str:
    return hashlib.sha256(job_id.encode()).hexdigest()[:32]


def parse_name(name: str) -> tuple[PeerRole, str]:
    """Role and job, for `names_job`, of a certificate's name.

    Raises:
        IdentityError: it is not of the form ``<role>.<job>.howdah``.
    """
    role, _, rest = name.partition(".")
    job, _, domain = rest.rpartition(".")
    if domain != DOMAIN or not job or role not in tuple(PeerRole):
        raise IdentityError(f"The certificate's name {name!r} is not <role>.<job>.{DOMAIN}")
    return PeerRole(role), job


def peer_identity(certificate: Mapping[str, Any] | None) -> tuple[PeerRole, str]:
    """Role and job, for `names_job`, from what `ssl.SSLSocket.getpeercert` gives for a verified peer.

    Raises:
        IdentityError: there is no certificate, or it does not name exactly one identity.
    """
    names = [
        value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"
    ]
    if len(names) != 1:
        raise IdentityError(f"The peer's certificate has {len(names)} names instead of one")
    return parse_name(names[0])


def server_context(secrets: Path, role: str = PeerRole.COORDINATOR) -> ssl.SSLContext:
    """For the side that listens: demands a certificate of the job's authority.

    Raises:
        OSError: files are missing from ``secrets``, or are not certificates (`ssl.SSLError`).
    """
    certificate, key = _pair(secrets, role)
    return server_context_from(secrets / CA_FILE, certificate, key)


def client_context(secrets: Path, role: str) -> ssl.SSLContext:
    """For the side that connects, as ``role``: checks authority and name of the server.

    Raises:
        OSError: files are missing from ``secrets``, or are not certificates (`ssl.SSLError`).
    """
    certificate, key = _pair(secrets, role)
    return client_context_from(secrets / CA_FILE, certificate, key)


def client_context_from(ca: str | Path, certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """`client_context` from the paths of three PEM files (an agent's launch file has those)."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, ca, certificate, key)


def server_context_from(ca: str | Path, certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """`server_context` from the paths of three PEM files."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, ca, certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    # No resumption: connections live for hours, tickets only cost memory and bytes.
    context.num_tickets = 0
    return context


def _pair(secrets: Path, role: str) -> tuple[Path, Path]:
    return secrets / f"{role}.pem", secrets / f"{role}.key"


def _context(
    protocol: int, ca: str | Path, certificate: str | Path, key: str | Path
) -> ssl.SSLContext:
    # PROTOCOL_TLS_CLIENT has CERT_REQUIRED and check_hostname on by itself.
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cafile=ca)
    context.load_cert_chain(certfile=certificate, keyfile=key)
    return context
