from __future__ import annotations

import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from howdah.wire import authority
from howdah.wire.tls import (
    IdentityError,
    PeerRole,
    certificate_name,
    client_context,
    former_certificate_name,
    names_job,
    parse_name,
    peer_identity,
    server_context,
)
from tests.unit.wire.rig import JOB, OTHER_JOB, secrets_of


def test_it_writes_what_each_role_needs_and_never_the_authoritys_own_key() -> None:
    names = {path.name for path in secrets_of(JOB).iterdir()}
    assert names == {
        "ca.pem",
        "coordinator.pem",
        "coordinator.key",
        "agent.pem",
        "agent.key",
        "client.pem",
        "client.key",
        "feeder.pem",
        "feeder.key",
        "containers.key",
        "token",
    }
    authority_key = x509.load_pem_x509_certificate((secrets_of(JOB) / "ca.pem").read_bytes())
    for role in PeerRole:
        certificate = (secrets_of(JOB) / f"{role}.pem").read_bytes()
        own = x509.load_pem_x509_certificate(certificate).public_key()
        assert own != authority_key.public_key()


def test_nobody_else_can_read_any_of_it(tmp_path: Path) -> None:
    script = "import sys, os; os.umask(0); from howdah.wire import authority; from pathlib import Path; authority.create('job-1', Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "secrets")], check=True)
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    for path in (tmp_path / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_an_existing_folder_is_closed_to_others_first(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o755)
    authority.create("job-1", folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_job_gets_one_authority_only(tmp_path: Path) -> None:
    authority.create("job-1", tmp_path / "secrets")
    with pytest.raises(FileExistsError):
        authority.create("job-1", tmp_path / "secrets")


@pytest.mark.parametrize(
    "job_id", ["", "a.b", "../x", "A", "-a", "a-", "x" * 64, "a_b", "a b", "ü"]
)
def test_an_id_that_is_no_dns_label_is_refused(job_id: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't be used in a certificate"):
        authority.create(job_id, tmp_path / "secrets")
    assert not (tmp_path / "secrets").exists()


def test_the_longest_id_works(tmp_path: Path) -> None:
    authority.create("x" * 63, tmp_path / "secrets")
    assert server_context(tmp_path / "secrets").get_ca_certs()


def test_each_token_is_different_and_hard_to_guess(tmp_path: Path) -> None:
    authority.create("job-1", tmp_path / "secrets")
    token = (tmp_path / "secrets" / "token").read_text()
    assert len(token) >= 43
    assert token != (secrets_of(JOB) / "token").read_text()


def test_certificates_are_for_p256_keys_and_their_purposes() -> None:
    for role in PeerRole:
        path = secrets_of(JOB) / f"{role}.pem"
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [certificate_name(role, JOB)]
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        serves = x509.ExtendedKeyUsageOID.SERVER_AUTH in purposes
        assert serves == (role not in (PeerRole.CLIENT, PeerRole.FEEDER))


def test_a_clock_that_is_a_few_hours_behind_accepts_them() -> None:
    certificate = x509.load_pem_x509_certificate((secrets_of(JOB) / "agent.pem").read_bytes())
    valid_from = certificate.not_valid_before_utc.timestamp()
    assert valid_from < time.time() - 12 * 3600
    assert certificate.not_valid_after_utc.timestamp() > time.time() + 9 * 365 * 86400


def test_contexts_speak_tls_1_3_only_and_demand_certificates() -> None:
    server = server_context(secrets_of(JOB))
    client = client_context(secrets_of(JOB), "agent")
    for context in (server, client):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert client.check_hostname


def test_contexts_name_the_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        client_context(tmp_path, "agent")


def test_a_name_holds_role_and_job() -> None:
    role, job = parse_name(certificate_name("agent", JOB))
    assert role is PeerRole.AGENT
    assert names_job(job, JOB)
    assert not names_job(job, OTHER_JOB)


def test_a_name_of_the_release_before_still_says_its_job() -> None:
    role, job = parse_name(former_certificate_name("agent", JOB))
    assert role is PeerRole.AGENT
    assert names_job(job, JOB)
    assert not names_job(job, OTHER_JOB)


@pytest.mark.parametrize(
    "name",
    ["", "agent", "agent.howdah", "agent..howdah", "root.job-1.howdah", "agent.job-1.example"],
)
def test_a_strange_name_is_no_identity(name: str) -> None:
    with pytest.raises(IdentityError):
        parse_name(name)


def test_a_certificate_with_no_name_or_several_is_no_identity() -> None:
    with pytest.raises(IdentityError, match="0 names"):
        peer_identity(None)
    names = (("DNS", "agent.a.howdah"), ("DNS", "client.a.howdah"))
    with pytest.raises(IdentityError, match="2 names"):
        peer_identity({"subjectAltName": names})


def test_a_prefix_of_a_job_id_is_another_job() -> None:
    # The bug of matching addresses by prefix, as it would look here.
    assert parse_name("agent.job-1.howdah") != parse_name("agent.job-10.howdah")
    assert not names_job("job-1", "job-10")
