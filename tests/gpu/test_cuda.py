"""What needs a GPU: the quick start, an export and a resume on CUDA."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import settings

import seqbert
from seqbert.data.packing import PackedBatch, Target, pack
from seqbert.models.hub import read_checkpoint

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def test_the_quick_start_runs_on_cuda_and_each_domain_exports(tmp_path: Path) -> None:
    overrides = ["--output", str(tmp_path / "run"), "--training.steps", "50", "--training.evaluate_every", "50"]
    result = seqbert.pretrain("quickstart", [*overrides, "--run.device", "cuda"])
    for name, domain in result.domains.items():
        assert domain.after["masked_lm_loss"] < domain.before["masked_lm_loss"]  # type: ignore[operator]
        exported = seqbert.export(result.folder, tmp_path / name, domain=name)
        assert read_checkpoint(exported).heads.keys() == {"masked_lm"}


def test_a_run_is_resumed_on_cuda(tmp_path: Path) -> None:
    tree = settings(tmp_path, run={"device": "cuda", "precision": "fp32"}, model={"dropout": 0.1})
    whole = seqbert.pretrain(tree)
    for step in (6, 8):
        shutil.rmtree(whole.folder / "checkpoints" / f"step-{step:08d}")
    resumed = seqbert.pretrain(tree, resume="auto")
    before, after = whole.domains["text"].after, resumed.domains["text"].after
    # Sums over many threads are not always taken in the same order on a GPU.
    assert after["masked_lm_loss"] == pytest.approx(before["masked_lm_loss"], rel=1e-3)


def test_bf16_on_cuda_agrees_with_fp32_on_the_cpu(tmp_path: Path) -> None:
    losses = []
    for device, precision in (("cpu", "fp32"), ("cuda", "bf16")):
        run = {"device": device, "precision": precision}
        tree = settings(tmp_path, output=str(tmp_path / device), run=run, model={"dropout": 0.0})
        losses.append(seqbert.pretrain(tree).domains["text"].after["masked_lm_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def large_batch() -> PackedBatch:
    """A batch whose arrays are larger than what the driver takes from pageable memory without waiting (64 KB)."""
    batch = pack("letters", [np.arange(500) for _ in range(100)])
    none = torch.zeros(0, dtype=torch.int64)
    batch.targets = {"tokens": Target(torch.arange(50_000), batch.ids, torch.ones(50_000)), "none": Target(none, none)}
    return batch


def test_a_batch_is_the_same_on_a_gpu_though_forgotten_on_the_host() -> None:
    device = torch.device("cuda")
    on_device = [large_batch().to(device) for _ in range(20)]
    expected = large_batch()
    for batch in [*on_device, on_device[0].to(device)]:
        assert torch.equal(batch.ids.cpu(), expected.ids)
        assert torch.equal(batch.positions.cpu(), expected.positions)
        assert torch.equal(batch.targets["tokens"].labels.cpu(), expected.ids)
        assert len(batch.targets["none"].index) == 0


def test_a_batch_goes_to_a_gpu_while_that_computes() -> None:
    device = torch.device("cuda")
    batch = large_batch()
    batch.to(device)  # pins and reserves the memory that later batches reuse
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # cycles: about a second
    on_device = batch.to(device)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    assert torch.equal(on_device.ids.cpu(), batch.ids)
