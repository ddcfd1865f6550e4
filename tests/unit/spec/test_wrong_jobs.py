"""Jobs of the right shape that make no sense: what is printed, with the line it is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.spec.wrong import ROLE, RUN, Wrong, problems

WRONG: Wrong = {
    "a checkpoint store in memory": (
        "job.toml",
        ROLE + '[checkpoint]\nstore = "memory://x"\n',
        [
            'job.toml:4: checkpoint.store: "memory://x" is the memory of one process, and gone with '
            "it; give a path, or a URL such as s3://bucket/folder",
        ],
    ),
    "an outputs store without a name": (
        "job.toml",
        ROLE + '[outputs]\nstore = " "\n',
        [
            "job.toml:4: outputs.store: the store has no name; give a path or a URL, or leave it out",
        ],
    ),
    "a role that goes on after nobody, for no time": (
        "job.toml",
        ROLE + '[roles.worker.linger]\nafter = []\nlimit = "0s"\n',
        [
            'job.toml:4: roles.worker.linger.after: it names no role to come after, so its time would never begin; name the roles it goes on after, such as ["chief"]',
            'job.toml:5: roles.worker.linger.limit: "0s" leaves no time at all; "off" means no limit',
        ],
    ),
    "a role that goes on after itself": (
        "job.toml",
        ROLE + '[roles.worker.linger]\nafter = ["worker"]\nlimit = "1h"\n',
        [
            "job.toml:4: roles.worker.linger.after[0]: the role worker cannot go on after itself; name other roles, or leave the key out",
        ],
    ),
    "a sidecar that prepares": (
        "job.toml",
        RUN + '[roles.a]\n[roles.b]\nprepare = true\ntracking = "sidecar"\n',
        [
            "job.toml:4: roles.b.prepare: a sidecar prepares nothing: nobody waits for it; remove one of the two",
        ],
    ),
    "an empty file": (
        "job.toml",
        "",
        [
            'job.toml: there is nothing to run: no command; write command = "python train.py", for the job or in each role',
        ],
    ),
    "no command anywhere": (
        "job.toml",
        "[roles.worker]\ninstances = 2\n",
        [
            'job.toml: there is nothing to run: no command; write command = "python train.py", for the job or in each role',
        ],
    ),
    "one role without a command": (
        "job.toml",
        '[roles.a]\ncommand = "x"\n\n[roles.b]\n',
        [
            "job.toml:4: roles.b.command: the role b has nothing to run; give it a command, or give the job one that every such role runs",
        ],
    ),
    "an empty command": (
        "job.toml",
        'command = "  "\n[roles.worker]\n',
        [
            'job.toml:1: command: the command is empty; write what is to be run, such as "python train.py"',
        ],
    ),
    "an empty list as command": (
        "job.toml",
        ROLE + "command = []\n",
        [
            'job.toml:3: roles.worker.command: the command is empty; write what is to be run, such as "python train.py"',
        ],
    ),
    "another tool's word": (
        "job.toml",
        ROLE + "replicas = 4\n",
        [
            "job.toml:3: roles.worker.replicas: unknown key; did you mean instances?",
        ],
    ),
    "an unknown framework": (
        "job.toml",
        RUN + 'framework = "tensorflw"\n[roles.worker]\n',
        [
            'job.toml:2: framework: there is no framework "tensorflw"; did you mean "tensorflow"?',
        ],
    ),
    "a framework like no other": (
        "job.toml",
        RUN + 'framework = "caffe"\n[roles.worker]\n',
        [
            'job.toml:2: framework: there is no framework "caffe"; known are command, tensorflow, pytorch, jax',
        ],
    ),
    "a bad job name": (
        "job.toml",
        RUN + 'name = "my job!"\n[roles.worker]\n',
        [
            'job.toml:2: name: "my job!" is no job name; did you mean "my-job"?',
        ],
    ),
    "a bad role name": (
        "job.toml",
        RUN + '[roles."worker:0"]\n',
        [
            'job.toml:2: roles."worker:0": "worker:0" is no role name; use letters, digits, _ and -, beginning with a letter, at most 63',
        ],
    ),
    "two roles that differ in capitals": (
        "job.toml",
        ROLE + "[roles.Worker]\n",
        [
            "job.toml:3: roles.Worker: the role worker has the same name but for capitals; rename one: file systems may take them for the same",
        ],
    ),
    "too many tasks together": (
        "job.toml",
        RUN + "[roles.a]\ninstances = 60000\n[roles.b]\ninstances = 60000\n",
        [
            "job.toml:2: roles: there are 120,000 tasks, more than 100,000",
        ],
    ),
    "too little memory": (
        "job.toml",
        ROLE + 'memory = "2k"\n',
        [
            'job.toml:3: roles.worker.memory: "2k" is too little for any program; write at least "16m"; most need "1g" or more',
        ],
    ),
    "no time at all": (
        "job.toml",
        ROLE + '[timeouts]\nstartup = "0s"\n',
        [
            'job.toml:4: timeouts.startup: "0s" leaves no time at all; "off" means no limit',
        ],
    ),
    "no end of a stop": (
        "job.toml",
        ROLE + '[timeouts]\nstop-grace = "off"\nhold = "off"\n',
        [
            'job.toml:4: timeouts.stop-grace: "off" would leave a program that ignores SIGTERM running for ever; write a time, such as "10s"',
            'job.toml:5: timeouts.hold: "off" would let two jobs each hold a part of the machines for ever; write a time, such as "30s"',
        ],
    ),
    "a role that waits for an unknown one": (
        "job.toml",
        RUN + '[roles.ps]\n[roles.worker]\nafter = [\n  "sp",\n]\n',
        [
            'job.toml:5: roles.worker.after[0]: there is no role "sp"; the others are ps',
        ],
    ),
    "a role that waits for itself": (
        "job.toml",
        ROLE + 'after = ["worker"]\n',
        [
            "job.toml:3: roles.worker.after[0]: the role worker cannot wait for itself; name other roles, or leave the key out",
        ],
    ),
    "roles that wait for each other": (
        "job.toml",
        RUN + '[roles.a]\nafter = ["c"]\n[roles.b]\nafter = ["a"]\n[roles.c]\nafter = ["b"]\n',
        [
            "job.toml:3: roles.a.after: a waits for c waits for b waits for a: none of them would ever start; remove one of these",
        ],
    ),
    "a role named twice": (
        "job.toml",
        RUN + '[roles.ps]\n[roles.worker]\nafter = ["ps", "ps"]\n',
        [
            'job.toml:4: roles.worker.after[1]: "ps" is named twice; remove one',
        ],
    ),
    "near an unknown role": (
        "job.toml",
        RUN + '[roles.ps]\n[roles.worker]\nplacement = { near = ["pss"], apart = ["worker"] }\n',
        [
            'job.toml:4: roles.worker.placement.near[0]: there is no role "pss"; did you mean "ps"?',
            "job.toml:4: roles.worker.placement.apart[0]: the role worker cannot be apart from itself; name other roles, or leave the key out",
        ],
    ),
    "spread and packed": (
        "job.toml",
        ROLE + "placement = { spread = true, pack = true }\n",
        [
            "job.toml:3: roles.worker.placement: spread and pack contradict each other; keep one",
        ],
    ),
    "near and apart": (
        "job.toml",
        RUN + '[roles.ps]\n[roles.worker.placement]\nnear = ["ps"]\napart = ["ps"]\n',
        [
            'job.toml:5: roles.worker.placement.apart: "ps" is to be both near and apart; keep one',
        ],
    ),
    "together and apart": (
        "job.toml",
        RUN
        + '[roles.ps]\n[roles.worker.placement]\ntogether = ["ps"]\napart = ["ps"]\npack = true\n',
        [
            'job.toml:5: roles.worker.placement.apart: "ps" is to be both together and apart; keep one',
            "job.toml:6: roles.worker.placement.pack: together says already which nodes there are to choose from; remove pack",
        ],
    ),
    "each together with the other": (
        "job.toml",
        RUN
        + '[roles.ps.placement]\ntogether = ["worker"]\n[roles.worker.placement]\ntogether = ["ps"]\n',
        [
            "job.toml:3: roles.ps.placement.together: ps needs the nodes of worker needs the nodes of ps: none of them would ever start; remove one of these",
        ],
    ),
    "together with a role of a later stage": (
        "job.toml",
        RUN + '[roles.worker]\n[roles.db]\nprepare = true\nplacement = { together = ["worker"] }\n',
        [
            'job.toml:5: roles.db.placement.together: "worker" has no containers before this role\'s have ended; make worker a prepare role too',
        ],
    ),
    "a program a GPU without GPUs": (
        "job.toml",
        ROLE + 'processes = "gpus"\n',
        [
            'job.toml:3: roles.worker.processes: "gpus" is one program for each GPU, and the role has no GPU; set roles.worker.gpus, or write a number',
        ],
    ),
    "an elastic role restarted task by task": (
        "job.toml",
        ROLE + 'instances = "2..4"\nrestart = "task"\n',
        [
            'job.toml:4: roles.worker.restart: an elastic role cannot have restart = "task" in a gang; its gang restarts when tasks come or go; use "gang", or mode = "each"',
        ],
    ),
    "nobody decides": (
        "job.toml",
        ROLE + 'tracking = "sidecar"\n',
        [
            'job.toml:2: roles: no role decides when the job is done: none is tracked; give the role that trains tracking = "tracked", or leave tracking out',
        ],
    ),
    "a sidecar that stops the job": (
        "job.toml",
        ROLE + '[roles.board]\ntracking = "sidecar"\nstop-on-failure = true\n',
        [
            'job.toml:5: roles.board.stop-on-failure: a sidecar never decides anything, so it cannot stop the job; remove it, or use tracking = "untracked"',
        ],
    ),
    "a role whose failure stops the job and is tolerated": (
        "job.toml",
        ROLE + "stop-on-failure = true\ntolerate = true\n",
        [
            "job.toml:4: roles.worker.tolerate: a failure of this role cannot both stop the job and be tolerated; remove one of the two",
        ],
    ),
    "a bad variable name": (
        "job.toml",
        RUN + '[env]\n"MY VAR" = "x"\n"1A" = "x"\n[roles.worker]\n',
        [
            'job.toml:3: env."MY VAR": "MY VAR" is no name of an environment variable; use letters, digits and _, not beginning with a digit',
            'job.toml:4: env.1A: "1A" is no name of an environment variable; use letters, digits and _, not beginning with a digit',
        ],
    ),
    "a variable of ours": (
        "job.toml",
        ROLE + 'env = { HOWDAH_RANK = "0" }\n',
        [
            "job.toml:3: roles.worker.env.HOWDAH_RANK: names that begin with HOWDAH_ are Howdah's own; choose another name",
        ],
    ),
    "resources that have a key of their own": (
        "job.toml",
        ROLE + 'resources = { "yarn.io/gpu" = 2, memory-mb = 512 }\n',
        [
            'job.toml:3: roles.worker.resources."yarn.io/gpu": yarn.io/gpu is what the role\'s own key gpus asks for; write roles.worker.gpus = 2',
            'job.toml:3: roles.worker.resources.memory-mb: memory-mb is what the role\'s own key memory asks for; write roles.worker.memory = "512m"',
        ],
    ),
    "ports out of range": (
        "job.toml",
        ROLE + '[network]\nports = "80-90"\n',
        [
            'job.toml:4: network.ports: "80-90" leaves the ports a user may have, 1024 to 65535',
        ],
    ),
    "ports backwards": (
        "job.toml",
        ROLE + '[network]\nports = "30000-20000"\n',
        [
            'job.toml:4: network.ports: "30000-20000" runs backwards; did you mean "20000-30000"?',
        ],
    ),
    "no range of ports": (
        "job.toml",
        ROLE + '[network]\nports = "20000"\n',
        [
            'job.toml:4: network.ports: "20000" is not a range of ports; write first and last, such as "20000-29999"',
        ],
    ),
    "too few ports": (
        "job.toml",
        ROLE + 'ports = 8\n[network]\nports = "20000-20003"\n',
        [
            'job.toml:5: network.ports: "20000-20003" has fewer ports than one task needs, 8; widen it',
        ],
    ),
    "an address of two words": (
        "job.toml",
        ROLE + '[network]\naddress = "a b"\n',
        [
            'job.toml:4: network.address: "a b" is not an address or host name',
        ],
    ),
    "limits in a job": (
        "job.toml",
        ROLE + "[limits]\nmax-gpus = 100\n",
        [
            "job.toml:3: limits: only a site file may set limits; remove the table",
        ],
    ),
    "a missing source folder": (
        "job.toml",
        RUN + 'source = "srcs"\n[roles.worker]\n',
        [
            'job.toml:2: source: there is no folder srcs; did you mean "src"?',
        ],
    ),
    "a file as source folder": (
        "job.toml",
        RUN + 'source = "job.toml"\n[roles.worker]\n',
        [
            "job.toml:2: source: job.toml is a file, not a folder; name the folder it is in",
        ],
    ),
    "missing requirements": (
        "job.toml",
        ROLE + '[environment]\nrequirements = "requirement.txt"\n',
        [
            'job.toml:4: environment.requirements: there is no file requirement.txt; did you mean "requirements.txt"?',
        ],
    ),
    "two environments": (
        "job.toml",
        ROLE + '[environment]\npython = "python3"\narchive = "env.tar.gz"\n',
        [
            "job.toml:3: environment: python and archive are given; an environment has one source",
        ],
    ),
    "two Pythons for Howdah's own processes": (
        "job.toml",
        ROLE + '[hadoop]\npython = "python3"\nruntime = "runtime.tar.gz"\n',
        [
            "job.toml:3: hadoop: python and runtime are both given; Howdah's own processes have one Python",
        ],
    ),
    "an endless settling": (
        "job.toml",
        ROLE + '[checkpoint]\nsettle = "off"\nkeep = 0\n',
        [
            'job.toml:4: checkpoint.settle: "off" would never take a file as finished; write a time, such as "500ms"',
            "job.toml:5: checkpoint.keep: 0 is less than 1",
        ],
    ),
    "a save limit that limits nothing": (
        "job.toml",
        ROLE + '[checkpoint]\nsave-limit = "off"\n',
        [
            'job.toml:4: checkpoint.save-limit: "off" would let a store that hangs hold a job for ever; write a time, such as "30m"',
        ],
    ),
    "a save limit in which nothing is saved": (
        "job.toml",
        ROLE + '[checkpoint]\nsave-limit = "0s"\n',
        [
            'job.toml:4: checkpoint.save-limit: "0s" saves nothing; write a time, such as "30m"',
        ],
    ),
    "a checkpoint folder elsewhere": (
        "job.toml",
        ROLE + '[checkpoint]\nfolder = "/data/checkpoints"\nsource = "all"\n',
        [
            'job.toml:4: checkpoint.folder: "/data/checkpoints" is not inside the task\'s working folder; write a path inside it; where it is saved to is another key, store',
            'job.toml:5: checkpoint.source: "all" is not "chief" or "each"',
        ],
    ),
    "an output folder above": (
        "job.toml",
        ROLE + '[outputs]\nfolders = ["out", "../out", "./"]\n',
        [
            'job.toml:4: outputs.folders[1]: "../out" is not inside the task\'s working folder; write a path inside it; where it is saved to is another key, store',
            'job.toml:4: outputs.folders[2]: "./" is no folder\'s name; write one, such as "out"',
        ],
    ),
    "an empty pattern": (
        "job.toml",
        ROLE + '[checkpoint]\nignore = ["", "a/b", "*"]\n',
        [
            'job.toml:4: checkpoint.ignore[0]: "" is no pattern for a file\'s name; write one such as "*.tmp"',
            'job.toml:4: checkpoint.ignore[1]: "a/b" is no pattern for a file\'s name; write one such as "*.tmp"',
            'job.toml:4: checkpoint.ignore[2]: "*" leaves no file to save',
        ],
    ),
    "tags of several words": (
        "job.toml",
        RUN + 'tags = ["nightly run", "a", "a"]\n[roles.worker]\n',
        [
            'job.toml:2: tags[0]: "nightly run" is not one word; leave out spaces and commas',
            'job.toml:2: tags[2]: "a" is named twice; remove one',
        ],
    ),
    "everybody as a group": (
        "job.toml",
        ROLE + '[acl]\nview-groups = ["*", "ops"]\nmodify-groups = ["domain users"]\n',
        [
            'job.toml:4: acl.view-groups[0]: "*" is no group; write view = ["*"] for everybody',
            'job.toml:5: acl.modify-groups[0]: "domain users" is not one word; leave out spaces and commas',
        ],
    ),
    "container variables that are not the job's": (
        "job.toml",
        RUN
        + """[roles.worker]
image = "ours:1"
[hadoop]
classpath = true
[hadoop.container-env]
HADOOP_USER_NAME = "hdfs"
LOG_DIRS = "/tmp"
PYTHONPATH = "$PWD"
CLASSPATH = "a.jar"
YARN_CONTAINER_RUNTIME_TYPE = "runc"
YARN_CONTAINER_RUNTIME_DOCKER_IMAGE = "other:2"
YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS = "/a:/a:ro"
""",
        [
            "job.toml:7: hadoop.container-env.HADOOP_USER_NAME: in a container it is who submitted the job; put it into [env], for the programs",
            "job.toml:8: hadoop.container-env.LOG_DIRS: YARN sets it in every container; put it into [env], for the programs",
            "job.toml:9: hadoop.container-env.PYTHONPATH: it would be Howdah's own process's, and no program's; put it into [env], for the programs",
            "job.toml:10: hadoop.container-env.CLASSPATH: hadoop.classpath sets it; remove one of the two",
            "job.toml:11: hadoop.container-env.YARN_CONTAINER_RUNTIME_TYPE: roles.worker.image sets it; remove one of the two",
            "job.toml:12: hadoop.container-env.YARN_CONTAINER_RUNTIME_DOCKER_IMAGE: roles.worker.image sets it; remove one of the two",
        ],
    ),
    "images that no node could run": (
        "job.toml",
        RUN
        + """[roles.worker]
image = "ours: 1"
mounts = ["/data", "/a:/b:rx", "/a:/b:ro+rshared"]
[roles.ps]
mounts = ["/a:/b"]
[hadoop.docker]
network = ""
ports = ["80,81"]
[hadoop.container-env]
YARN_CONTAINER_RUNTIME_DOCKER_PORTS_MAPPING = "80:80"
YARN_CONTAINER_RUNTIME_DOCKER_RUN_PRIVILEGED_CONTAINER = "true"
YARN_CONTAINER_RUNTIME_DOCKER_SERVICE_MODE = "false"
""",
        [
            'job.toml:3: roles.worker.image: "ours: 1" has " ", which YARN cannot carry',
            'job.toml:4: roles.worker.mounts[0]: "/data" is no mount; write one such as "/on/the/node:/in/the/image:ro"',
            'job.toml:4: roles.worker.mounts[1]: "/a:/b:rx" is no mount; write one such as "/on/the/node:/in/the/image:ro"',
            "job.toml:6: roles.ps.mounts: they are of a Docker image, and the role has none; add image",
            'job.toml:8: hadoop.docker.network: "" has nothing in it, which YARN cannot carry',
            'job.toml:9: hadoop.docker.ports: "80,81" has ",", which YARN cannot carry',
            "job.toml:11: hadoop.container-env.YARN_CONTAINER_RUNTIME_DOCKER_PORTS_MAPPING: hadoop.docker.ports sets it; remove one of the two",
            "job.toml:12: hadoop.container-env.YARN_CONTAINER_RUNTIME_DOCKER_RUN_PRIVILEGED_CONTAINER: such a container's programs are root on the node; remove it",
        ],
    ),
    "logs of nothing": (
        "job.toml",
        ROLE + '[logs]\nmax-size = "1k"\nsegments = 0\n',
        [
            'job.toml:4: logs.max-size: "1k" keeps nothing of a log; write at least "16k"',
            "job.toml:5: logs.segments: 0 is less than 1",
        ],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_job_that_makes_no_sense_is_told_why(wrong: str, tmp_path: Path) -> None:
    name, text, expected = WRONG[wrong]
    assert problems(tmp_path, name, text) == expected
