"""The commands that measure the data path and a whole small job, at toy size."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from runs import write_texts

from seqbert import cli


def test_each_kind_of_batch_is_measured_at_each_length(
    load_benchmark: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = ["--max_length", "16", "64", "--tokens_per_step", "512", "--vocab_size", "120"]
    short = ["--steps", "3", "--waits", "2", "--step_seconds", "0.01"]
    monkeypatch.setattr(sys, "argv", ["data_path.py", "--data", str(write_texts(tmp_path / "texts")), *sizes, *short])
    assert load_benchmark("data_path").main() == 0
    report = json.loads(capsys.readouterr().out)
    rows = [(row["max_length"], row["unit"], row["pair"]) for row in report["rows"]]
    kinds = [("token", "none"), ("word", "none"), ("token", "next_sentence")]
    assert rows == [(length, *kind) for length in (16, 64) for kind in kinds]
    for row in report["rows"]:
        assert 0 < row["mean_length"] <= row["max_length"]
        assert row["batches_tokens_per_second"] > 0 and row["loader_tokens_per_second"] > 0
        assert 0 <= row["wait_share"] < 1
    assert report["ratio"] == round(min(row["batches_tokens_per_second"] for row in report["rows"]) / 50e6, 3)


@pytest.mark.slow
def test_both_sides_of_the_whole_job_train_as_many_steps(
    load_benchmark: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    pytest.importorskip("evaluate")
    benchmark = load_benchmark("end_to_end")
    monkeypatch.setattr(benchmark, "MODEL", benchmark.MODEL | {"hidden_size": 32, "intermediate_size": 32})
    book = tmp_path / "book.txt"
    book.write_text("\n\n".join(f"The {n}th cat sees a dog. It walks on, and {n} birds sing." for n in range(100)))
    sizes = ["--tokens", "512", "--tokens_per_step", "256", "--vocab_size", "200"]
    arguments = benchmark._parser().parse_args(["--data", str(book), *sizes])
    job = benchmark.prepare(arguments, tmp_path)
    assert job["sentences"] == 200 and job["steps"] == 2
    assert abs(job["batch_size"] * job["mean_length"] - 256) <= job["mean_length"] / 2

    command = benchmark.seqbert_command(job, arguments, tmp_path)
    assert cli.main([*command[1:], "--model.hidden_size", "32", "--model.num_attention_heads", "2"]) == 0
    command = benchmark.peer_command(job, arguments, tmp_path)
    benchmark.train_peer(Path(command[command.index("--run") + 1]), arguments)
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text())
    assert state["global_step"] == 2 == len(list((tmp_path / "run" / "checkpoints").iterdir())) + 1
