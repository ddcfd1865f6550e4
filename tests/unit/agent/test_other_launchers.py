"""What another launcher says of a world of its own does not reach a job's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from howdah.agent.programs import Additions, complete_environment
from howdah.client.submission import checks
from howdah.spec.load import load

WORLDS = {
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "7",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_MCA_orte_hnp_uri": "0.0;tcp://10.0.0.1:1",
    "PMIX_RANK": "1",
    "PMI_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "TF_CONFIG": "{}",
}
SETTINGS = {
    "OMPI_MCA_btl": "tcp,self",
    "I_MPI_FABRICS": "shm:tcp",
    "RANKING": "x",
    "HOROVOD_FUSION_THRESHOLD": "0",
}


def test_programs_get_their_own_job_s_world_and_keep_settings() -> None:
    additions = Additions(
        marker="job/c1",
        checkpoint_dir="/c",
        output_dir="/o",
        log_dir="/l",
        task_socket="/s",
        checkpoint_request="/r",
    )
    told = {"RANK": "0", "SLURM_JOB_ID": "named in [env]"}
    env = complete_environment({**WORLDS, **SETTINGS}, told, additions)
    assert WORLDS.keys() & env.keys() == told.keys()
    assert env | told == env
    assert env | SETTINGS == env


def test_the_submission_says_what_programs_do_not_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in WORLDS:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "job.toml"
    file.write_text('command = "true"\n[env]\nSLURM_JOB_ID = "${env:SLURM_JOB_ID}"\n')
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    loaded = load(file)
    assert not [n for n in checks.check(loaded, loaded.job, "local") if "launcher" in n]
    for number in range(5):
        monkeypatch.setenv(f"SLURM_{number}", "x")
    (note,) = (n for n in checks.check(loaded, loaded.job, "local") if "launcher" in n)
    assert note.startswith("programs do not get SLURM_0, SLURM_1, SLURM_2 and 2 more, which")
