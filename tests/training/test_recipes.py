"""Runs with Muon and with z-loss, and what a step of any run leaves alone."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import runs
from ranks import largest_difference, rows, run_ranks
from torch.utils._python_dispatch import TorchDispatchMode

import seqbert
from seqbert.data import packing
from seqbert.training.loop import Loop

MUON = {"name": "muon"}


def two_domains(folder: Path, **changes: Any) -> dict[str, Any]:
    fasta = runs.write_fasta(folder / "genomes")
    return runs.settings(
        folder, **runs.laid_over({"domains": {"dna": {"data": [str(fasta)], "validation": 0.1}}}, changes)
    )


def test_row61_a_run_with_muon_over_several_vocabularies_is_resumed_with_the_same_bytes(tmp_path: Path) -> None:
    tree = two_domains(tmp_path, training={"optimizer": MUON})
    seqbert.pretrain(tree)
    run, ended = tmp_path / "run", "checkpoints/step-00000008"
    before = {path.name: path.read_bytes() for path in (run / ended).iterdir()}
    assert any(name.startswith("momentum_buffer.") for name in tensor_names(run / ended / "optimizer.safetensors"))
    for path in (run / "checkpoints").iterdir():
        if path.name > "step-00000003":
            shutil.rmtree(path)
    seqbert.pretrain(tree, resume="auto")
    assert {path.name: path.read_bytes() for path in (run / ended).iterdir()} == before


def tensor_names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return list(file.keys())


def test_z_loss_is_told_apart_and_is_no_part_of_validation(tmp_path: Path) -> None:
    found = {}
    for weight in (0.0, 0.01):
        output = str(tmp_path / f"z{weight}")
        seqbert.pretrain(runs.settings(tmp_path, output=output, objective={"masked_lm": {"z_loss": weight}}))
        lines = (Path(output) / "metrics.jsonl").read_text().splitlines()
        found[weight] = [json.loads(line) for line in lines]
    plain, with_z = ([row for row in found[weight] if "loss" in row] for weight in (0.0, 0.01))
    first = with_z[0]
    assert first["text"]["masked_lm"] == plain[0]["text"]["masked_lm"] and "z_loss" not in plain[0]["text"]
    assert first["loss"] == pytest.approx(first["text"]["masked_lm"] + 0.01 * first["text"]["z_loss"])
    assert with_z[-1]["text"]["z_loss"] != first["text"]["z_loss"]
    before, unlike = (found[weight][0]["validation_text"] for weight in (0.0, 0.01))
    assert before == unlike


WAITING = {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "unique_consecutive", "_unique2"}
"""Operations whose result the host waits for, so that a GPU would stand still."""


def is_of_batches() -> bool:
    """Whether what is called works on a batch that has not left the host yet."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not Loop._step.__code__:
        if frame.f_code.co_filename == packing.__file__:
            return True
        frame = frame.f_back
    return False


def test_a_step_waits_for_nothing_that_the_device_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not is_of_batches():
                seen.add(function.__name__.split(".")[0])
            return function(*args, **(kwargs or {}))

    step = Loop._step

    def watched(self: Loop, *arguments: Any) -> Any:
        with Watched():
            return step(self, *arguments)

    monkeypatch.setattr(Loop, "_step", watched)
    masked_lm = {"z_loss": 1e-4}
    tree = runs.settings(tmp_path, objective={"masked_lm": masked_lm}, training={"steps": 2, "optimizer": MUON})
    seqbert.pretrain(tree)
    assert "baddbmm" in seen and "_fused_adamw_" in seen
    assert not seen & WAITING


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [None, 0.02])
def test_two_processes_with_muon_train_as_one_does_and_end_after_the_same_step(
    minutes: float | None, tmp_path: Path
) -> None:
    import yaml

    training = {"optimizer": MUON, "steps": None if minutes else 8, "minutes": minutes}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(runs.settings(tmp_path, training=training, model={"dropout": 0.0})))
    processes = run_ranks(tmp_path, 2, "pretrain", config, "--output", tmp_path / "two")
    assert [process.code for process in processes] == [0, 0], processes[0].err
    if minutes is None:
        seqbert.pretrain(config, ["--output", str(tmp_path / "one")])
        assert largest_difference(rows(tmp_path / "one"), rows(tmp_path / "two")) <= 1e-3
    else:
        result = json.loads((tmp_path / "two" / "result.json").read_text())
        assert result["steps"] >= 1 and result["seconds"] > 0
