"""Studies: from a declaration to jobs, from results to tables and verdicts, and the command itself."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import labelled
import pytest
import runs
import yaml

import seqbert
from seqbert.cli import main
from seqbert.config import find
from seqbert.errors import ConfigError
from seqbert.studies.declaration import lay, load_study
from seqbert.studies.jobs import plan_jobs
from seqbert.studies.results import Number
from seqbert.studies.statistics import Difference, judge, paired_difference
from seqbert.studies.tables import build_tables, judge_claims

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "studies"


def declaration(folder: Path, **changes: Any) -> dict[str, Any]:
    """Two mixtures, fine-tuned in two ways, over two seeds: twelve jobs of a second or two."""
    pretrain, finetune = runs.settings(folder), labelled.settings(folder)
    for name, tree in (("pretrain", pretrain), ("finetune", finetune)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(tree | {"output": "unused"}), encoding="utf-8")
    tree: dict[str, Any] = {
        "title": "Toy",
        "output": str(folder / "study"),
        "seeds": [0, 1],
        "axes": {
            "mixture": {
                "80-10-10": {},
                "100-0-0": {"pretrain": {"objective": {"masked_lm": {"mask": 1.0, "random": 0.0}}}},
            },
            "blocks": {"trained": {}, "frozen": {"finetune": {"training": {"freeze": {"layers": 2}}}}},
        },
        "stages": {
            "pretrain": {"run": "pretrain", "config": str(folder / "pretrain.yaml"), "axes": ["mixture"]},
            "finetune": {
                "run": "finetune",
                "config": str(folder / "finetune.yaml"),
                "axes": ["mixture", "blocks"],
                "set": {"init": "{pretrain}", "training": {"epochs": 1}},
            },
        },
        "tables": [
            {
                "title": "Accuracy",
                "stage": "finetune",
                "metric": "validation.accuracy",
                "rows": ["mixture"],
                "columns": ["blocks"],
                "against": {"mixture": "80-10-10"},
            }
        ],
        "pictures": [
            {"title": "A", "kind": "bars", "stage": "finetune", "metric": "validation.accuracy", "x": "mixture"},
            {"title": "L", "kind": "curves", "stage": "pretrain", "metric": "loss", "x": "step", "series": "mixture"},
        ],
        "claims": [
            {
                "text": "some are better",
                "stage": "pretrain",
                "metric": "validation.masked_lm_loss",
                "better": {"mixture": "80-10-10"},
                "worse": {"mixture": "100-0-0"},
            }
        ],
    }
    return runs.laid_over(tree, changes)


# from a declaration to jobs


def test_a_stage_is_run_once_for_each_combination_of_its_own_axes_and_each_seed(tmp_path: Path) -> None:
    jobs = plan_jobs(load_study(declaration(tmp_path)))
    assert [job.stage for job in jobs] == ["pretrain"] * 4 + ["finetune"] * 8
    assert len({job.folder for job in jobs}) == 12
    for job in jobs[4:]:
        mixture, seed = job.values["mixture"], job.seed
        assert job.settings["init"] == str(tmp_path / "study" / "runs" / "pretrain" / mixture / f"seed-{seed}")
        assert job.needs == (Path(job.settings["init"]),)
        assert job.settings["seed"] == seed and job.settings["output"] == str(job.folder)


def test_a_stage_of_one_seed_serves_every_seed_of_those_behind_it(tmp_path: Path) -> None:
    jobs = plan_jobs(load_study(declaration(tmp_path, stages={"pretrain": {"seeds": [7]}})))
    assert len(jobs) == 2 + 8
    assert {Path(job.settings["init"]).name for job in jobs if job.stage == "finetune"} == {"seed-7"}


def test_null_leaves_a_stage_out_and_what_names_it_has_null_there(tmp_path: Path) -> None:
    arms = {"mixture": {"none": {"pretrain": None}}}
    jobs = plan_jobs(load_study(declaration(tmp_path, axes=arms)))
    without = [job for job in jobs if job.values["mixture"] == "none"]
    assert {job.stage for job in without} == {"finetune"}
    assert all(job.settings["init"] is None and not job.needs for job in without)


def test_a_section_of_another_kind_is_replaced_and_not_mixed() -> None:
    base = {"optimizer": {"name": "muon", "ns_steps": 3}, "schedule": {"name": "linear", "warmup": 0.1}}
    changed = lay(base, {"optimizer": {"name": "adamw"}, "schedule": {"warmup": 0.2}})
    assert changed == {"optimizer": {"name": "adamw"}, "schedule": {"name": "linear", "warmup": 0.2}}


def test_what_is_laid_over_a_placeholder_is_laid_over_what_it_stands_for(tmp_path: Path) -> None:
    (tmp_path / "data" / "tags").mkdir(parents=True)
    files = {"tags": {"path": "tags", "otherwise": "sample", "read": {"train": "train.csv", "validation": 0.2}}}
    finetune = {"set": {"data": "{data.tags}"}}
    tree = declaration(tmp_path, data={"folder": str(tmp_path / "data"), "files": files}, stages={"finetune": finetune})
    tree["small"] = {"stages": {"finetune": {"set": {"data": {"train_size": 7}}}}}
    data = plan_jobs(load_study(tree, small=True))[-1].settings["data"]
    assert data["folder"] == str(tmp_path / "data" / "tags")
    assert (data["train"], data["validation"], data["train_size"]) == (["train.csv"], 0.2, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": {"finetune": {"axes": ["mixtures"]}}}, 'no axis "mixtures".*mixture'),
        ({"axes": {"blocks": {"frozen": {"fine": {}}}}}, 'no stage "fine"'),
        ({"stages": {"finetune": {"set": {"init": "{pretrian}"}}}}, 'pretrian}" stands for nothing.*pretrain'),
        ({"stages": {"finetune": {"set": {"init": "{init}"}}}}, "--init"),
        ({"stages": {"finetune": {"set": {"training": {"epoch": 1}}}}}, 'stages.finetune.*no key "training.epoch"'),
        ({"stages": {"pretrain": {"run": "measure"}}}, "takes a function"),
        ({"axes": {"mixture": {"80 10": {}, "80/10": {}}}}, "would share the folder"),
        ({"data": {"files": {"a": {"path": "x.csv"}}}}, "--data.folder"),
        ({"data": {"folder": "/nowhere"}}, "there is no such folder"),
        ({"seeds": [0, 0]}, "each once"),
        ({"stages": {"finetune": {"set": {"data": {"from": "{seed}"}}}}}, "before the name of a section"),
        ({"stages": {"pretrain": {"set": {"init": "{finetune}"}}}}, "stands behind this one"),
    ],
)
def test_a_mistake_is_an_error_before_anything_is_run(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        seqbert.study(declaration(tmp_path, **changes))
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("entry", ["tables", "claims"])
def test_a_table_or_claim_about_a_value_that_there_is_not_is_refused(tmp_path: Path, entry: str) -> None:
    tree = declaration(tmp_path)
    tree[entry][0]["where"] = {"mixture": "80-20"}
    with pytest.raises(ConfigError, match=rf'{entry}\[0\].*no value "80-20"'):
        load_study(tree)


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.yaml")))
@pytest.mark.parametrize("small", [False, True])
def test_each_shipped_study_is_whole(name: str, small: bool, tmp_path: Path) -> None:
    """On the samples; every config of its runs is checked, and its small setting has three seeds at least."""
    study = load_study(f"studies/{name}", ["--init", str(tmp_path)], small=small)
    assert plan_jobs(study, find(f"studies/{name}").parent)
    assert len(study.seeds) >= 3 and study.question and study.tables


# from results to tables and verdicts


def test_the_interval_of_a_difference_is_that_of_students_paired_test() -> None:
    """scipy.stats.ttest_rel gives the same."""
    from scipy.stats import ttest_rel

    first, second = {0: 0.81, 1: 0.85, 2: 0.79, 3: 0.9}, {0: 0.80, 1: 0.81, 2: 0.8, 3: 0.84, 9: 0.1}
    found = paired_difference(first, second)
    interval = ttest_rel(list(first.values()), [second[seed] for seed in first]).confidence_interval(0.95)
    assert found is not None and found.n == 4
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(
    ("difference", "within", "verdict"),
    [
        (Difference(0.1, 0.05, 0.15, 3), None, "held"),
        (Difference(-0.1, -0.15, -0.05, 3), None, "not held"),
        (Difference(0.1, -0.05, 0.25, 3), None, "undecided here"),
        (Difference(0.1, 0.05, 0.15, 2), None, "undecided here"),
        (None, None, "undecided here"),
        (Difference(0.0, -0.01, 0.01, 3), 0.02, "held"),
        (Difference(0.1, 0.05, 0.15, 3), 0.02, "not held"),
        (Difference(0.02, -0.01, 0.05, 3), 0.02, "undecided here"),
    ],
)
def test_a_verdict_follows_from_the_interval(difference: Difference | None, within: float | None, verdict: str) -> None:
    assert judge(difference, within) == verdict


def test_a_claim_about_deviations_asks_which_runs_are_more_alike(tmp_path: Path) -> None:
    """Deviations from the medians 2 and 5: 0, 1, 1 and 0, 3, 3; whichever mean is the better one."""
    tree = declaration(tmp_path)
    alike, apart = {"mixture": "80-10-10"}, {"mixture": "100-0-0"}
    claim = {"text": "alike", "stage": "pretrain", "metric": "validation.masked_lm_loss", "compare": "deviations"}
    tree["claims"] = [claim | {"better": alike, "worse": apart}, claim | {"better": apart, "worse": alike}]
    found = numbers({"80-10-10": [2.0, 1.0, 3.0], "100-0-0": [5.0, 2.0, 8.0]})
    first, second = judge_claims(load_study(tree), found)
    assert first.difference is not None and second.difference is not None
    assert first.difference.mean == pytest.approx(4 / 3) == -second.difference.mean


def numbers(losses: dict[str, list[float]]) -> list[Number]:
    return [
        Number("pretrain", {"mixture": mixture}, seed, "validation.masked_lm_loss", value)
        for mixture, values in losses.items()
        for seed, value in enumerate(values)
    ]


def test_of_a_loss_the_smaller_is_the_better(tmp_path: Path) -> None:
    study = load_study(declaration(tmp_path))
    found = numbers({"80-10-10": [2.0, 2.1, 2.0], "100-0-0": [3.0, 3.0, 3.1]})
    (judged,) = judge_claims(study, found)
    assert judged.verdict == "held" and judged.difference is not None and judged.difference.mean == pytest.approx(1.0)


def test_what_one_arm_lacks_counts_for_neither(tmp_path: Path) -> None:
    tree = declaration(tmp_path)
    tree["claims"][0] |= {"stage": "finetune", "metric": "validation.accuracy"}
    found = [
        Number("finetune", {"mixture": mixture, "blocks": blocks}, seed, "validation.accuracy", value)
        for seed in range(3)
        for mixture, blocks, value in (
            ("80-10-10", "trained", 0.9),
            ("100-0-0", "trained", 0.8),
            ("100-0-0", "frozen", 0.1),
        )
    ]
    (judged,) = judge_claims(load_study(tree), found)
    assert judged.difference is not None and judged.difference.mean == pytest.approx(0.1)


def test_a_cell_is_the_mean_over_seeds_and_its_difference_is_to_the_arm_that_is_named(tmp_path: Path) -> None:
    table = {"title": "L", "stage": "pretrain", "metric": "validation.masked_lm_loss", "rows": ["mixture"]}
    tree = declaration(tmp_path) | {"tables": [table | {"against": {"mixture": "80-10-10"}}]}
    (built,) = build_tables(load_study(tree), numbers({"100-0-0": [3.0, 4.0], "80-10-10": [1.0, 3.0]}))
    (first, (one,)), (second, (other,)) = built.entries
    assert (first, second) == (["80-10-10"], ["100-0-0"])
    assert (one.mean, one.sd, one.n, one.difference) == (2.0, pytest.approx(2**0.5), 2, None)
    assert other.difference is not None and other.difference.mean == pytest.approx(1.5)


# the command


@pytest.mark.slow
def test_a_study_writes_its_results_skips_what_is_done_and_goes_on_after_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(declaration(tmp_path), sort_keys=False), encoding="utf-8")
    whole = tmp_path / "whole"
    assert main(["study", str(path), "--output", str(whole), "--jobs", "1"]) == 0
    table = (whole / "table.csv").read_text()
    rows = list(csv.DictReader(table.splitlines()))
    accuracies = [row for row in rows if row["metric"] == "validation.accuracy"]
    assert len(accuracies) == 8 and {row["seed"] for row in rows} == {"0", "1"}
    assert {"tokens", "seconds", "steps", "parameters"} <= {row["metric"] for row in rows}
    assert "| 80-10-10 |" in (whole / "table.md").read_text()
    assert json.loads((whole / "claims.json").read_text())["claims"][0]["verdict"] == "undecided here"
    names = sorted(picture.name for picture in (whole / "pictures").iterdir())
    assert names == ["01-bars.png", "01-bars.svg", "02-curves.png", "02-curves.svg"]

    capsys.readouterr()
    assert main(["study", str(path), "--output", str(whole)]) == 0
    assert "12 jobs, of which 12 are done" in capsys.readouterr().err
    assert main(["study", str(path), "--output", str(whole), "--stages.finetune.set.training.epochs", "2"]) == 2
    assert "training.epochs: 1.0 -> 2.0" in capsys.readouterr().err

    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "seqbert", "study", str(path), "--output", str(killed), "--jobs", "2"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(list(killed.glob("runs/*/*/seed-*/result.json"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while main(["study", str(path), "--output", str(killed), "--jobs", "2"]) == 2:  # the workers are saving yet
        time.sleep(0.2)
    kept = [
        row for row in csv.DictReader((killed / "table.csv").read_text().splitlines()) if row["metric"] != "seconds"
    ]
    assert kept == [row for row in rows if row["metric"] != "seconds"]


@pytest.mark.slow
def test_a_job_that_fails_is_told_and_the_others_are_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = {"mixture": {"no data": {"pretrain": {"domains": {"text": {"data": [str(tmp_path / "nothing")]}}}}}}
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(declaration(tmp_path, axes=arms, seeds=[0]), sort_keys=False), encoding="utf-8")
    assert main(["study", str(path), "--jobs", "2"]) == 2
    told = capsys.readouterr().err
    assert "pretrain, mixture no data, seed 0 failed" in told and "a job that it needs failed" in told
    failed = json.loads((tmp_path / "study" / "failed.json").read_text())["failed"]
    assert len(failed) == 3
    assert len(list((tmp_path / "study").glob("runs/finetune/*/seed-0/result.json"))) == 4
