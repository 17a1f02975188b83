"""What needs a GPU: the quick start, an export and a resume on CUDA."""

import shutil
from pathlib import Path

import pytest
from runs import settings

import seqbert
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
