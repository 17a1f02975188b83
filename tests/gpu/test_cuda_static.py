"""Pretraining steps of a static shape on a GPU: compiled once, recorded where asked, and never waiting for the GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import rows
from runs import settings

import seqbert
from seqbert.data.packing import PackedBatch
from seqbert.training.loop import Loop

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def losses(folder: Path, **run: Any) -> list[float]:
    output = folder / "-".join(f"{key}-{value}" for key, value in run.items())
    tree = settings(folder, output=str(output), model={"dropout": 0.0}, run=run)
    return [row["loss"] for row in rows(seqbert.pretrain(tree).folder) if "loss" in row]


@pytest.mark.parametrize("compiled", ["auto", "graphs"])
@pytest.mark.parametrize("micro_tokens", [None, 200])
def test_compiled_and_recorded_steps_have_the_losses_of_the_cpu(
    tmp_path: Path, compiled: str, micro_tokens: int | None
) -> None:
    expected = losses(tmp_path, device="cpu", precision="fp32")
    found = losses(tmp_path, device="cuda", precision="bf16", compile=compiled, micro_tokens=micro_tokens)
    assert found == pytest.approx(expected, rel=0.02)


def test_activations_that_are_computed_anew_change_no_loss(tmp_path: Path) -> None:
    expected = losses(tmp_path, device="cuda", precision="bf16")
    found = losses(tmp_path, device="cuda", precision="bf16", activation_checkpointing=True)
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("compiled", ["auto", False])
def test_no_step_waits_for_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: Any) -> None:
    step = Loop._step

    def watched(self: Loop, number: int, batches: list[PackedBatch], meter: Any) -> Any:
        torch.cuda.set_sync_debug_mode("error" if number > 2 else "default")
        try:
            return step(self, number, batches, meter)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Loop, "_step", watched)
    assert len(losses(tmp_path, device="cuda", precision="bf16", compile=compiled)) == 8
