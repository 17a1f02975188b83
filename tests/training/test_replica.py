"""What a module becomes in a job of several processes: a replica whose gradients are added up, and nothing else."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from group_of_one import Heads, gradients, group_of_one
from ranks import rows
from runs import settings, write_fasta
from torch import Tensor

import seqbert
from seqbert.training.logging import TIMED
from seqbert.training.parallel import World, replica_of, without_exchange


def test_a_replica_has_the_gradients_of_its_module_over_several_passes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module = Heads()
    expected = gradients(copy.deepcopy(module), nullcontext)
    with group_of_one(tmp_path):
        replica = replica_of(module)
        found = gradients(replica, lambda: without_exchange(replica))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        if gradient is None:  # not zero: an optimizer would move what no process has used
            assert name.startswith("heads.never") and found[name] is None
        else:
            torch.testing.assert_close(found[name], gradient, rtol=0, atol=0)
    assert "find_unused_parameters" not in capfd.readouterr().err


def test_a_replica_adds_no_parameter(tmp_path: Path) -> None:
    module = Heads()
    names = {name for name, _ in module.named_parameters()}
    state = torch.get_rng_state()
    with group_of_one(tmp_path):
        assert {name.removeprefix("module.") for name, _ in replica_of(module).named_parameters()} == names
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_through_a_replica_has_the_bytes_of_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = {"dna": {"data": [str(write_fasta(tmp_path / "dna"))], "validation": 0.1, "weight": 0.4}}
    tree = settings(tmp_path, domains=domains, run={"micro_tokens": 100})
    seqbert.pretrain(tree, ["--output", str(tmp_path / "plain")])
    made = []
    monkeypatch.setattr(World, "replicate", lambda _, module: made.append(replica_of(module)) or made[-1])
    with group_of_one(tmp_path):
        seqbert.pretrain(tree, ["--output", str(tmp_path / "replica")])
    assert len(made) == 1
    plain, replica = ([timeless(row) for row in rows(tmp_path / name)] for name in ("plain", "replica"))
    assert plain == replica


def timeless(row: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in row.items() if name not in TIMED})


def test_what_processes_tell_each_other_goes_from_host_to_host(monkeypatch: pytest.MonkeyPatch) -> None:
    host = object()
    seen: list[tuple[str, Tensor]] = []

    def record(name: str) -> Any:
        def collective(*given: Any, group: Any) -> None:
            assert group is host
            tensors = [tensor for part in given for tensor in (part if isinstance(part, list) else [part])]
            seen.extend((name, tensor) for tensor in tensors if isinstance(tensor, Tensor))

        return collective

    for name in ("all_gather", "all_reduce", "broadcast"):
        monkeypatch.setattr(dist, name, record(name))
    world = World(0, 2, host=host)
    world.gather([3])
    world.total(np.ones(2))
    world.complete([np.ones(2, np.float32)])
    assert world.tell("all of it") == "all of it"
    assert {name for name, _ in seen} == {"all_gather", "all_reduce", "broadcast"}
    assert {tensor.device.type for _, tensor in seen} == {"cpu"}
