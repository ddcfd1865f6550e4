"""The exact variables of each framework, as its documentation names them."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from howdah.frameworks.addresses import MissingPeer
from howdah.frameworks.ray import PATIENCE
from howdah.spec.model import Mode, Network, Role, Timeouts
from tests.unit.frameworks.gangs import environment, job, topology

TWO = topology(("worker:0", 0), ("worker:1", 1))
WITH_CHIEF = topology(("chief:0", 0), ("worker:0", 1), ("worker:1", 2))
TWO_OF_TWO = topology(("worker:0", 0, 2), ("worker:1", 2, 2))


def test_pytorch_gets_what_env_initialisation_torchrun_and_tony_read():
    made = job("pytorch", {"chief": 1, "worker": 2})
    assert environment(made, WITH_CHIEF, "worker:1") == {
        "MASTER_ADDR": "h0",
        "MASTER_PORT": "20000",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "NODE_RANK": "2",
        "INIT_METHOD": "tcp://h0:20000",
        "WORLD": "3",
        "PET_NNODES": "3",
        "PET_NODE_RANK": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "h0",
        "PET_MASTER_PORT": "20000",
        "PET_RDZV_ENDPOINT": "h0:20000",
        "PET_MAX_RESTARTS": "0",
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    ("role", "threads"),
    [
        (Role(instances=2, cores=8), "8"),
        (Role(instances=2, cores=8, processes=2), "4"),
        (Role(instances=2, cores=8, gpus=4), "2"),
        (Role(instances=2, cores=1, processes=2), "1"),
        (Role(instances=2, env={"OMP_NUM_THREADS": "3"}), None),
    ],
)
def test_a_pytorch_program_has_its_share_of_the_cores(role: Role, threads: str | None):
    place = TWO_OF_TWO if role.processes == 2 else TWO
    made = job("pytorch", {"worker": role})
    assert environment(made, place, "worker:1").get("OMP_NUM_THREADS") == threads


def test_several_pytorch_processes_of_a_task_have_local_ranks():
    made = job("pytorch", {"worker": Role(instances=2, processes=2)})
    seen = [
        tuple(
            environment(made, TWO_OF_TWO, name, process)[key]
            for key in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "WORLD_SIZE")
        )
        for name in ("worker:0", "worker:1")
        for process in (0, 1)
    ]
    assert seen == [
        ("0", "0", "2", "0", "4"),
        ("1", "1", "2", "0", "4"),
        ("2", "0", "2", "1", "4"),
        ("3", "1", "2", "1", "4"),
    ]


def test_torchrun_starts_one_process_for_each_gpu_of_the_task():
    made = job("pytorch", {"worker": Role(instances=2, gpus=8)}, command="torchrun train.py")
    assert environment(made, TWO, "worker:1")["PET_NPROC_PER_NODE"] == "8"


def test_jax_gets_coordinator_number_and_id():
    made = job("jax", {"worker": 2})
    assert environment(made, TWO, "worker:1") == {
        "JAX_COORDINATOR_ADDRESS": "h0:20000",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "OMPI_MCA_orte_hnp_uri": "0.0;tcp://127.0.0.1:1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }


def test_each_of_several_jax_processes_of_a_task_has_its_own_gpu():
    made = job("jax", {"worker": Role(instances=2, processes="gpus", gpus=2)})
    env = environment(made, TWO_OF_TWO, "worker:1", 1)
    assert (env["JAX_PROCESS_ID"], env["JAX_LOCAL_DEVICE_IDS"]) == ("3", "1")


@pytest.mark.parametrize(
    ("gpus", "shares"), [(5, ["0,1", "2,3,4"]), (4, ["0,1", "2,3"]), (1, ["0", "0"])]
)
def test_the_jax_processes_of_a_task_share_its_gpus_out(gpus, shares):
    made = job("jax", {"worker": Role(instances=2, processes=2, gpus=gpus)})
    given = [environment(made, TWO_OF_TWO, "worker:1", process) for process in (0, 1)]
    assert [env["JAX_LOCAL_DEVICE_IDS"] for env in given] == shares


def test_a_single_jax_process_has_all_gpus_of_its_task():
    made = job("jax", {"worker": Role(instances=2, gpus=4)})
    assert environment(made, TWO, "worker:1")["JAX_LOCAL_DEVICE_IDS"] == "0,1,2,3"


def test_xgboost_workers_are_told_the_tracker_and_an_id_that_sorts_as_the_rank():
    made = job("xgboost", {"worker": 2})
    place = topology(("worker:0", 0), ("worker:1", 1), ("tracker:0", None))
    assert environment(made, place, "worker:1") == {
        "DMLC_TRACKER_URI": "h2",
        "DMLC_TRACKER_PORT": "20020",
        "DMLC_TASK_ID": "000001",
    }
    assert environment(made, place, "tracker:0") == {}


def test_lightgbm_gets_its_network_parameters_as_variables():
    made = job("lightgbm", {"worker": 2})
    assert environment(made, TWO, "worker:1") == {
        "LGBM_MACHINES": "h0:20000,h1:20010",
        "LGBM_NUM_MACHINES": "2",
        "LGBM_LOCAL_LISTEN_PORT": "20010",
        "LGBM_RANK": "1",
    }


def test_each_lightgbm_process_of_a_task_listens_on_a_port_of_its_own():
    made = job("lightgbm", {"worker": Role(instances=2, processes=2)})
    assert environment(made, TWO_OF_TWO, "worker:1", 1) == {
        "LGBM_MACHINES": "h0:20000,h0:20001,h1:20010,h1:20011",
        "LGBM_NUM_MACHINES": "4",
        "LGBM_LOCAL_LISTEN_PORT": "20011",
        "LGBM_RANK": "3",
    }


DASK = topology(("client:0", 0), ("scheduler:0", None), ("worker:0", None), ("worker:1", None))


@pytest.mark.parametrize("task", ["client:0", "worker:1"])
def test_dask_clients_and_workers_find_the_scheduler_by_themselves(task: str):
    made = job("dask", {"client": 1, "worker": 2})
    assert environment(made, DASK, task) == {"DASK_SCHEDULER_ADDRESS": "tcp://h1:20010"}


def test_the_dask_scheduler_itself_is_told_no_scheduler():
    assert environment(job("dask", {"client": 1, "worker": 2}), DASK, "scheduler:0") == {}


def test_a_ray_driver_beside_a_node_connects_to_the_head():
    made = job("ray", {"driver": 1, "worker": 1})
    place = topology(("driver:0", 0), ("head:0", None), ("worker:0", None))
    near = replace(place.members[0], host="h2")
    place = replace(place, members=(near, *place.members[1:]))
    found = environment(made, place, "driver:0")
    assert {name: value for name, value in found.items() if name not in PATIENCE} == {
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ADDRESS": "h1:20010",
    }


def test_rays_waits_at_start_up_are_long_unless_the_job_has_its_own():
    made = job("ray", {"driver": 1, "worker": Role(env={"RAY_NUM_REDIS_GET_RETRIES": "7"})})
    made = replace(made, env={"RAY_raylet_start_wait_time_s": "9"})
    place = topology(("driver:0", 0), ("head:0", None), ("worker:0", None))
    for task in ("driver:0", "head:0", "worker:0"):
        found = environment(made, place, task)
        assert found["RAY_agent_register_timeout_ms"] == "120000"
        assert "RAY_raylet_start_wait_time_s" not in found
        assert ("RAY_NUM_REDIS_GET_RETRIES" in found) == (task != "worker:0")


def test_a_ray_driver_on_a_host_without_a_node_uses_the_client_server():
    made = job("ray", {"driver": 1, "worker": 1})
    place = topology(("driver:0", 0), ("head:0", None), ("worker:0", None))
    assert environment(made, place, "driver:0")["RAY_ADDRESS"] == "ray://h1:20011"
    assert environment(made, place, "worker:0")["RAY_ADDRESS"] == "h1:20010"
    assert "RAY_ADDRESS" not in environment(made, place, "head:0")


HOROVOD = topology(("worker:0", 0, 2), ("worker:1", 2, 1), ("driver:0", None))


def test_horovod_processes_get_what_its_gloo_controller_reads():
    made = job("horovod", {"worker": 2}, timeouts=Timeouts(startup="90s"))
    assert environment(made, HOROVOD, "worker:1") == {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "h2",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "20020",
        "HOROVOD_RANK": "2",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_HOSTNAME": "h1-worker-1",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "90",
    }


def test_horovod_counts_across_tasks_only_those_with_that_local_rank():
    made = job("horovod", {"worker": 2})
    env = environment(made, HOROVOD, "worker:0", 1)
    names = ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")
    assert [env[name] for name in names] == ["1", "1", "0", "1"]


def test_horovods_driver_knows_how_many_take_part_in_each_rendezvous():
    env = environment(job("horovod", {"worker": 2}), HOROVOD, "driver:0")
    assert json.loads(env["HOROVOD_SCOPES"]) == {
        "global": 3,
        "global_": 3,
        "local_h0-worker-0": 2,
        "local_h1-worker-1": 1,
        "cross_0": 2,
        "cross_1": 1,
    }


def test_mpi_programs_get_open_mpis_variables():
    made = job("mpi", {"worker": Role(instances=2, processes=2)})
    assert environment(made, TWO_OF_TWO, "worker:1", 1) == {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "OMPI_COMM_WORLD_NODE_RANK": "1",
    }


def test_mpirun_is_told_of_the_nodes_and_of_no_world_around_it():
    made = job("mpi", {"worker": Role(instances=2, cores=4)}, command="mpirun -np 8 ./train")
    found = environment(made, TWO, "worker:1")
    assert found["HOWDAH_MPI_NODES"] == "worker-0=h0:20000*4,worker-1=h1:20010*4"
    assert found["HOWDAH_MPI_HOSTS"] == "worker-0:4,worker-1:4"
    assert found["HOWDAH_MPI_NODE"] == "worker-1"
    assert not [name for name in found if "COMM_WORLD" in name or "mapping_policy" in name]


def test_ranks_are_dealt_to_tasks_whose_slots_are_not_known():
    made = job("mpi", {"worker": 2}, command="mpirun -np 8 ./train")
    found = environment(made, TWO, "worker:0")
    assert found["PRTE_MCA_rmaps_default_mapping_policy"] == "node:OVERSUBSCRIBE"
    assert "OMPI_MCA_coll" not in found


def test_a_launchers_nodes_are_the_other_roles_tasks():
    made = job("mpi", {"launcher": 1, "worker": 2}, command="sh run.sh")
    place = topology(("launcher:0", 0), ("worker:0", None), ("worker:1", None))
    found = environment(made, place, "launcher:0")
    assert found["HOWDAH_MPI_HOSTS"] == "worker-0:1,worker-1:1"
    assert found["HOWDAH_MPI_NODE"] == ""
    assert environment(made, place, "worker:1")["HOWDAH_MPI_NODE"] == "worker-1"


@pytest.mark.parametrize("task", ["scheduler:0", "server:0", "worker:1"])
def test_mxnet_roles_get_the_parameter_servers_variables(task: str):
    made = job("mxnet", {"server": 1, "worker": 2})
    place = topology(("worker:0", 0), ("worker:1", 1), ("server:0", None), ("scheduler:0", None))
    assert environment(made, place, task) == {
        "DMLC_ROLE": task.partition(":")[0],
        "DMLC_PS_ROOT_URI": "h3",
        "DMLC_PS_ROOT_PORT": "20030",
        "DMLC_LOCAL": "0",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "2",
    }


def test_plain_commands_get_nothing_more():
    assert environment(job("command", {"worker": 2}), TWO, "worker:1") == {}


INTERFACES = {
    "tensorflow": {"NCCL_SOCKET_IFNAME"},
    "pytorch": {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"},
    "jax": {"NCCL_SOCKET_IFNAME"},
    "horovod": {"HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"},
    "mxnet": {"DMLC_INTERFACE"},
}


@pytest.mark.parametrize(("framework", "names"), INTERFACES.items())
def test_the_network_interface_is_handed_on(framework: str, names: set[str]):
    roles = {"worker": 2, "server": 1} if framework == "mxnet" else {"worker": 2}
    made = job(framework, roles, network=Network(interface="ib0"))
    place = topology(
        ("worker:0", 0), ("worker:1", 1), ("driver:0", None), ("scheduler:0", None),
        ("server:0", None),
    )  # fmt: skip
    env = environment(made, place, "worker:1")
    assert {name for name, value in env.items() if value == "ib0"} == names


def test_an_interface_the_user_sets_is_left_alone():
    made = job(
        "pytorch",
        {"worker": Role(instances=2, env={"NCCL_SOCKET_IFNAME": "eth1"})},
        env={"GLOO_SOCKET_IFNAME": "eth0"},
        network=Network(interface="ib0"),
    )
    env = environment(made, TWO, "worker:0")
    assert not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & set(env)


@pytest.mark.parametrize(
    "framework", ["pytorch", "jax", "xgboost", "lightgbm", "horovod", "tensorflow", "mxnet"]
)
def test_roles_a_framework_does_not_know_get_nothing(framework: str):
    made = job(framework, {"worker": 2, "loader": 1})
    place = topology(("worker:0", 0), ("worker:1", 1), ("loader:0", None))
    assert environment(made, place, "loader:0") == {}


def test_a_topology_without_the_scheduler_is_refused_in_words():
    made = job("mxnet", {"server": 1, "worker": 2})
    with pytest.raises(MissingPeer, match="no scheduler, which the others connect to"):
        environment(made, TWO, "worker:0")


def test_ipv6_hosts_are_bracketed():
    made = job("jax", {"worker": 1})
    place = topology(("worker:0", 0))
    place = replace(place, members=(replace(place.members[0], host="fd00::1"),))
    assert environment(made, place, "worker:0")["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:20000"


def test_in_mode_each_tensorflow_programs_are_on_their_own():
    assert environment(job("tensorflow", {"worker": 2}, mode=Mode.EACH), TWO, "worker:1") == {}
