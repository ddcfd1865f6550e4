"""Seeded bugs of the kinds others really had, or that were found here: one scenario tells of each.

A mutant is the core with one piece of text replaced. The scenario named in its row is told over it and must come
to a wrong end.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import howdah.core

pytestmark = pytest.mark.nightly
SOURCE = Path(howdah.core.__file__).parent
RELOADED = ("howdah.core", "tests.invariants", "tests.simulation")


class Mutant(msgspec.Struct, frozen=True):
    bug: str
    before: str
    after: str
    scenario: str
    """A call of a test of `tests.simulation.test_scenarios`, without its ``test_``."""


MUTANTS = {
    "containers.py": [
        Mutant(
            "of a batch of requests only the first is made",
            "RequestContainers(requests=tuple(requests),",
            "RequestContainers(requests=tuple(requests[:1]),",
            "a_gang_with_servers_and_a_sidecar_starts_and_succeeds()",
        ),
        Mutant(
            "a container that was not asked for leaks",
            "    _take_unknown(context, event.container_id, event.node)\n",
            "",
            "a_container_granted_for_a_request_that_was_cancelled_is_given_back()",
        ),
        Mutant(
            "a container granted to a dead coordinator leaks",
            '        _take_unknown(context, container_id, "?")\n',
            "        pass\n",
            "a_container_granted_to_a_dead_coordinator_is_given_back_by_the_next()",
        ),
        Mutant(
            "a new coordinator counts a lease that the one before it has renewed",
            "    if container.connected or container.silent:\n",
            "    if container.connected:\n",
            "what_a_coordinator_that_died_may_have_heard_renews_the_lease_of_an_agent"
            "(GANG, pytest.MonkeyPatch())",
        ),
        Mutant(
            "a new coordinator waits for what its predecessor has asked for",
            "    cancel_requests(context)\n\n\ndef _resume",
            "\n\ndef _resume",
            "a_new_coordinator_asks_again_for_what_the_former_one_had_asked_for()",
        ),
        Mutant(
            "an agent outlives its lost node",
            "    tasks.give_back(context, container)  # its agent is told over its own connection\n",
            "",
            "an_agent_on_a_node_called_lost_is_told_to_end_over_its_own_connection(GANG)",
        ),
        Mutant(
            "a lost connection is never acted upon",
            'context.set_time(container, "deadline", context.now + patience_s)',
            "pass",
            "an_agent_that_does_not_come_back_is_not_believed_to_have_ended(GANG, 0.0)",
        ),
        Mutant(
            "a connection that broke counts as an agent that has ended",
            "        container.silent = True  # a connection that breaks",
            "        # a connection that breaks",
            "an_agent_that_does_not_come_back_is_not_believed_to_have_ended(LONE, 0.0)",
        ),
        Mutant(
            "silence counts as an agent that has ended",
            "container.connected, container.silent = False, True\n    container.heard",
            "container.connected, container.silent = False, False\n    container.heard",
            "an_agent_that_only_falls_silent_is_not_believed_to_have_ended(ONE_BY_ONE)",
        ),
        Mutant(
            "a new coordinator believes a backend that has forgotten a container",
            "if may_live(container) and (container.ended or not ended):",
            "if False:",
            "a_new_coordinator_waits_for_the_same_agents_out_of_reach(GANG)",
        ),
        Mutant(
            "a new coordinator gives up what the backend has not named yet",
            "if container.container_id in alive or awaited:",
            "if container.container_id in alive:",
            "programs_go_on_whose_containers_a_new_coordinator_is_told_of_later()",
        ),
        Mutant(
            "an agent that was told to go and hangs up is taken for gone",
            "    elif container.former is not None and not container.over:\n        # It was told",
            "    elif False:\n        # It was told",
            "an_agent_that_hangs_up_before_it_has_heard_that_it_is_to_go_is_waited_for(GANG)",
        ),
        Mutant(
            "the word of an agent that it has ended what it was told to is not heard",
            "            container.over = True\n",
            "            pass\n",
            "an_agent_on_a_node_called_lost_is_told_to_end_over_its_own_connection(GANG)",
        ),
        Mutant(
            "files that the backend could not bring home are not said",
            "    _note_unsaved(context, container, event)\n",
            "",
            "what_a_backend_could_not_bring_home_of_a_task_is_said_of_the_job()",
        ),
    ],
    "machine.py": [
        Mutant(
            "time in which the coordinator could not act counts against agents",
            "    if event.late_s:\n",
            "    if False:\n",
            "a_coordinator_that_could_not_act_for_a_while_gives_agents_so_much_longer(LONE)",
        ),
        Mutant(
            "the total time begins with the coordinator",
            "total_s - event.waited_s",
            "total_s",
            "what_a_job_has_waited_in_its_queue_is_part_of_its_total_time()",
        ),
        Mutant(
            "a job that has waited too long ends before it begins",
            "max(total_s - event.waited_s, min(total_s, LEAST_TOTAL_S))",
            "total_s - event.waited_s",
            "a_job_that_has_waited_for_all_of_its_total_time_may_still_begin()",
        ),
        Mutant(
            "a stale message of an old attempt is believed",
            "current = data.attempt == event.attempt\n",
            "current = True\n",
            "what_an_older_attempt_says_late_changes_nothing()",
        ),
        Mutant(
            "a checkpoint that an old attempt saved late is the newest",
            "event.attempt != data.attempt:\n        return  # of an attempt",
            "event.attempt > data.attempt:\n        return  # of an attempt",
            "a_checkpoint_that_an_older_attempt_saved_late_is_not_the_newest()",
        ),
        Mutant(
            "a program that has saved is asked to once more",
            "    data.save_request = None\n",
            "",
            "a_program_that_has_saved_for_a_preemption_or_started_after_it_is_not_asked_again()",
        ),
    ],
    "task.py": [
        Mutant(
            "a program that is about to start misses the notice of a preemption",
            "        settle_joined(context, data)\n    _ask_if_not_saved(context, data)\n",
            "        settle_joined(context, data)\n",
            "programs_that_were_about_to_start_at_a_notice_of_preemption_are_asked_to_save()",
        ),
        Mutant(
            "a retried registration counts twice",
            "(S.PREPARING, AgentRegistered): _registered_preparing",
            "(S.PREPARING, AgentRegistered): _registered",
            'a_connection_lost_while_the_gang_is_forming_costs_nothing("preparing")',
        ),
        Mutant(
            "a preparation lost with the connection is not told again",
            "        _send_prepare(context, data)  # the first one was lost on the way\n",
            "        pass\n",
            'a_lost_order_to_prepare_is_given_again_with_the_ports_to_keep("connection")',
        ),
        Mutant(
            "a preparation told again forgets the ports to keep",
            "            keep_ports=data.keep_ports,\n",
            "",
            'a_lost_order_to_prepare_is_given_again_with_the_ports_to_keep("coordinator")',
        ),
        Mutant(
            "a start lost with the connection is not told again",
            "        _send_start(context, data)  # the first one was lost on the way\n",
            "        pass\n",
            'a_connection_lost_while_the_gang_is_forming_costs_nothing("starting")',
        ),
        Mutant(
            "a flag is not reset on retry",
            "    context.set_joined(data, False)\n",
            "",
            "what_comes_after_a_server_waits_for_it_in_every_generation()",
        ),
        Mutant(
            "a notice of preemption explains what happens long after it",
            "return container.noticed_until is not None and not context.passed(container.noticed_until)",
            "return container.noticed_until is not None",
            "a_preemption_that_was_announced_and_did_not_come_excuses_nothing_later()",
        ),
        Mutant(
            "a program whose agent was away is never asked to save",
            "        _ask_if_not_saved(context, data)\n",
            "",
            "a_program_whose_agent_was_away_at_a_notice_of_preemption_is_asked_to_save()",
        ),
        Mutant(
            "a program is asked to save for its predecessor's preemption",
            "    data.save_request = None\n",
            "",
            "a_program_that_has_saved_for_a_preemption_or_started_after_it_is_not_asked_again()",
        ),
        Mutant(
            "a program is asked to save for ever",
            "if request is not None and not context.passed(request.until):",
            "if request is not None:",
            "nobody_is_asked_to_save_long_after_a_preemption_that_did_not_come()",
        ),
        Mutant(
            "a program that was killed before we stopped it counts as stopped by us",
            "    by_itself = done.stopped is False\n",
            "    by_itself = False\n",
            "a_kill_that_is_heard_of_after_its_peers_errors_is_the_cause()",
        ),
        Mutant(
            "a program whose container is taken back counts as having succeeded",
            "    if done.stopped and not done.out_of_memory:\n        _agent_ended(context, data)\n    elif",
            "    if False:\n        pass\n    elif",
            "a_program_that_was_ended_with_its_container_has_neither_succeeded_nor_failed("
            "Exit(code=0), Restart.GANG)",
        ),
        Mutant(
            "a lone restart keeps the old topology",
            "        context.state.rewired = True  #",
            "        pass  #",
            "tasks_that_come_back_alone_at_once_are_told_true_addresses()",
        ),
        Mutant(
            "what still saves is cut short by another order to stop",
            "    if saving is None:  #",
            "    if True:  #",
            "a_job_that_ends_lets_an_attempt_save_that_had_ended_before()",
        ),
        Mutant(
            "a failure is known only when all is saved",
            "    elif _failed(event.exit) and not event.exit.stopped:\n",
            "    elif False:\n",
            "an_attempt_that_saves_for_minutes_after_its_crash_is_waited_for()",
        ),
        Mutant(
            "what was said as saving began is a failure again at the end",
            "    return exit.out_of_memory and not (data.exit is not None and data.exit.out_of_memory)\n",
            "    return exit.out_of_memory\n",
            "a_program_that_ran_out_of_memory_and_then_saves_has_failed_once()",
        ),
        Mutant(
            "a task that came back alone has no start-up limit",
            '    context.set_time(data, "deadline", deadline)  # to join its peers, as before\n',
            "",
            "a_task_that_came_back_alone_has_a_start_up_limit_too()",
        ),
        Mutant(
            "a backend that needs long for the last files is not waited for",
            "context.now + context.plan.give_back_s",
            "context.now + 30.0",
            "an_end_that_comes_late_is_waited_for_as_long_as_its_backend_needs()",
        ),
        Mutant(
            "a firm stop is like any other",
            "    if context.state.firm:\n        return 0.0, 0.0\n",
            "",
            "a_firm_stop_after_a_stop_ends_programs_and_saving()",
        ),
        Mutant(
            "mode each tells the size of the world so far",
            "    if context.each() and context.in_gang(data.task):\n",
            "    if False:\n",
            "in_mode_each_everyone_is_told_the_planned_size_of_the_world(Restart.TASK)",
        ),
    ],
    "gang.py": [
        Mutant(
            "a request that is never met waits for ever",
            "state.allocation_until = None if limit is None else context.now + limit",
            "state.allocation_until = None",
            "the_last_worker_of_a_cluster_that_has_too_little_is_waited_for_only_so_long()",
        ),
        Mutant(
            "two jobs each keep a half of the machines",
            "        _give_part_back(context)\n",
            "        pass\n",
            "the_last_worker_of_a_cluster_that_has_too_little_is_waited_for_only_so_long()",
        ),
        Mutant(
            "a retired task counts as one the gang holds",
            "any(context.count(role, (S.LAUNCHING, S.IDLE)) < role.minimum for role in roles)",
            "any(role.maximum - context.count(role, (S.WAITING,)) < role.minimum for role in roles)",
            "a_gang_that_does_without_a_retired_task_is_not_held_in_part_for_ever()",
        ),
        Mutant(
            "a gang does not wait for its old agents",
            "    return bool(living)\n",
            "    return False\n",
            "a_program_out_of_reach_is_over_before_its_successor_starts(GANG)",
        ),
        Mutant(
            "growth runs a member again that has succeeded",
            "if not new or any(context.count(role, (S.SUCCEEDED,)) for role in roles):",
            "if not new:",
            "growth_never_runs_a_member_again_that_has_succeeded()",
        ),
        Mutant(
            "growth does not wait for the checkpoint that it asked for",
            "limit = context.plan.grow_save_s if context.plan.checkpoints else 0.0",
            "limit = 0.0",
            "growth_waits_for_the_checkpoint_that_it_asked_for()",
        ),
        Mutant(
            "growth waits for ever for a checkpoint",
            "(state.checkpoint != growth.checkpoint or context.passed(growth.until))",
            "state.checkpoint != growth.checkpoint",
            "growth_does_not_wait_for_ever_for_a_checkpoint()",
        ),
        Mutant(
            "each container that trickles in costs a restart",
            "context.plan.elastic_wait_s * 2 ** min(state.growths, 6)",
            "context.plan.elastic_wait_s",
            "containers_that_trickle_in_do_not_cost_a_restart_each()",
        ),
    ],
    "reconcile.py": [
        Mutant(
            "a tracked failure ends as success",
            "succeeded = context.count(role, (S.SUCCEEDED,))\n        if succeeded == role.maximum or",
            "succeeded = context.count(role, (S.SUCCEEDED, S.ENDED))\n        if succeeded == role.maximum or",
            "after_a_crash_the_whole_gang_restarts_in_its_containers()",
        ),
        Mutant(
            "a server that was ended with its gang is not renewed",
            "        tasks.renew(context, data)  # it was ended with a gang that is not its own\n",
            "        pass\n",
            "servers_that_were_ended_as_their_stage_was_done_are_renewed()",
        ),
        Mutant(
            "an attempt that cannot be ended is waited for",
            '        tasks.give_up(context, container, "its attempt could not be ended")\n',
            "        pass\n",
            "a_hung_task_that_cannot_be_killed_loses_its_container(Restart.TASK)",
        ),
        Mutant(
            "stacks that never come are waited for",
            "(check.awaiting and not context.passed(check.until))",
            "check.awaiting",
            "a_hung_task_whose_agent_answers_nothing_loses_its_container(Restart.GANG)",
        ),
        Mutant(
            "a sidecar is held to the start-up limit of the gang",
            "elif context.in_gang(data.task) and context.state.phase is JobPhase.STARTING:",
            "elif True:",
            'what_is_optional_does_no_harm("a sidecar that never joins anything")',
        ),
        Mutant(
            "a role that was waited for long enough is waited for",
            "    context.state.released.append(role.name)\n",
            "",
            "a_lingering_evaluator_is_ended_when_its_time_is_over()",
        ),
        Mutant(
            "the rest of a gang waits for what has failed before it began",
            "members -= sum(data.retired for data in context.in_states([role], S.ENDED))",
            "pass",
            "a_gang_begins_without_a_worker_that_cannot_be_prepared()",
        ),
        Mutant(
            "tasks that are done keep their containers until the job ends",
            '        tasks.release(context, data, "it is done")',
            "        pass",
            "a_task_of_mode_each_that_is_done_keeps_no_container_from_others()",
        ),
        Mutant(
            "a success during a failure window is thrown away",
            "if state.phase not in (*WORKING, JobPhase.FAILURE_WINDOW):",
            "if state.phase not in WORKING:",
            "a_chief_that_succeeds_while_the_gang_breaks_has_succeeded()",
        ),
    ],
    "restart.py": [
        Mutant(
            "the restart budget is never spent",
            "        unit.counted += 1\n",
            "        pass\n",
            "a_crash_in_every_attempt_ends_the_job_when_they_are_spent()",
        ),
        Mutant(
            "ports may be taken for ever at no cost",
            "    return unit.ports_taken > rule.free\n",
            "    return False\n",
            "ports_that_are_taken_time_after_time_count_from_the_fourth_on(7200.0, 1)",
        ),
        Mutant(
            "all tasks share one budget",
            "    if context.state.phase in BREAKING:\n        return context.gang_unit\n    if _alone",
            "    if True:\n        return context.gang_unit\n    if _alone",
            "each_unit_has_a_budget_of_its_own()",
        ),
        Mutant(
            "what does not count is added up over a lifetime",
            "    if quiet:\n",
            "    if False:\n",
            "a_preemption_a_week_never_fails_a_job_without_checkpoints(SINGLE)",
        ),
        Mutant(
            "what does not count is tried for ever",
            "if not failure.counted and unit.uncounted > context.plan.retry_limit:",
            "if False:",
            "preemptions_without_any_time_between_end_the_job_after_a_few()",
        ),
        Mutant(
            "what does not count is tried again without a pause",
            "    if repeats <= 1:\n",
            "    if True:\n",
            "preemptions_without_any_time_between_end_the_job_after_a_few()",
        ),
        Mutant(
            "the backend's own word on a container is not waited for",
            "    return not context.passed(unit.explain_until)\n",
            "    return False\n",
            "a_program_that_was_ended_with_its_container_has_neither_succeeded_nor_failed("
            "Exit(code=0), Restart.TASK)",
        ),
        Mutant(
            "a survivor is not told to end",
            "S.PREPARING, S.PREPARED, S.STARTING, S.RUNNING):",
            "S.PREPARING, S.PREPARED, S.STARTING):",
            "after_a_crash_the_whole_gang_restarts_in_its_containers()",
        ),
        Mutant(
            "a task above the elastic minimum decides the job",
            "if unit.uncounted > context.plan.retry_limit and not context.optional(data):",
            "if unit.uncounted > context.plan.retry_limit:",
            'what_is_optional_does_no_harm("elastic tasks that cannot be launched")',
        ),
        Mutant(
            "a sidecar's pause is lost when the gang breaks",
            "if unit is not gang and context.in_gang(state.tasks[unit.name].task):",
            "if unit is not gang:",
            "a_sidecar_comes_back_whenever_the_gang_restarts(0.5)",
        ),
        Mutant(
            "a worker that may fail takes the gang along",
            "if _alone(context, data) or _tolerated(context, report):",
            "if _alone(context, data):",
            "a_worker_that_may_fail_disturbs_nobody(Restart.GANG)",
        ),
        Mutant(
            "a job of which every task has failed succeeds",
            "        if _all_failed(context):\n",
            "        if False:\n",
            "a_job_of_which_every_task_has_failed_has_failed()",
        ),
        Mutant(
            "a lost machine is tolerated as a failure",
            "return context.tolerated(report.task) and RULES[report.cause].counted",
            "return context.tolerated(report.task)",
            "a_lost_machine_of_a_worker_that_may_fail_is_replaced()",
        ),
        Mutant(
            "what had failed is missing in the gang that restarts",
            "                data.retired = False\n",
            "                pass\n",
            "a_gang_that_restarts_tries_again_what_had_failed()",
        ),
    ],
    "causes.py": [
        Mutant(
            "restarts for a port that somebody took count nothing",
            "    if exit.port_owner:\n        return FailureCause.PORT_HIJACKED\n",
            "    if exit.port_owner:\n        return FailureCause.PORT_TAKEN\n",
            "a_port_that_another_user_takes_in_every_attempt_ends_the_job_when_they_are_spent()",
        ),
        Mutant(
            "a store that is away for a moment ends the job",
            "return FailureCause.NOT_READY",
            "return FailureCause.START_FAILED",
            "a_store_that_is_away_at_a_restore_is_tried_again(Restart.GANG)",
        ),
    ],
    "event_context.py": [
        Mutant(
            "chance is drawn from outside the journal",
            'random.Random(f"{self.state.seed}/{self.state.draws}").random()',
            "random.random()",
            "a_store_that_stays_away_ends_the_job_after_a_while(Restart.GANG)",
        ),
        Mutant(
            "the index of tasks is not kept",
            "        by_state[before].discard(number)\n",
            "        if self.state.generation < 2:\n            by_state[before].discard(number)\n",
            "after_a_crash_the_whole_gang_restarts_in_its_containers()",
        ),
        Mutant(
            "a failing sidecar decides the job",
            "return role.tracking is Tracking.SIDECAR or data.task.index >= role.minimum",
            "return data.task.index >= role.minimum",
            'what_is_optional_does_no_harm("a sidecar that crashes for ever")',
        ),
        Mutant(
            "a failure of what is no longer waited for is tolerated",
            "if first is None or task.role in self.state.released:",
            "if first is None:",
            "an_evaluator_that_is_no_longer_waited_for_still_fails_the_job()",
        ),
        Mutant(
            "a phase cannot be entered that it is in already",
            "        if before is phase:\n            return\n",
            "",
            "a_stage_may_be_done_while_another_container_is_still_waited_for(Mode.EACH)",
        ),
        Mutant(
            "what a command follows from is not said",
            '        msgspec.structs.force_setattr(command, "cause", self.cause)\n',
            "",
            "a_gang_with_servers_and_a_sidecar_starts_and_succeeds()",
        ),
    ],
    "job_completion.py": [
        Mutant(
            "requests are not taken back when the job ends",
            "    containers.cancel_requests(context)\n",
            "",
            "requests_that_can_never_be_met_end_the_job_with_one_record(10)",
        ),
    ],
}
"""By the file of the core that has the bug."""


@contextmanager
def loaded_anew() -> Iterator[None]:
    """What is imported of the core and of what runs it, and not what is loaded already."""
    before = {name: module for name, module in sys.modules.items() if name.startswith(RELOADED)}
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.startswith(RELOADED)]:
            del sys.modules[name]
        for name, module in before.items():
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, module)


@pytest.mark.parametrize(
    ("file", "mutant"),
    [
        pytest.param(file, mutant, id=mutant.bug)
        for file, mutants in MUTANTS.items()
        for mutant in mutants
    ],
)
def test_a_seeded_bug_is_told_of(file: str, mutant: Mutant) -> None:
    text = (SOURCE / file).read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1, f"{file} has not once {mutant.before!r}"
    code = compile(text.replace(mutant.before, mutant.after), file, "exec")
    with loaded_anew():
        core = importlib.import_module("howdah.core")
        module = ModuleType(f"howdah.core.{file.removesuffix('.py')}")
        sys.modules[module.__name__] = module
        exec(code, vars(module))
        setattr(core, file.removesuffix(".py"), module)
        scenarios = importlib.import_module("tests.simulation.test_scenarios")
        wrong = (AssertionError, importlib.import_module("howdah.core.state").ImpossibleMove)
        with pytest.raises(wrong):
            eval(f"test_{mutant.scenario}", vars(scenarios))
