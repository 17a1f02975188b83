"""Fine-tuning on a GPU gives what it gives on the CPU."""

from pathlib import Path
from typing import Any

import pytest

import seqbert
from seqbert.tasks import TASKS

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

DECIDES = {"classification": "accuracy", "regression": "r2", "tagging": "accuracy", "span": "f1", "choice": "accuracy"}


def run(folder: Path, device: str, precision: str, task: str, **changes: Any) -> float:
    tree = {
        "output": str(folder / f"{device}-{precision}"),
        "domain": {"name": "protein"},
        "task": {"name": task},
        "data": {"train": "sample", "validation": 0.2},
        "model": {"preset": "bert-tiny", "position_init": "sinusoidal", "dropout": 0.0},
        "training": {"epochs": 4, "batch_size": 32, "learning_rate": 1e-3, "max_length": 64},
        "run": {"device": device, "precision": precision},
    }
    for key, value in changes.items():
        tree[key] = {**tree.get(key, {}), **value}
    result = seqbert.finetune(tree)
    return float(result.metrics["validation"][DECIDES[task]]["value"])


@pytest.mark.parametrize("task", TASKS)
def test_each_task_reaches_the_same_on_both_devices(task: str, tmp_path: Path) -> None:
    expected = run(tmp_path, "cpu", "fp32", task)
    assert run(tmp_path, "cuda", "fp32", task) == pytest.approx(expected, abs=0.05)
    assert run(tmp_path, "cuda", "bf16", task) == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize(
    "changes", [{"features": {"lstm_hidden": 32, "layers": "last"}}, {"training": {"lora": {"rank": 4}}}]
)
def test_features_and_lora_run_in_half_precision(changes: dict[str, Any], tmp_path: Path) -> None:
    assert run(tmp_path, "cuda", "bf16", "regression", **changes) > 0.2
