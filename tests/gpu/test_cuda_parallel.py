"""Jobs of several processes on GPUs, one each, over NCCL."""

from pathlib import Path

import pytest
import yaml
from ranks import largest_difference, rows, run_torchrun
from runs import settings

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def losses(folder: Path, processes: int) -> list[dict]:
    tree = settings(folder, model={"dropout": 0.0}, run={"device": "cuda", "precision": "fp32"})
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    job = run_torchrun(processes, "pretrain", config, "--output", folder / f"of {processes}")
    assert job.code == 0, job.err
    return [row for row in rows(folder / f"of {processes}") if "loss" in row]


def test_torchrun_with_one_process_trains_on_cuda(tmp_path: Path) -> None:
    assert [row["step"] for row in losses(tmp_path, 1)] == list(range(1, 9))


def test_two_gpus_give_the_losses_of_one(tmp_path: Path) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert largest_difference(losses(tmp_path, 1), losses(tmp_path, 2)) < 1e-4
