"""The commands that measure fine-tuning: against the Trainer of transformers, and over all tasks of GLUE."""

import json
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def glue(load_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return load_benchmark("glue")


@pytest.fixture(scope="module")
def finetune_peer(load_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return load_benchmark("finetune_peer")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a BERT of one small block, whose tokens are letters."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("weights")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ","]
    tokens += [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
    transformers.BertTokenizer(vocab={token: number for number, token in enumerate(tokens)}).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(tokens), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def run(checkout: Path, name: str, *arguments: object) -> tuple[int, Any, str]:
    """Exit code, what was printed as JSON, and what went to standard error."""
    command = [sys.executable, checkout / "benchmarks" / f"{name}.py", *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def write_table(path: Path, rows: list[tuple[str, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def small_glue(tmp_path: Path) -> Path:
    """MNLI and WNLI in the benchmark's layout, with a few records each, and a CoLA without training records."""
    folder, texts = tmp_path / "glue", ("sentence1", "sentence2")
    pairs = [(f"a man eats {what}", f"{who} eats") for what in ("bread", "soup", "rice") for who in ("he", "she")]
    classes = ("entailment", "neutral", "contradiction")
    labelled = [(*pair, classes[number % 3]) for number, pair in enumerate(pairs)]
    for name in ("train", "dev_matched", "dev_mismatched"):
        write_table(folder / "MNLI" / f"{name}.tsv", [(*texts, "gold_label"), *labelled])
    unlabelled = [("index", *texts), *((str(number), *pair) for number, pair in enumerate(pairs))]
    for place in ("MNLI/test_matched", "MNLI/test_mismatched", "diagnostic/diagnostic", "WNLI/test"):
        write_table(folder / f"{place}.tsv", unlabelled)
    for name, times in (("train", 1), ("dev", 12)):  # 72 records: as many as the benchmark's
        numbers = [(*pair, str(number % 2)) for number, pair in enumerate(pairs * times)]
        write_table(folder / "WNLI" / f"{name}.tsv", [(*texts, "label"), *numbers])
    write_table(folder / "CoLA" / "dev.tsv", [("gj04", "1", "", "Bill whistled.")])
    return folder


# GLUE


def test_glue_says_which_tasks_have_no_data_and_why(checkout: Path, small_glue: Path, weights: Path) -> None:
    code, plan, _ = run(checkout, "glue", "--data", small_glue, "--init", weights, "--dry_run")
    assert code == 0
    assert plan["MNLI"] == plan["WNLI"] == "to run"
    assert plan["CoLA"].startswith("without data") and "has no train.tsv" in plan["CoLA"]
    assert plan["QQP"].startswith("without data") and "has no folder QQP" in plan["QQP"]
    assert list(plan) == ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"]


def test_glue_finds_folders_of_other_names(glue: ModuleType, shared_data: Path) -> None:
    found = {task.name: glue.find_folder(shared_data / "text", task) for task in glue.TASKS}
    assert found["CoLA"].name == "glue_cola"  # cola_public is laid out otherwise
    assert found["QNLI"].name == "glue_qnli_dev_test"
    assert found["MNLI"] == f'"{shared_data / "text"}" has no folder MNLI or glue_mnli'


def test_glue_does_not_choose_between_two_folders(glue: ModuleType, tmp_path: Path) -> None:
    from seqbert.errors import ConfigError

    for name in ("glue_rte_old", "glue_rte_new"):
        write_table(tmp_path / name / "train.tsv", [("sentence1", "sentence2", "label")])
    (task,) = glue.chosen(["RTE"])
    with pytest.raises(ConfigError, match="could both be the data of RTE"):
        glue.find_folder(tmp_path, task)
    write_table(tmp_path / "RTE" / "train.tsv", [("sentence1", "sentence2", "label")])
    assert glue.find_folder(tmp_path, task).name == "RTE"


def test_glue_means_metrics_within_a_task_before_tasks(glue: ModuleType) -> None:
    # 0.5 of CoLA, (0.9 + 0.7) / 2 of MRPC: 0.65; the mean of the three numbers would be 0.7.
    cola, mrpc = glue.chosen(["CoLA", "MRPC"])
    rows = {
        "CoLA": {"score": glue.task_score(cola, {"validation": {"matthews": 0.5}})},
        "MRPC": {"score": glue.task_score(mrpc, {"validation": {"f1": 0.9, "accuracy": 0.7}})},
    }
    assert glue.average(rows, ["CoLA", "MRPC"]) == 0.65


def test_glue_knows_the_size_of_the_development_files(glue: ModuleType, shared_data: Path) -> None:
    for task in glue.chosen(["CoLA", "SST-2", "MRPC", "STS-B", "QNLI", "RTE", "WNLI"]):
        lines = (glue.find_folder(shared_data / "text", task) / "dev.tsv").read_bytes().splitlines()
        assert len(lines) - (task.name != "CoLA") == task.development  # CoLA has no header


@pytest.mark.slow
def test_glue_runs_scores_submits_and_reads_finished_runs(
    checkout: Path, small_glue: Path, weights: Path, tmp_path: Path
) -> None:
    options = ["--data", small_glue, "--init", weights, "--output", tmp_path / "runs"]
    options += ["--epochs", "1", "--run.device", "cpu", "--run.workers", "0"]
    code, report, told = run(checkout, "glue", *options)
    assert code == 0
    mnli, wnli = report["tasks"]["MNLI"], report["tasks"]["WNLI"]
    assert set(mnli["metrics"]) == {"accuracy_matched", "accuracy_mismatched"}
    assert mnli["excerpt"] and not wnli["excerpt"]
    assert report["averaged"] == ["WNLI"] and report["average"] == wnli["score"]
    assert report["average_without_wnli"] is None and not report["complete"]
    assert "left out of the average" in told and "CoLA" in report["without_data"]
    submission = tmp_path / "runs" / "submission"
    assert {path.name for path in submission.iterdir()} == {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv", "WNLI.tsv"}
    lines = (submission / "AX.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "index\tprediction" and [line.split("\t")[0] for line in lines[1:]] == list("012345")
    assert mnli["submission"]["AX"]["lacking"] == 0

    written = (tmp_path / "runs" / "mnli" / "result.json").stat().st_mtime_ns
    code, again, told = run(checkout, "glue", *options)
    assert code == 0 and again == report and "MNLI: finished" in told
    assert (tmp_path / "runs" / "mnli" / "result.json").stat().st_mtime_ns == written

    code, _, told = run(checkout, "glue", *options, "--training.learning_rate", "1e-3")
    assert code == 2 and "was begun with another config" in told


# Against the Trainer


def of(system: str, seed: int, accuracy: float, seconds: float) -> dict[str, Any]:
    row = {"accuracy": accuracy, "f1": accuracy}
    clocks = {"seconds": seconds, "process_seconds": 2 * seconds}
    return {"system": system, "seed": seed, "last": row, "best": row, "padding_efficiency": 1.0, **clocks}


def test_runs_are_compared_with_those_of_the_same_seed(finetune_peer: ModuleType) -> None:
    runs = [of("seqbert", 0, 0.80, 2.0), of("trainer_fp32", 0, 0.78, 8.0)]
    runs += [of("trainer_fp32", 1, 0.80, 4.0), of("seqbert", 1, 0.84, 3.0)]
    runs += [of("seqbert", 2, 0.80, 2.0), of("trainer_fp32", 2, 0.80, 4.0)]
    (found,) = finetune_peer.compared(finetune_peer.by_system(runs)).values()
    assert found["points"]["last"]["accuracy"] == 2.0  # mean of 2, 4 and 0
    assert found["seconds_ratio"] == 0.5  # median of 1/4, 3/4 and 1/2


@pytest.mark.slow
def test_seqbert_and_the_trainer_learn_from_the_same_tokens(checkout: Path, shared_data: Path, weights: Path) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("sklearn")
    data = shared_data / "text" / "glue_mrpc"
    options = ["--task", "mrpc", "--data", data, "--init", weights, "--train_size", "48", "--epochs", "2"]
    options += ["--seeds", "1", "--precision", "fp32", "--threads", "1", "--floor"]
    code, report, _ = run(checkout, "finetune_peer", *options)
    assert code == 0
    assert report["records"] == {"train": 48, "validation": 408}
    ours, peer = report["runs"]
    assert (ours["system"], peer["system"]) == ("seqbert", "trainer_fp32")
    assert ours["tokens"]["real"] == ours["tokens"]["padded"] == peer["tokens"]["real"] < peer["tokens"]["padded"]
    assert len(ours["epochs"]) == len(peer["epochs"]) == 2
    assert set(report["compared"]) == {"trainer_fp32"}
    assert 0 < report["linear_floor"]["accuracy"] < 1


def test_a_folder_without_weights_is_said_before_anything_runs(checkout: Path, tmp_path: Path) -> None:
    options = ["--task", "mrpc", "--data", tmp_path, "--init", tmp_path]
    code, report, told = run(checkout, "finetune_peer", *options)
    assert (code, report) == (2, None)
    assert told.startswith("finetune_peer: ") and "config.json" in told and "Traceback" not in told
