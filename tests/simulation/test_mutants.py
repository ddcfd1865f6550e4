"""Seeded bugs of the kinds others really had, or that were found here: one scenario tells of each.

A mutant is a copy of the core with one piece of text replaced. The scenario named in its row is told
over that copy, in a process of its own, and must come to a wrong end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import howdah

SOURCE = Path(howdah.__file__).parent
ROOT = Path(__file__).parents[2]
FOUND = 3
"""Exit code of a process whose scenario has come to a wrong end."""
TELL = f"""
import sys
from howdah.core.state import ImpossibleMove
from tests.simulation import test_scenarios

try:
    eval("test_" + sys.argv[1], vars(test_scenarios))
except (AssertionError, ImpossibleMove) as error:
    print(type(error).__name__, error)
    sys.exit({FOUND})
"""


class Mutant(msgspec.Struct, frozen=True):
    bug: str
    file: str
    before: str
    after: str
    scenario: str
    """A call of a test of `tests.simulation.test_scenarios`, without its ``test_``."""


MUTANTS = [
    # asking for containers
    Mutant(
        "of a batch of requests only the first is made",
        "containers.py",
        "RequestContainers(requests=tuple(requests),",
        "RequestContainers(requests=tuple(requests[:1]),",
        "a_gang_with_servers_and_a_sidecar_starts_and_succeeds()",
    ),
    Mutant(
        "a container that was not asked for leaks",
        "containers.py",
        "    _take_unknown(context, event.container_id, event.node)\n",
        "",
        "a_container_granted_for_a_request_that_was_cancelled_is_given_back()",
    ),
    Mutant(
        "a container granted to a dead coordinator leaks",
        "containers.py",
        '        _take_unknown(context, container_id, "?")\n',
        "        pass\n",
        "a_container_granted_to_a_dead_coordinator_is_given_back_by_the_next()",
    ),
    Mutant(
        "time in which the coordinator could not act counts against agents",
        "machine.py",
        "    if event.late_s:\n",
        "    if False:\n",
        "a_coordinator_that_could_not_act_for_a_while_gives_agents_so_much_longer(LONE)",
    ),
    Mutant(
        "a program that is about to start misses the notice of a preemption",
        "task.py",
        "        settle_joined(context, data)\n    _ask_if_not_saved(context, data)\n",
        "        settle_joined(context, data)\n",
        "programs_that_were_about_to_start_at_a_notice_of_preemption_are_asked_to_save()",
    ),
    Mutant(
        "a new coordinator counts a lease that the one before it has renewed",
        "containers.py",
        "    if container.connected or container.silent:\n",
        "    if container.connected:\n",
        "what_a_coordinator_that_died_may_have_heard_renews_the_lease_of_an_agent"
        "(GANG, pytest.MonkeyPatch())",
    ),
    Mutant(
        "a new coordinator waits for what its predecessor has asked for",
        "containers.py",
        "    cancel_requests(context)\n\n\ndef _resume",
        "\n\ndef _resume",
        "a_new_coordinator_asks_again_for_what_the_former_one_had_asked_for()",
    ),
    Mutant(
        "a request that is never met waits for ever",
        "gang.py",
        "state.allocation_until = None if limit is None else context.now + limit",
        "state.allocation_until = None",
        "the_last_worker_of_a_cluster_that_has_too_little_is_waited_for_only_so_long()",
    ),
    Mutant(
        "the total time begins with the coordinator",
        "machine.py",
        "total_s - event.waited_s",
        "total_s",
        "what_a_job_has_waited_in_its_queue_is_part_of_its_total_time()",
    ),
    Mutant(
        "a job that has waited too long ends before it begins",
        "machine.py",
        "max(total_s - event.waited_s, min(total_s, LEAST_TOTAL_S))",
        "total_s - event.waited_s",
        "a_job_that_has_waited_for_all_of_its_total_time_may_still_begin()",
    ),
    Mutant(
        "two jobs each keep a half of the machines",
        "gang.py",
        "        _give_part_back(context)\n",
        "        pass\n",
        "the_last_worker_of_a_cluster_that_has_too_little_is_waited_for_only_so_long()",
    ),
    Mutant(
        "a retired task counts as one the gang holds",
        "gang.py",
        "any(context.count(role, (S.LAUNCHING, S.IDLE)) < role.minimum for role in roles)",
        "any(role.maximum - context.count(role, (S.WAITING,)) < role.minimum for role in roles)",
        "a_gang_that_does_without_a_retired_task_is_not_held_in_part_for_ever()",
    ),
    # what agents say
    Mutant(
        "a retried registration counts twice",
        "task.py",
        "(S.PREPARING, AgentRegistered): _registered_preparing",
        "(S.PREPARING, AgentRegistered): _registered",
        'a_connection_lost_while_the_gang_is_forming_costs_nothing("preparing")',
    ),
    Mutant(
        "a preparation lost with the connection is not told again",
        "task.py",
        "        _send_prepare(context, data)  # the first one was lost on the way\n",
        "        pass\n",
        'a_lost_order_to_prepare_is_given_again_with_the_ports_to_keep("connection")',
    ),
    Mutant(
        "a preparation told again forgets the ports to keep",
        "task.py",
        "            keep_ports=data.keep_ports,\n",
        "",
        'a_lost_order_to_prepare_is_given_again_with_the_ports_to_keep("coordinator")',
    ),
    Mutant(
        "a start lost with the connection is not told again",
        "task.py",
        "        _send_start(context, data)  # the first one was lost on the way\n",
        "        pass\n",
        'a_connection_lost_while_the_gang_is_forming_costs_nothing("starting")',
    ),
    Mutant(
        "a stale message of an old attempt is believed",
        "machine.py",
        "current = data.attempt == event.attempt\n",
        "current = True\n",
        "what_an_older_attempt_says_late_changes_nothing()",
    ),
    Mutant(
        "a checkpoint that an old attempt saved late is the newest",
        "machine.py",
        "event.attempt != data.attempt:\n        return  # of an attempt",
        "event.attempt > data.attempt:\n        return  # of an attempt",
        "a_checkpoint_that_an_older_attempt_saved_late_is_not_the_newest()",
    ),
    Mutant(
        "a flag is not reset on retry",
        "task.py",
        "    context.set_joined(data, False)\n",
        "",
        "what_comes_after_a_server_waits_for_it_in_every_generation()",
    ),
    # agents out of reach
    Mutant(
        "an agent outlives its lost node",
        "containers.py",
        "    tasks.give_back(context, container)  # its agent is told over its own connection\n",
        "",
        "an_agent_on_a_node_called_lost_is_told_to_end_over_its_own_connection(GANG)",
    ),
    Mutant(
        "a lost connection is never acted upon",
        "containers.py",
        'context.set_time(container, "deadline", context.now + patience_s)',
        "pass",
        "an_agent_that_does_not_come_back_is_not_believed_to_have_ended(GANG, 0.0)",
    ),
    Mutant(
        "a connection that broke counts as an agent that has ended",
        "containers.py",
        "        container.silent = True  # a connection that breaks",
        "        # a connection that breaks",
        "an_agent_that_does_not_come_back_is_not_believed_to_have_ended(LONE, 0.0)",
    ),
    Mutant(
        "silence counts as an agent that has ended",
        "containers.py",
        "container.connected, container.silent = False, True\n    container.heard",
        "container.connected, container.silent = False, False\n    container.heard",
        "an_agent_that_only_falls_silent_is_not_believed_to_have_ended(ONE_BY_ONE)",
    ),
    Mutant(
        "a new coordinator believes a backend that has forgotten a container",
        "containers.py",
        "if may_live(container) and (container.ended or not ended):",
        "if False:",
        "a_new_coordinator_waits_for_the_same_agents_out_of_reach(GANG)",
    ),
    Mutant(
        "a new coordinator gives up what the backend has not named yet",
        "containers.py",
        "if container.container_id in alive or awaited:",
        "if container.container_id in alive:",
        "programs_go_on_whose_containers_a_new_coordinator_is_told_of_later()",
    ),
    Mutant(
        "a gang does not wait for its old agents",
        "gang.py",
        "    return bool(living)\n",
        "    return False\n",
        "a_program_out_of_reach_is_over_before_its_successor_starts(GANG)",
    ),
    # failures
    Mutant(
        "a tracked failure ends as success",
        "reconcile.py",
        "succeeded = context.count(role, (S.SUCCEEDED,))\n        if succeeded == role.maximum or",
        "succeeded = context.count(role, (S.SUCCEEDED, S.ENDED))\n        if succeeded == role.maximum or",
        "after_a_crash_the_whole_gang_restarts_in_its_containers()",
    ),
    Mutant(
        "the restart budget is never spent",
        "restart.py",
        "        unit.counted += 1\n",
        "        pass\n",
        "a_crash_in_every_attempt_ends_the_job_when_they_are_spent()",
    ),
    Mutant(
        "restarts for a port that somebody took count nothing",
        "causes.py",
        "    if exit.port_owner:\n        return FailureCause.PORT_HIJACKED\n",
        "    if exit.port_owner:\n        return FailureCause.PORT_TAKEN\n",
        "a_port_that_another_user_takes_in_every_attempt_ends_the_job_when_they_are_spent()",
    ),
    Mutant(
        "ports may be taken for ever at no cost",
        "restart.py",
        "    return unit.ports_taken > rule.free\n",
        "    return False\n",
        "progress_between_them_makes_taken_ports_cost_no_less()",
    ),
    Mutant(
        "all tasks share one budget",
        "restart.py",
        "    if context.state.phase in BREAKING:\n        return context.gang_unit\n    if _alone",
        "    if True:\n        return context.gang_unit\n    if _alone",
        "each_unit_has_a_budget_of_its_own()",
    ),
    Mutant(
        "what does not count is added up over a lifetime",
        "restart.py",
        "    if quiet:\n",
        "    if False:\n",
        "a_preemption_a_week_never_fails_a_job_without_checkpoints(SINGLE)",
    ),
    Mutant(
        "what does not count is tried for ever",
        "restart.py",
        "if not failure.counted and unit.uncounted > context.plan.retry_limit:",
        "if False:",
        "preemptions_without_any_time_between_end_the_job_after_a_few()",
    ),
    Mutant(
        "what does not count is tried again without a pause",
        "restart.py",
        "    if repeats <= 1:\n",
        "    if True:\n",
        "preemptions_without_any_time_between_end_the_job_after_a_few()",
    ),
    Mutant(
        "an agent that was told to go and hangs up is taken for gone",
        "containers.py",
        "    elif container.former is not None and not container.over:\n        # It was told",
        "    elif False:\n        # It was told",
        "an_agent_that_hangs_up_before_it_has_heard_that_it_is_to_go_is_waited_for(GANG)",
    ),
    Mutant(
        "the word of an agent that it has ended what it was told to is not heard",
        "containers.py",
        "            container.over = True\n",
        "            pass\n",
        "an_agent_on_a_node_called_lost_is_told_to_end_over_its_own_connection(GANG)",
    ),
    Mutant(
        "a notice of preemption explains what happens long after it",
        "task.py",
        "return container.noticed_until is not None and not context.passed(container.noticed_until)",
        "return container.noticed_until is not None",
        "a_preemption_that_was_announced_and_did_not_come_excuses_nothing_later()",
    ),
    Mutant(
        "a program whose agent was away is never asked to save",
        "task.py",
        "        _ask_if_not_saved(context, data)\n",
        "",
        "a_program_whose_agent_was_away_at_a_notice_of_preemption_is_asked_to_save()",
    ),
    Mutant(
        "a program that has saved is asked to once more",
        "machine.py",
        "    data.save_request = None\n",
        "",
        "a_program_that_has_saved_for_a_preemption_or_started_after_it_is_not_asked_again()",
    ),
    Mutant(
        "a program is asked to save for its predecessor's preemption",
        "task.py",
        "    data.save_request = None\n",
        "",
        "a_program_that_has_saved_for_a_preemption_or_started_after_it_is_not_asked_again()",
    ),
    Mutant(
        "a program is asked to save for ever",
        "task.py",
        "if request is not None and not context.passed(request.until):",
        "if request is not None:",
        "nobody_is_asked_to_save_long_after_a_preemption_that_did_not_come()",
    ),
    Mutant(
        "a store that is away for a moment ends the job",
        "causes.py",
        "return FailureCause.NOT_READY",
        "return FailureCause.START_FAILED",
        "a_store_that_is_away_at_a_restore_is_tried_again(Restart.GANG)",
    ),
    Mutant(
        "a program that was killed before we stopped it counts as stopped by us",
        "task.py",
        "    by_itself = done.stopped is False\n",
        "    by_itself = False\n",
        "a_kill_that_is_heard_of_after_its_peers_errors_is_the_cause()",
    ),
    Mutant(
        "a program whose container is taken back counts as having succeeded",
        "task.py",
        "    if done.stopped and not done.out_of_memory:\n        _agent_ended(context, data)\n    elif",
        "    if False:\n        pass\n    elif",
        "a_program_that_was_ended_with_its_container_has_neither_succeeded_nor_failed("
        "Exit(code=0), Restart.GANG)",
    ),
    Mutant(
        "the backend's own word on a container is not waited for",
        "restart.py",
        "    return not context.passed(unit.explain_until)\n",
        "    return False\n",
        "a_program_that_was_ended_with_its_container_has_neither_succeeded_nor_failed("
        "Exit(code=0), Restart.TASK)",
    ),
    Mutant(
        "a survivor is not told to end",
        "restart.py",
        "S.PREPARING, S.PREPARED, S.STARTING, S.RUNNING):",
        "S.PREPARING, S.PREPARED, S.STARTING):",
        "after_a_crash_the_whole_gang_restarts_in_its_containers()",
    ),
    Mutant(
        "a lone restart keeps the old topology",
        "task.py",
        "        context.state.rewired = True  #",
        "        pass  #",
        "tasks_that_come_back_alone_at_once_are_told_true_addresses()",
    ),
    Mutant(
        "chance is drawn from outside the journal",
        "event_context.py",
        'random.Random(f"{self.state.seed}/{self.state.draws}").random()',
        "random.random()",
        "a_store_that_stays_away_ends_the_job_after_a_while(Restart.GANG)",
    ),
    Mutant(
        "the index of tasks is not kept",
        "event_context.py",
        "        by_state[before].discard(number)\n",
        "        if self.state.generation < 2:\n            by_state[before].discard(number)\n",
        "after_a_crash_the_whole_gang_restarts_in_its_containers()",
    ),
    # what is optional
    Mutant(
        "a failing sidecar decides the job",
        "event_context.py",
        "return role.tracking is Tracking.SIDECAR or data.task.index >= role.minimum",
        "return data.task.index >= role.minimum",
        "a_sidecar_that_crashes_for_ever_does_no_harm()",
    ),
    Mutant(
        "a task above the elastic minimum decides the job",
        "restart.py",
        "if unit.uncounted > context.plan.retry_limit and not context.optional(data):",
        "if unit.uncounted > context.plan.retry_limit:",
        "tasks_above_the_elastic_minimum_that_cannot_be_launched_do_no_harm()",
    ),
    Mutant(
        "a sidecar's pause is lost when the gang breaks",
        "restart.py",
        "if unit is not gang and context.in_gang(state.tasks[unit.name].task):",
        "if unit is not gang:",
        "a_sidecar_comes_back_whenever_the_gang_restarts(0.5)",
    ),
    Mutant(
        "a server that was ended with its gang is not renewed",
        "reconcile.py",
        "        tasks.renew(context, data)  # it was ended with a gang that is not its own\n",
        "        pass\n",
        "servers_that_were_ended_as_their_stage_was_done_are_renewed()",
    ),
    # time limits and saving
    Mutant(
        "what still saves is cut short by another order to stop",
        "task.py",
        "    if saving is None:  #",
        "    if True:  #",
        "a_job_that_ends_lets_an_attempt_save_that_had_ended_before()",
    ),
    Mutant(
        "a failure is known only when all is saved",
        "task.py",
        "    elif _failed(event.exit) and not event.exit.stopped:\n",
        "    elif False:\n",
        "an_attempt_that_saves_for_minutes_after_its_crash_is_waited_for()",
    ),
    Mutant(
        "what was said as saving began is a failure again at the end",
        "task.py",
        "    return exit.out_of_memory and not (data.exit is not None and data.exit.out_of_memory)\n",
        "    return exit.out_of_memory\n",
        "a_program_that_ran_out_of_memory_and_then_saves_has_failed_once()",
    ),
    Mutant(
        "an attempt that cannot be ended is waited for",
        "reconcile.py",
        '        tasks.give_up(context, container, "its attempt could not be ended")\n',
        "        pass\n",
        "a_hung_task_that_cannot_be_killed_loses_its_container(Restart.TASK)",
    ),
    Mutant(
        "stacks that never come are waited for",
        "reconcile.py",
        "(check.awaiting and not context.passed(check.until))",
        "check.awaiting",
        "a_hung_task_whose_agent_answers_nothing_loses_its_container(Restart.GANG)",
    ),
    Mutant(
        "a sidecar is held to the start-up limit of the gang",
        "reconcile.py",
        "elif context.in_gang(data.task) and context.state.phase is JobPhase.STARTING:",
        "elif True:",
        "a_sidecar_that_never_joins_anything_does_no_harm()",
    ),
    Mutant(
        "a task that came back alone has no start-up limit",
        "task.py",
        '    context.set_time(data, "deadline", deadline)  # to join its peers, as before\n',
        "",
        "a_task_that_came_back_alone_has_a_start_up_limit_too()",
    ),
    Mutant(
        "a role that was waited for long enough is waited for",
        "reconcile.py",
        "    context.state.released.append(role.name)\n",
        "",
        "a_lingering_evaluator_is_ended_when_its_time_is_over()",
    ),
    Mutant(
        "files that the backend could not bring home are not said",
        "containers.py",
        "    _note_unsaved(context, container, event)\n",
        "",
        "what_a_backend_could_not_bring_home_of_a_task_is_said_of_the_job()",
    ),
    Mutant(
        "a backend that needs long for the last files is not waited for",
        "task.py",
        "context.now + context.plan.give_back_s",
        "context.now + 30.0",
        "an_end_that_comes_late_is_waited_for_as_long_as_its_backend_needs()",
    ),
    # failures that are tolerated
    Mutant(
        "a worker that may fail takes the gang along",
        "restart.py",
        "if _alone(context, data) or _tolerated(context, report):",
        "if _alone(context, data):",
        "a_worker_that_may_fail_disturbs_nobody(Restart.GANG)",
    ),
    Mutant(
        "a job of which every task has failed succeeds",
        "restart.py",
        "        if _all_failed(context):\n",
        "        if False:\n",
        "a_job_of_which_every_task_has_failed_has_failed()",
    ),
    Mutant(
        "a lost machine is tolerated as a failure",
        "restart.py",
        "return context.tolerated(report.task) and RULES[report.cause].counted",
        "return context.tolerated(report.task)",
        "a_lost_machine_of_a_worker_that_may_fail_is_replaced()",
    ),
    Mutant(
        "what had failed is missing in the gang that restarts",
        "restart.py",
        "                data.retired = False\n",
        "                pass\n",
        "a_gang_that_restarts_tries_again_what_had_failed()",
    ),
    Mutant(
        "the rest of a gang waits for what has failed before it began",
        "reconcile.py",
        "members -= sum(data.retired for data in context.in_states([role], S.ENDED))",
        "pass",
        "a_gang_begins_without_a_worker_that_cannot_be_prepared()",
    ),
    Mutant(
        "a failure of what is no longer waited for is tolerated",
        "event_context.py",
        "if first is None or task.role in self.state.released:",
        "if first is None:",
        "an_evaluator_that_is_no_longer_waited_for_still_fails_the_job()",
    ),
    # growth
    Mutant(
        "growth runs a member again that has succeeded",
        "gang.py",
        "if not new or any(context.count(role, (S.SUCCEEDED,)) for role in roles):",
        "if not new:",
        "growth_never_runs_a_member_again_that_has_succeeded()",
    ),
    Mutant(
        "growth does not wait for the checkpoint that it asked for",
        "gang.py",
        "limit = context.plan.grow_save_s if context.plan.checkpoints else 0.0",
        "limit = 0.0",
        "growth_waits_for_the_checkpoint_that_it_asked_for()",
    ),
    Mutant(
        "growth waits for ever for a checkpoint",
        "gang.py",
        "(state.checkpoint != growth.checkpoint or context.passed(growth.until))",
        "state.checkpoint != growth.checkpoint",
        "growth_does_not_wait_for_ever_for_a_checkpoint()",
    ),
    Mutant(
        "each container that trickles in costs a restart",
        "gang.py",
        "context.plan.elastic_wait_s * 2 ** min(state.growths, 6)",
        "context.plan.elastic_wait_s",
        "containers_that_trickle_in_do_not_cost_a_restart_each()",
    ),
    # stages and ends
    Mutant(
        "a phase cannot be entered that it is in already",
        "event_context.py",
        "        if before is phase:\n            return\n",
        "",
        "a_stage_may_be_done_while_another_container_is_still_waited_for(Mode.EACH)",
    ),
    Mutant(
        "tasks that are done keep their containers until the job ends",
        "reconcile.py",
        '        tasks.release(context, data, "it is done")',
        "        pass",
        "a_task_of_mode_each_that_is_done_keeps_no_container_from_others()",
    ),
    Mutant(
        "a success during a failure window is thrown away",
        "reconcile.py",
        "if state.phase not in (*WORKING, JobPhase.FAILURE_WINDOW):",
        "if state.phase not in WORKING:",
        "a_chief_that_succeeds_while_the_gang_breaks_has_succeeded()",
    ),
    Mutant(
        "a firm stop is like any other",
        "task.py",
        "    if context.state.firm:\n        return 0.0, 0.0\n",
        "",
        "a_firm_stop_after_a_stop_ends_programs_and_saving()",
    ),
    Mutant(
        "requests are not taken back when the job ends",
        "job_completion.py",
        "    containers.cancel_requests(context)\n",
        "",
        "requests_that_can_never_be_met_end_the_job_with_one_record(10)",
    ),
    Mutant(
        "mode each tells the size of the world so far",
        "task.py",
        "    if context.each() and context.in_gang(data.task):\n",
        "    if False:\n",
        "in_mode_each_everyone_is_told_the_planned_size_of_the_world(Restart.TASK)",
    ),
    Mutant(
        "what a command follows from is not said",
        "event_context.py",
        '        msgspec.structs.force_setattr(command, "cause", self.cause)\n',
        "",
        "a_gang_with_servers_and_a_sidecar_starts_and_succeeds()",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_a_seeded_bug_is_told_of(mutant: Mutant, tmp_path: Path) -> None:
    overlay = tmp_path / "howdah"
    overlay.mkdir()
    for part in SOURCE.iterdir():
        if part.name == "core":
            shutil.copytree(part, overlay / "core")
        else:
            (overlay / part.name).symlink_to(part)
    target = overlay / "core" / mutant.file
    text = target.read_text()
    assert text.count(mutant.before) == 1, f"{mutant.file} has not once {mutant.before!r}"
    target.write_text(text.replace(mutant.before, mutant.after))
    done = subprocess.run(
        [sys.executable, "-c", TELL, mutant.scenario],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == FOUND, f"not found by {mutant.scenario}: {done.stdout}{done.stderr}"
