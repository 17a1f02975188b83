"""Every task on every domain's own labelled sample, through the command line: a small model learns what is asked."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from seqbert import cli, registry
from seqbert.tasks import TASKS
from seqbert.tasks.metrics import squad_scores

DOMAINS = ("text", "multilingual", "protein", "dna", "music")


def baseline(task: str, rows: list[dict], domain: str) -> float:
    """What is reached without looking at the records: the most frequent label, the mean, or the whole context."""
    labels = [row["label"] for row in rows]
    if task == "regression":
        return 0.0  # the mean explains none of the variance
    if task == "tagging":
        labels = [label for tags in labels for label in tags]
    if task == "span":
        contexts = {e.id: e.sequences[1] for e in registry.load(domain)().sample().tables["span"]()}
        answers = [[contexts[row["id"]][start:end] for start, end in row["label"]] for row in rows]
        return squad_scores(answers, [contexts[row["id"]] for row in rows])["f1"].value
    return Counter(labels).most_common(1)[0][1] / len(labels)


METRICS = {"classification": "accuracy", "regression": "r2", "tagging": "accuracy", "span": "f1", "choice": "accuracy"}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_small_model_beats_the_baseline_of_its_sample(
    domain: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""
output: {tmp_path / "run"}
domain: {{name: {domain}}}
task: {{name: {task}}}
data: {{train: sample, validation: 0.2}}
model: {{preset: bert-tiny, position_init: sinusoidal, dropout: 0.0}}
training: {{epochs: {12 if task == "classification" else 6}, batch_size: 32, learning_rate: 1.0e-3, max_length: 64}}
run: {{workers: 0, device: cpu, checkpoint_every: 10000}}
""",
        encoding="utf-8",
    )
    assert cli.main(["finetune", str(config), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    lines = (tmp_path / "run" / "evaluation" / "validation" / "predictions.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    reached = result["metrics"]["validation"][METRICS[task]]
    floor = baseline(task, rows, domain)
    print(
        f"{domain} {task}: {reached['value']:.3f} ({reached['low']:.3f} to {reached['high']:.3f}), baseline {floor:.3f}"
    )
    assert np.isfinite(reached["value"])
    assert reached["low"] > floor
