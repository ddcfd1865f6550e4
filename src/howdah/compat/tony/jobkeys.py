"""TonY's keys of an application as a whole: the table's first part."""

from __future__ import annotations

from howdah.compat.tony import values
from howdah.compat.tony.table_row import JVM, OWN_TESTS, RowKind, TonyRow, gone, not_needed

APPLICATION = (
    TonyRow(
        key="tony.application.name",
        default="TonyApplication",
        to="name",
        words="what is no letter, digit, `.`, `_` or `-` becomes `-`",
    ),
    TonyRow(
        key="tony.application.framework",
        default="tensorflow",
        to="framework",
        words="`standalone` is `command` with one task; without any task (single node) it is "
        "`command` too",
    ),
    TonyRow(
        key="tony.application.distributed-mode",
        default="GANG",
        to="mode",
        words="`GANG` is `gang`, `FCFS` is `each`",
    ),
    TonyRow(key="tony.yarn.queue", default="default", to="queue", read=values.text),
    TonyRow(key="tony.application.tags", to="tags", read=values.words),
    TonyRow(
        key="tony.application.node-label",
        to="roles.<type>.label, master.label",
        words="for every role, and the master, without a label of its own",
    ),
    TonyRow(
        key="tony.application.timeout",
        default="0",
        to="timeouts.total",
        read=values.milliseconds,
        words="milliseconds; 0 is `off`",
    ),
    TonyRow(
        key="tony.application.enable-preprocess",
        default="false",
        to="preprocess",
        words="the common command is run once before all roles, with `PREPROCESSING_JOB=true`; "
        "what it prints behind `Model parameters: ` is `MODEL_PARAMS` of all programs",
    ),
    TonyRow(
        key="tony.application.untracked.jobtypes",
        default="ps",
        to='roles.<type>.tracking = "untracked"',
    ),
    TonyRow(
        key="tony.application.sidecar.jobtypes",
        default="tensorboard",
        to='roles.<type>.tracking = "sidecar"',
    ),
    TonyRow(
        key="tony.application.stop-on-failure-jobtypes",
        default="ps",
        to="roles.<type>.stop-on-failure",
        words="with `tony.am.retry-count` their failure starts all anew instead, as there",
    ),
    TonyRow(
        key="tony.application.prepare-stage",
        to="roles.<type>.prepare",
        words="their containers are asked for first, those of the others once their tracked tasks "
        "have succeeded",
    ),
    TonyRow(
        key="tony.application.training-stage",
        kind=RowKind.CHECKED,
        words="every role that is not in the prepare stage; one that is in both is refused",
    ),
    TonyRow(
        key="tony.application.group.<group>",
        to="roles.<type>.linger.after",
        words="names the roles that a time-out waits for",
    ),
    TonyRow(
        key="tony.application.dependency.<type>.timeout.after.<group>",
        to="roles.<type>.linger.limit",
        words="seconds after the last task of the group has ended",
    ),
    TonyRow(
        key="tony.application.dependency.<type>.timeout.after.<group>.ignored",
        default="false",
        to='roles.<type>.linger.then = "untrack"',
        words="`true`: such tasks run on and are no longer waited for, but their failure still fails the job; "
        "else the job has timed out",
    ),
    TonyRow(
        key="tony.application.tensorboard-log-dir",
        to="tensorboard.folder",
        words="TensorBoard runs beside the job and is on its page",
    ),
    TonyRow(
        key="tony.application.placement-spec",
        to="roles.<type>.placement",
        words="as `tony.<type>.placement-spec`, for roles without one",
    ),
    TonyRow(
        key="tony.application.hdfs-conf-path",
        to="hadoop.conf",
        words="the folder the file is in",
    ),
    TonyRow(
        key="tony.application.yarn-conf-path",
        to="hadoop.conf",
        words="the folder the file is in; both files must be in one",
    ),
    TonyRow(
        key="tony.other.namenodes",
        to="hadoop.name-nodes",
        read=values.words,
    ),
    not_needed(
        "tony.application.type",
        "YARN shows Howdah's jobs with the type HOWDAH; find yours by name, tag or queue",
        "TONY",
    ),
    TonyRow(
        key="tony.application.fail-on-worker-failure-enabled",
        default="false",
        to="roles.<type>.tolerate",
        words="`false` tolerates failures of every tracked task but the chief: the job succeeds unless all "
        "have failed. `true` fails the job with the first; a sidecar still decides nothing",
    ),
    not_needed(
        "tony.application.num-client-rm-connect-retries",
        "calls have one deadline, and failing over between ResourceManagers is in it",
        "3",
    ),
    not_needed(
        "tony.application.security.enabled",
        "the cluster's own configuration says whether it is secure",
        "true",
    ),
    not_needed("tony.application.mapred-conf-path", "nothing of MapReduce is used"),
    not_needed("tony.application.hadoop.location", f"no Hadoop is shipped: {JVM}"),
    not_needed(
        "tony.application.hadoop.classpath",
        f"{JVM}; for readers that use libhdfs, `hadoop.classpath = true` takes the node's own",
    ),
    not_needed("tony.application.test.horovod-driver-fail-enable", OWN_TESTS, "false"),
    not_needed("tony.application.test.horovod-test-mode-enable", OWN_TESTS, "false"),
    not_needed("tony.horovod.mode.test", OWN_TESTS, "false"),
    not_needed("tony.horovod.mode.test.fast.fail", OWN_TESTS, "false"),
    TonyRow(
        key="tony.horovod.driver.mode.debug",
        default="false",
        kind=RowKind.CHECKED,
        words="`true` is refused: its driver tells TonY a port in a file. A role `driver` with a command of "
        "its own takes the rendezvous server's place here if it serves on `$HOWDAH_PORT`",
    ),
    gone("tony.application.single-node", "a job without instances runs as one task"),
)
