import errno
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from seqbert.errors import CheckpointError
from seqbert.training import checkpoint
from seqbert.training.checkpoint import Progress, load_checkpoint, newest_checkpoint, save_checkpoint


def trained(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_weights_optimizer_state_and_progress_come_back_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, Progress(7, tokens=99, best_score=1.5, best_step=5), keep=3)
    other, other_optimizer = trained(seed=1)
    progress = load_checkpoint(path, other, other_optimizer)
    assert progress == Progress(7, 99, 1.5, 5)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        for key, value in optimizer.state[one].items():
            assert torch.equal(value, other_optimizer.state[two][key])


def test_row66_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path) -> None:
    model, optimizer = trained()
    for step in (1, 2):
        save_checkpoint(tmp_path, model, optimizer, Progress(step), keep=3)
    weights = tmp_path / "step-00000002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    warnings: list[str] = []
    assert newest_checkpoint(tmp_path, warnings.append) == tmp_path / "step-00000001"
    assert "step-00000002" in warnings[0] and "model.safetensors" in warnings[0]
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(weights.parent, model, optimizer)


def test_row66_a_full_disk_leaves_the_checkpoints_before_and_no_half_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = trained()
    save_checkpoint(tmp_path, model, optimizer, Progress(1), keep=3)

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "_flush", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(tmp_path, model, optimizer, Progress(2), keep=3)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert newest_checkpoint(tmp_path) is not None


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    model, optimizer = trained()
    for step in range(1, 6):
        save_checkpoint(tmp_path, model, optimizer, Progress(step), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


def test_another_layout_is_refused(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, Progress(1), keep=2)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"layout": 99}))
    with pytest.raises(CheckpointError, match="layout 99"):
        load_checkpoint(path, model, optimizer)


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, Progress(1), keep=2)
    other = nn.Sequential(nn.Linear(3, 5))
    with pytest.raises(CheckpointError, match="another model"):
        load_checkpoint(path, other, torch.optim.AdamW(other.parameters()))
