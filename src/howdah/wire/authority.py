"""The job's own certificate authority, made at submission and forgotten at once.

The authority's private key never leaves this process: nobody can issue another certificate for
the job. Only this module needs `cryptography`, and only inside `create`.
"""

from __future__ import annotations

import datetime
import os
import re
import secrets as random_secrets
from pathlib import Path

from howdah.wire.tls import CA_FILE, PeerRole, certificate_name

TOKEN_FILE = "token"
CONTAINERS_FILE = "containers.key"

_VALID = datetime.timedelta(days=3650)
_SKEW = datetime.timedelta(days=1)
"""Clocks of a cluster's machines differ; a certificate is valid from this long ago."""

_JOB_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def create(job_id: str, secrets_dir: Path) -> None:
    """Write a fresh authority, a certificate for each role, the job's HTTP token, and the key that the
    secrets of its containers are made of.

    ``secrets_dir`` (created 0700) gets ``ca.pem``, ``{coordinator,agent,client,feeder}.{pem,key}``,
    ``token`` and ``containers.key``, all 0600. Takes some 10 ms, and 100 ms for importing what it needs.

    Raises:
        ValueError: the job id can't be part of a certificate's name.
        FileExistsError: the folder has secrets already; a job has one authority only.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise ValueError(
            f"The job id {job_id!r} can't be used in a certificate: at most 63 lower-case"
            " letters, digits and inner hyphens are allowed"
        )
    secrets_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    secrets_dir.chmod(0o700)
    for name, data in _files(job_id).items():
        _write_private(secrets_dir / name, data)
    for name in (TOKEN_FILE, CONTAINERS_FILE):
        _write_private(secrets_dir / name, random_secrets.token_urlsafe(32).encode())


def _files(job_id: str) -> dict[str, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(common_name: str) -> x509.Name:
        # Identity is in the alternative name alone.
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])

    def usage(*, authority: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=not authority,
            key_cert_sign=authority,
            crl_sign=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )

    now = datetime.datetime.now(datetime.UTC)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = name("howdah")

    def builder(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
        )

    ca = (
        builder(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(authority=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = {CA_FILE: ca.public_bytes(pem)}
    for role in PeerRole:
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role not in (PeerRole.CLIENT, PeerRole.FEEDER):
            # Agents listen too, for a new coordinator to dial them.
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            builder(name(f"howdah {role}"), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(certificate_name(role, job_id))]),
                critical=False,
            )
            .sign(ca_key, hashes.SHA256())
        )
        files[f"{role}.pem"] = certificate.public_bytes(pem)
        files[f"{role}.key"] = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return files


def _write_private(path: Path, data: bytes) -> None:
    # The mode is given at creation: at no moment can another user open the file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
