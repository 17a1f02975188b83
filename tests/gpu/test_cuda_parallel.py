"""Jobs of several processes on GPUs, one each, over NCCL; what one GPU can show of them, in a group of one process."""

import copy
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from group_of_one import Heads, gradients, group_of_one
from ranks import largest_difference, rows, run_torchrun
from runs import settings, write_fasta

import seqbert
from seqbert.training.parallel import World, replica_of, without_exchange

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

BACKEND = "cuda:nccl,cpu:gloo"


def test_a_replica_over_nccl_has_the_gradients_of_its_module(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module = Heads().cuda()
    expected = gradients(copy.deepcopy(module), nullcontext, "cuda")
    with group_of_one(tmp_path, BACKEND):
        replica = replica_of(module)
        found = gradients(replica, lambda: without_exchange(replica), "cuda")
    for name, gradient in expected.items():
        if gradient is None:
            assert found[name] is None
        else:
            torch.testing.assert_close(found[name], gradient)
    assert "find_unused_parameters" not in capfd.readouterr().err


def test_no_step_of_a_replica_waits_for_the_gpu(tmp_path: Path) -> None:
    module = torch.nn.Linear(64, 64).cuda()
    inputs = torch.ones(8, 64, device="cuda")
    with group_of_one(tmp_path, BACKEND):
        replica = replica_of(module)
        for _ in range(3):
            replica(inputs).sum().backward()
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)  # cycles: about a second
        replica(inputs).sum().backward()
        assert not torch.cuda.current_stream().query()
        torch.cuda.synchronize()


def test_a_run_through_a_replica_over_nccl_has_the_losses_of_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domains = {"dna": {"data": [str(write_fasta(tmp_path / "dna"))], "validation": 0.1, "weight": 0.4}}
    run = {"device": "cuda", "precision": "fp32", "micro_tokens": 100}
    tree = settings(tmp_path, domains=domains, model={"dropout": 0.0}, run=run)
    seqbert.pretrain(tree, ["--output", str(tmp_path / "plain")])
    made = []
    monkeypatch.setattr(World, "replicate", lambda _, module: made.append(replica_of(module)) or made[-1])
    with group_of_one(tmp_path, BACKEND):
        seqbert.pretrain(tree, ["--output", str(tmp_path / "replica")])
    assert len(made) == 1
    assert largest_difference(rows(tmp_path / "plain"), rows(tmp_path / "replica")) < 1e-4


def test_processes_on_gpus_exchange_over_the_host(tmp_path: Path) -> None:
    with group_of_one(tmp_path, BACKEND) as host:
        world = World(0, 2, host=host)
        assert world.total(np.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
        assert world.tell("all of it") == "all of it"


def losses(folder: Path, processes: int) -> list[dict]:
    tree = settings(folder, model={"dropout": 0.0}, run={"device": "cuda", "precision": "fp32"})
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    job = run_torchrun(processes, "pretrain", config, "--output", folder / f"of {processes}")
    assert job.code == 0, job.err
    return [row for row in rows(folder / f"of {processes}") if "loss" in row]


def test_two_gpus_give_the_losses_of_one(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert largest_difference(losses(tmp_path, 1), losses(tmp_path, 2)) < 1e-4
