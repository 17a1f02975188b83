import errno
import json
import shutil
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from seqbert.data import whole
from seqbert.errors import CheckpointError
from seqbert.training import checkpoint
from seqbert.training.checkpoint import Checkpoints, Progress, load_checkpoint, newest_checkpoint


def trained(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(folder: Path, progress: Progress, keep: int = 3) -> Path:
    """Writes a checkpoint of a small model to the end."""
    checkpoints = Checkpoints(folder, keep, begun=progress.step)
    checkpoints.save(*trained(), progress)
    checkpoints.wait()
    return folder / f"step-{progress.step:08d}"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_weights_optimizer_state_and_progress_come_back_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = trained()
    written = Progress(7, 99, best_score=1.5, best_step=5, evaluated=5, visited={"a": 70}, manner={"device": "x"})
    other, other_optimizer = trained(seed=1)
    assert load_checkpoint(save(tmp_path, written), other, other_optimizer) == written
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        for key, value in optimizer.state[one].items():
            assert torch.equal(value, other_optimizer.state[two][key])


def test_row66_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, Progress(step))
    weights = tmp_path / "step-00000002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    warnings: list[str] = []
    assert newest_checkpoint(tmp_path, warnings.append) == tmp_path / "step-00000001"
    assert "step-00000002" in warnings[0] and "model.safetensors" in warnings[0]
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(weights.parent, *trained())


def test_row66_a_full_disk_leaves_the_checkpoints_before_and_no_half_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, Progress(1))

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(whole, "flush", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save(tmp_path, Progress(2))
    assert names(tmp_path) == ["step-00000001"]
    assert newest_checkpoint(tmp_path) is not None


def test_a_folder_that_vanished_is_an_error_and_not_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    folder.parent.mkdir()
    checkpoints = Checkpoints(folder, keep=2)
    shutil.rmtree(folder.parent)
    checkpoints.save(*trained(), Progress(1))
    with pytest.raises(CheckpointError, match="No such file"):
        checkpoints.wait()
    assert not folder.parent.exists()


def test_training_goes_on_while_a_checkpoint_of_the_moment_before_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    original = checkpoint.save_tensors

    def slow(*arguments: object) -> None:
        begun.set()
        assert go_on.wait(20)
        original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "save_tensors", slow)
    model, optimizer = trained()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(model, optimizer, Progress(1))
    assert begun.wait(20)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    go_on.set()
    checkpoints.wait()
    written = load_file(tmp_path / "step-00000001" / "model.safetensors")
    assert all(torch.equal(written[name], tensor) for name, tensor in before.items())


def test_an_error_in_the_background_reaches_the_run_without_its_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(checkpoint, "save_tensors", refused)
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(*trained(), Progress(1))
    with pytest.raises(CheckpointError, match="Permission denied"):
        for _ in range(2000):
            checkpoints.check()
            threading.Event().wait(0.01)


def test_the_newest_are_kept_and_that_of_the_best_step(tmp_path: Path) -> None:
    for step in range(1, 7):
        save(tmp_path, Progress(step, best_step=min(step, 2)), keep=2)
    assert names(tmp_path) == ["step-00000002", "step-00000005", "step-00000006"]


def test_what_was_written_further_on_goes_when_a_run_is_taken_up_again_further_back(tmp_path: Path) -> None:
    for step in (2, 4, 6, 3):
        save(tmp_path, Progress(step))
    assert names(tmp_path) == ["step-00000002", "step-00000003"]


def test_a_checkpoint_is_found_where_a_kill_fell_between_moving_the_old_one_aside_and_the_new_one_in(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, Progress(4))
    path.rename(tmp_path / f".{path.name}.old")
    (tmp_path / f".{path.name}.writing").mkdir()
    assert newest_checkpoint(tmp_path) == path
    save(tmp_path, Progress(5))
    assert names(tmp_path) == ["step-00000004", "step-00000005"]


def test_a_checkpoint_of_layout_1_is_read(tmp_path: Path) -> None:
    path = save(tmp_path, Progress(4, best_step=2, best_score=0.5))
    state = json.loads((path / "state.json").read_text())
    for key in ("evaluated", "visited", "manner"):
        del state[key]
    (path / "state.json").write_text(json.dumps(state))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["sha256"]["state.json"] = whole.checksum(path / "state.json")
    (path / "manifest.json").write_text(json.dumps(manifest | {"layout": 1}))
    assert load_checkpoint(path, *trained()) == Progress(4, best_step=2, best_score=0.5, evaluated=4)


def test_another_layout_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, Progress(1))
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"layout": 99}))
    with pytest.raises(CheckpointError, match="layout 99"):
        load_checkpoint(path, *trained())


def test_another_models_checkpoint_is_refused_or_gives_what_fits(tmp_path: Path) -> None:
    path = save(tmp_path, Progress(1))
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    optimizer = torch.optim.AdamW(other.parameters())
    with pytest.raises(CheckpointError, match="another model"):
        load_checkpoint(path, other, optimizer)
    said: list[str] = []
    load_checkpoint(path, other, optimizer, said.append)
    assert torch.equal(other[0].weight, trained()[0][0].weight)  # type: ignore[index]
    assert said == ["Weights that begin anew: 1.bias, 1.weight."]
    assert set(optimizer.state) == {other[0].weight, other[0].bias}


def test_what_a_kill_left_half_removed_is_taken_away_when_the_run_goes_on(tmp_path: Path) -> None:
    path = save(tmp_path, Progress(4))
    half = tmp_path / ".step-00000002.removing"
    shutil.copytree(path, half)
    (half / "model.safetensors").unlink()
    Checkpoints(tmp_path, keep=2, begun=4)
    assert names(tmp_path) == ["step-00000004"]


def test_what_lies_beyond_is_passed_over_at_once_when_a_run_goes_on_from_further_back(tmp_path: Path) -> None:
    for step in (2, 4):
        save(tmp_path, Progress(step))
    Checkpoints(tmp_path, keep=2, begun=2)
    assert newest_checkpoint(tmp_path) == tmp_path / "step-00000002"
