"""The small settings of the studies that ship, with a folder of data: what their runs read, and that arms are alike."""

import functools
from pathlib import Path

import pytest

from seqbert.config import find
from seqbert.studies.declaration import load_study
from seqbert.studies.jobs import Job, plan_jobs

NAMES = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "configs" / "studies").glob("*.yaml"))

ALIKE = ("masking", "model_size", "features", "few_sample")
"""Studies of which all arms of a stage see the same records."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds what every study names."""
    made = tmp_path_factory.mktemp("data")
    for name in NAMES:
        for file in load_study(f"studies/{name}", ["--init", "unused"]).data.files.values():
            (made / file.path).mkdir(parents=True, exist_ok=True)
    return made


@functools.cache
def planned(name: str, folder: Path) -> list[Job]:
    """The jobs of one seed."""
    overrides = ["--init", "unused", "--data.folder", str(folder), "--seeds", "0"]
    return plan_jobs(load_study(f"studies/{name}", overrides, small=True), find(f"studies/{name}").parent)


@pytest.mark.parametrize("name", NAMES)
def test_a_fine_tuning_reads_what_its_study_names_and_not_what_its_config_had(name: str, folder: Path) -> None:
    for job in planned(name, folder):
        if job.run == "finetune":
            data = job.settings["data"]
            for file in data["train"]:
                assert file.startswith("sample") or (Path(data["folder"] or "") / file).is_relative_to(folder), job.name


@pytest.mark.parametrize("name", ALIKE)
def test_all_arms_see_the_same_records_and_as_many_tokens_of_pretraining(name: str, folder: Path) -> None:
    jobs = planned(name, folder)
    pretraining = [job.settings for job in jobs if job.run == "pretrain"]
    finetuning = [job.settings for job in jobs if job.run == "finetune"]
    assert all(one["domains"] == pretraining[0]["domains"] for one in pretraining)
    assert len({(one["training"]["steps"], one["training"]["tokens_per_step"]) for one in pretraining}) <= 1
    assert all(one["data"] == finetuning[0]["data"] for one in finetuning)
    assert finetuning[0]["data"]["train_size"] is not None


@pytest.mark.parametrize("name", NAMES)
def test_without_a_folder_of_data_no_run_looks_for_its_files(name: str, tmp_path: Path) -> None:
    study = load_study(f"studies/{name}", ["--init", str(tmp_path), "--seeds", "0"], small=True)
    if any(file.otherwise is None for file in study.data.files.values()):
        pytest.skip("the study needs a folder")
    for job in plan_jobs(study, find(f"studies/{name}").parent):
        if job.run == "finetune":
            data = job.settings["data"]
            assert all(file.startswith("sample") for file in data["train"]), job.name
            assert isinstance(data["validation"], float) and data["test"] is None, job.name
