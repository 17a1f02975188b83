"""The command that measures the time to a loss, at toy size."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ARGUMENTS = ["protein/pretrain", "--override", "model.intermediate_size", "720", "--threads", "1"]


@pytest.fixture(scope="module")
def benchmark(load_benchmark: Callable[[str], ModuleType]) -> Any:
    return load_benchmark("time_to_loss")


@pytest.fixture(scope="module")
def shared(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both sides are given of the sample of proteins."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQBERT_CACHE", str(folder / "cache"))
        arguments = benchmark.parser().parse_args([*ARGUMENTS, "--validation-tokens", "4096"])
        domain, overrides = benchmark.shared_data(arguments, folder)
    assert domain == "protein" and overrides == ["--model.intermediate_size", "720"]
    return folder


def test_the_peers_batches_hide_15_percent_and_neither_special_tokens_nor_padding(
    benchmark: Any, tmp_path: Path
) -> None:
    special = {name: number for number, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
    lengths = np.random.default_rng(0).integers(8, 65, 400)
    sequences = [np.r_[2, np.random.default_rng(n).integers(5, 50, length - 2), 3] for n, length in enumerate(lengths)]
    benchmark.write_sequences(tmp_path / "train.npz", sequences, [lengths])
    batches = benchmark.padded_batches(tmp_path, {"vocab_size": 50, "special": special, "max_length": 64})
    drawn = [next(batches) for _ in range(7)]
    ids, mask, labels = (
        np.concatenate([batch[key].numpy().ravel() for batch in drawn])
        for key in ("input_ids", "attention_mask", "labels")
    )
    hidden = labels != benchmark.IGNORED
    assert hidden.sum() / mask.sum() == pytest.approx(0.15, abs=0.015)
    assert not (hidden & (mask == 0)).any()
    assert not np.isin(labels[hidden], [0, 2, 3]).any()
    assert (ids[hidden] == 4).mean() == pytest.approx(0.8, abs=0.03)
    assert mask.sum() / mask.size > 0.85  # grouped by length, little is padding


def test_the_peer_is_given_the_training_records_with_nothing_hidden(benchmark: Any, shared: Path) -> None:
    about, data = json.loads((shared / "about.json").read_text()), np.load(shared / "train.npz")
    assert not (data["ids"] == about["special"]["[MASK]"]).any()
    assert data["lengths"].sum() == len(data["ids"]) and data["lengths"].max() == about["max_length"]
    assert about["parameters"] == 3_336_736


def test_what_transformers_finds_is_the_loss_that_the_run_reports(
    benchmark: Any, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    import seqbert

    monkeypatch.setenv("SEQBERT_CACHE", str(shared / "cache"))
    overrides = ["--model.preset", "modern-tiny", "--training.steps", "2", "--training.validation_tokens", "4096"]
    overrides += ["--run.precision", "fp32", "--output", str(tmp_path / "run")]
    result = seqbert.pretrain("protein/pretrain", overrides)
    judged = benchmark.judge(shared, str(tmp_path / "run" / "model"))
    reported = result.domains["protein"].after
    assert judged["loss"] == pytest.approx(reported["masked_lm_loss"], abs=1e-4)
    assert reported["masked_lm_targets"] == len(np.load(shared / "validation.npz")["index"])


def test_the_time_to_the_loss_is_that_of_the_shortest_runs_whose_median_reaches_it(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = {0.1: [2.0, 3.1, 3.2], 0.2: [2.9, 3.5, 3.0], 0.4: [1.0, 1.0, 1.0]}

    def own_run(arguments: Any, folder: Path, overrides: list[str], share: float, seed: int) -> dict[str, Any]:
        return {"seed": seed, "loss": losses[share][seed], "seconds": 480 * share + seed - 1}

    monkeypatch.setattr(benchmark, "shared_data", lambda *_: ("protein", []))
    monkeypatch.setattr(benchmark, "own_run", own_run)
    monkeypatch.setattr(benchmark, "peer_run", lambda *_: {"loss": 3.0, "parameters": 100, "steps": 1})
    (tmp_path / "about.json").write_text('{"parameters": 97}')
    arguments = benchmark.parser().parse_args([*ARGUMENTS, "--shares", "0.4", "0.1", "0.2"])
    found = benchmark.measure(arguments, tmp_path)
    assert [row["share"] for row in found["seqbert"]] == [0.1, 0.2]
    assert found["seconds_to_target"] == 96 and found["times_as_fast"] == 5
    assert found["parameters"] == 97 and "not within 2 %" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_prints_how_many_times_as_fast_seqbert_was(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    command = [sys.executable, str(checkout / "benchmarks" / "time_to_loss.py"), *ARGUMENTS, "--minutes", "0.05"]
    command += ["--rates", "1e-3", "--search-minutes", "0.02", "--shares", "1", "2", "--seeds", "0"]
    environment = {**os.environ, "SEQBERT_CACHE": str(tmp_path)}
    done = subprocess.run([*command, "--validation-tokens", "4096"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["peer"]["steps"] > 0 and found["seqbert"][0]["runs"][0]["steps"] > 0
    assert found["times_as_fast"] is None or found["times_as_fast"] > 0
