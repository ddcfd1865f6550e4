"""The environment of a program."""

from __future__ import annotations

from typing import Any

from howdah.agent.programs import Additions, complete_environment


def made(
    base: dict[str, str] | None = None, told: dict[str, str] | None = None, **more: Any
) -> dict[str, str]:
    settings: dict[str, Any] = {
        "marker": "job/c1",
        "checkpoint_dir": "/w/task/checkpoints",
        "output_dir": "/w/outputs",
        "log_dir": "/logs/worker-0",
        "task_socket": "/run/s",
        "checkpoint_request": "/w/request",
        **more,
    }
    return complete_environment(base or {}, told or {}, Additions(**settings))


def test_the_host_s_variables_are_there_and_the_job_s_win() -> None:
    env = made({"HOME": "/root", "LANG": "C"}, {"LANG": "de_DE.UTF-8", "RANK": "3"})
    assert (env["HOME"], env["LANG"], env["RANK"]) == ("/root", "de_DE.UTF-8", "3")
    assert env["HOWDAH_CONTAINER"] == "job/c1"
    assert env["HOWDAH_CHECKPOINT_DIR"] == "/w/task/checkpoints"


def test_a_job_inside_a_task_of_another_job_does_not_inherit_who_that_task_is() -> None:
    outer = {"HOWDAH_RANK": "5", "HOWDAH_CONTAINER": "outer/c9", "HOWDAH_RESTORED": "000007"}
    env = made({**outer, "HOWDAH_HOME": "/h"})
    assert "HOWDAH_RANK" not in env
    assert "HOWDAH_RESTORED" not in env
    assert env["HOWDAH_CONTAINER"] == "job/c1"
    assert env["HOWDAH_HOME"] == "/h"


def test_the_restored_checkpoint_is_named_if_there_is_one() -> None:
    assert made(restored="000003")["HOWDAH_RESTORED"] == "000003"
    assert "HOWDAH_RESTORED" not in made()


def test_our_python_path_comes_after_the_user_s() -> None:
    assert made(python_path="/p")["PYTHONPATH"] == "/p"
    assert made({"PYTHONPATH": "/a:/b"}, python_path="/p")["PYTHONPATH"] == "/a:/b:/p"
    assert "PYTHONPATH" not in made()


def test_a_container_s_devices_are_all_it_sees() -> None:
    assert made(gpus=("GPU-1", "GPU-2"))["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert "CUDA_DEVICE_ORDER" not in made(gpus=("GPU-1", "GPU-2"))
    assert made(gpus=("0", "1"))["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert made({"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"] == ""
    assert made({"CUDA_VISIBLE_DEVICES": "0"}, gpus=None)["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in made(gpus=None)
    told = {"CUDA_VISIBLE_DEVICES": "1"}
    assert made(told=told)["CUDA_VISIBLE_DEVICES"] == "1"
    assert made(told=told, gpus=("GPU-1",))["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_the_shared_folder_of_the_job_wins_over_the_container_s() -> None:
    assert made(shared_dir="/s")["HOWDAH_SHARED_DIR"] == "/s"
    assert made(told={"HOWDAH_SHARED_DIR": "/t"}, shared_dir="/s")["HOWDAH_SHARED_DIR"] == "/t"
