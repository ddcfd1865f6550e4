"""The site file: defaults a job wins over, limits it does not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from howdah.spec import site
from howdah.spec.load import load
from howdah.spec.model import Job
from howdah.spec.problems import JobFileError

JOB = 'command = "x"\n[roles.worker]\ninstances = "1..4"\n'


def load_at(folder: Path, site_text: str, job: str = JOB, *overrides: str) -> Job:
    (folder / "site.toml").write_text(site_text)
    (folder / "job.toml").write_text(job)
    env = {"HOWDAH_SITE": str(folder / "site.toml"), "QUEUE": "night"}
    return load(folder / "job.toml", overrides, env).job


def told(folder: Path, site_text: str, job: str = JOB, *overrides: str) -> list[str]:
    with pytest.raises(JobFileError) as error:
        load_at(folder, site_text, job, *overrides)
    return [str(problem).replace(f"{folder}/", "") for problem in error.value.problems]


def test_a_job_wins_over_the_sites_defaults(tmp_path: Path) -> None:
    defaults = 'store = "/data"\nqueue = "${env:QUEUE}"\n[env]\nA = "site"\nB = "site"\n'
    job = load_at(tmp_path, defaults, 'store = "/mine"\nenv.A = "job"\n' + JOB)
    assert (job.store, job.queue) == ("/mine", "night")
    assert job.env == {"A": "job", "B": "site"}


def test_a_variable_that_a_default_lacks_is_no_problem_of_a_job_with_a_value_of_its_own(
    tmp_path: Path,
) -> None:
    defaults = 'store = "hdfs:///${env:TEAM}"\n[limits]\nmax-instances = 4\n'
    assert load_at(tmp_path, defaults, 'store = "/mine"\n' + JOB).store == "/mine"
    (line,) = told(tmp_path, defaults)
    assert line.startswith("site.toml:1: store: the environment variable TEAM is not set")
    number = '[limits]\nmax-gpus = "${env:GPUS}"\n'
    (line,) = told(tmp_path, number)
    assert line.startswith("site.toml:2: limits.max-gpus: the environment variable GPUS is not set")


def test_an_environment_is_one_choice(tmp_path: Path) -> None:
    site_text = '[environment]\npython = "python3.12"\n'
    assert load_at(tmp_path, site_text).environment.python == "python3.12"
    job = load_at(tmp_path, site_text, JOB + '[environment]\narchive = "env.tar.gz"\n')
    assert (job.environment.python, job.environment.archive) == (None, "env.tar.gz")


def test_howdahs_own_python_is_one_choice(tmp_path: Path) -> None:
    site_text = '[hadoop]\nruntime = "hdfs:///apps/runtime.tar.gz"\n'
    assert load_at(tmp_path, site_text).hadoop.runtime == "hdfs:///apps/runtime.tar.gz"
    job = load_at(tmp_path, site_text, JOB + '[hadoop]\npython = "python3"\n')
    assert (job.hadoop.python, job.hadoop.runtime) == ("python3", None)


def test_a_site_may_add_a_whole_table(tmp_path: Path) -> None:
    job = load_at(tmp_path, '[checkpoint]\nstore = "s3://bucket"\n[network]\ninterface = "eth1"\n')
    assert job.checkpoint is not None
    assert job.checkpoint.store == "s3://bucket"
    assert job.network.interface == "eth1"


def test_limits_are_the_sites(tmp_path: Path) -> None:
    job = load_at(tmp_path, "[limits]\nmax-instances = 4\n")
    assert job.limits.max_instances == 4


def test_a_stored_job_with_the_sites_limits_is_a_job_file(tmp_path: Path) -> None:
    limits = "[limits]\nmax-instances = 4\n"
    job = load_at(tmp_path, limits)
    stored = tmp_path / "stored.json"
    stored.write_bytes(msgspec.json.encode(job))
    assert load(stored, env={"HOWDAH_SITE": str(tmp_path / "site.toml")}).job == job


@pytest.mark.parametrize("override", ["limits.max-gpus=9", "limits={max-gpus = 9}"])
def test_no_job_sets_limits(override: str, tmp_path: Path) -> None:
    for site_text in ("", "[limits]\nmax-gpus = 1\n"):
        expected = ["--set: limits: only a site file may set limits; remove the table"]
        assert told(tmp_path, site_text, JOB, override) == expected


LIMITS = {
    "max-instances = 3": (
        "",
        "job.toml:3: roles.worker.instances: the job asks for 4 tasks, and may have 3; "
        "the limit is set by site.toml",
    ),
    "max-cores = 6": (
        "cores = 2\n[roles.ps]\n",
        "job.toml:4: roles.worker.cores: the job asks for 9 CPU cores (worker 8 + ps 1), "
        "and may have 6; the limit is set by site.toml",
    ),
    "max-cores = 2": (
        "",
        "job.toml:2: roles.worker.cores: the job asks for 4 CPU cores, and may have 2; "
        "the limit is set by site.toml",
    ),
    "max-gpus = 7": (
        "gpus = 2\n",
        "job.toml:4: roles.worker.gpus: the job asks for 8 GPUs, and may have 7; "
        "the limit is set by site.toml",
    ),
    'max-resources = { "yarn.io/gpu" = 7 }': (
        "gpus = 2\n",
        "job.toml:4: roles.worker.gpus: the job asks for 8 GPUs, and may have 7; "
        "the limit is set by site.toml",
    ),
    "max-resources = { vcores = 6 }": (
        "cores = 2\n",
        "job.toml:4: roles.worker.cores: the job asks for 8 CPU cores, and may have 6; "
        "the limit is set by site.toml",
    ),
    "max-resources = { memory-mb = 4096 }": (
        'memory = "1.5g"\n',
        "job.toml:4: roles.worker.memory: the job asks for 6,144 MiB of memory, "
        "and may have 4,096; the limit is set by site.toml",
    ),
    'max-memory = "4g"': (
        'memory = "1.5g"\n',
        "job.toml:4: roles.worker.memory: the job asks for 6,144 MiB of memory, "
        "and may have 4,096; the limit is set by site.toml",
    ),
    'max-memory = "9g"': (
        "",
        "job.toml:2: roles.worker.memory: the site limits a job's memory, and the role worker "
        'does not say its own; write roles.worker.memory = "2g", or what it needs; '
        "the limit is set by site.toml",
    ),
    'max-resources = { "yarn.io/fpga" = 3 }': (
        'resources = { "yarn.io/fpga" = 1 }\n',
        "job.toml:4: roles.worker.resources: the job asks for 4 yarn.io/fpga, and may have 3; "
        "the limit is set by site.toml",
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_job_past_a_limit_is_refused(limit: str, tmp_path: Path) -> None:
    role, expected = LIMITS[limit]
    assert told(tmp_path, f"[limits]\n{limit}\n", JOB + role) == [expected]


def test_a_job_at_its_limits_is_accepted(tmp_path: Path) -> None:
    limits = '[limits]\nmax-instances = 4\nmax-cores = 4\nmax-gpus = 4\nmax-memory = "4g"\n'
    assert load_at(tmp_path, limits, JOB + 'memory = "1g"\ngpus = 1\n')


def test_a_wrong_site_file_is_named(tmp_path: Path) -> None:
    lines = told(tmp_path, "queue = 5\n[limits]\nmax-gpu = 1\n")
    assert lines == [
        'site.toml:1: queue: 5 is a number, not text; write "5"',
        "site.toml:3: limits.max-gpu: unknown key; did you mean max-gpus?",
    ]
    ports = 'site.toml:2: network.ports: "1-2" leaves the ports a user may have, 1024 to 65535'
    assert told(tmp_path, '[network]\nports = "1-2"\n') == [ports]


def test_a_site_makes_no_jobs(tmp_path: Path) -> None:
    lines = told(tmp_path, 'name = "a"\ncommand = "x"\n[roles.worker]\n')
    assert lines == [
        "site.toml:1: name: belongs in a job file, not in the site's",
        "site.toml:2: command: belongs in a job file, not in the site's",
        "site.toml:3: roles: belongs in a job file, not in the site's",
    ]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    lines = told(tmp_path, 'backnd = "yarn"\nname = "a"\n[timeouts]\ntotl = "3d"\n')
    assert lines == [
        "site.toml:1: backnd: unknown key; did you mean backend?",
        "site.toml:2: name: belongs in a job file, not in the site's",
        "site.toml:4: timeouts.totl: unknown key; did you mean total?",
    ]


def test_a_missing_site_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    with pytest.raises(JobFileError, match="there is no such file"):
        load(tmp_path / "job.toml", env={"HOWDAH_SITE": str(tmp_path / "none.toml")})
    with pytest.raises(JobFileError, match="there is no such file"):
        load(tmp_path / "job.toml", env={}, site=tmp_path / "none.toml")


def test_the_site_file_is_the_named_else_the_systems_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "system.toml"
    user = tmp_path / ".config" / "howdah" / "site.toml"
    monkeypatch.setattr(site, "SYSTEM_FILE", system)
    env = {"HOME": str(tmp_path)}
    assert site.find(env) is None
    user.parent.mkdir(parents=True)
    user.touch()
    assert site.find(env) == user
    system.touch()
    assert site.find(env) == system
    assert site.find({**env, "HOWDAH_SITE": "/a/b.toml"}) == Path("/a/b.toml")
    assert site.find({**env, "HOWDAH_SITE": ""}) is None


@pytest.mark.parametrize(
    ("key", "default", "hint"),
    [
        ("store", 'store = "/data"', "write text"),
        ("tags", 'tags = ["a"]', "write a list"),
        ("checkpoint", "[checkpoint]\nkeep = 5", "write a table ({} has all its defaults)"),
        ("limits", "[limits]\nmax-gpus = 4", None),
    ],
)
def test_a_key_without_a_value_is_not_taken_for_the_sites(
    tmp_path: Path, key: str, default: str, hint: str | None
) -> None:
    (tmp_path / "site.toml").write_text(f"{default}\n")
    (tmp_path / "job.yaml").write_text(f"command: x\n{key}:\n")
    with pytest.raises(JobFileError) as error:
        load(tmp_path / "job.yaml", (), {"HOWDAH_SITE": str(tmp_path / "site.toml")})
    told = str(error.value).removeprefix(f"{tmp_path}/")
    if hint is None:
        assert told == "job.yaml:2: limits: only a site file may set limits; remove the table"
    else:
        assert told.startswith(f"job.yaml:2: {key}: has no value; {hint}")


def test_problems_are_headed_by_the_file_that_has_them(tmp_path: Path) -> None:
    def header(site_text: str, job: str, *overrides: str) -> str:
        with pytest.raises(JobFileError) as error:
            load_at(tmp_path, site_text, job, *overrides)
        return str(error.value).splitlines()[0].replace(f"{tmp_path}/", "")

    assert header("attempts = 0\nstore = 1\n", JOB) == "site.toml has 2 problems:"
    assert header("", f"attempts = 0\nmode = 1\n{JOB}") == "job.toml has 2 problems:"
    assert header("", JOB, "attempts=0", "mode=1") == "the job has 2 problems:"
    assert header('store = "${env:NONE}"', f"mode = 1\n{JOB}") == "the job has 2 problems:"
