"""Fine-tuning on variants of the records, and averaging over them, through the commands."""

import csv
import json
import shutil

import numpy as np
import pytest
from finetuned_strands import settings
from strands import Strands, mirrored

import seqbert
from seqbert import registry
from seqbert.cli import main
from seqbert.errors import ConfigError


@pytest.fixture(autouse=True)
def _strands(monkeypatch):
    """The test domain, as if a package announced it."""
    load = registry.load
    monkeypatch.setattr(registry, "load", lambda name: Strands if name == "strands" else load(name))


def weights(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "model").rglob("*.safetensors")}


def test_a_resumed_run_is_given_the_same_variants_as_one_that_was_never_stopped(tmp_path):
    tree = settings(tmp_path, domain={"augment": ["mirror", "shift"], "average": ["mirror"]}, run={"keep": 10})
    whole = seqbert.finetune(tree)
    before = weights(whole.folder)
    for path in sorted((whole.folder / "checkpoints").iterdir())[1:]:
        shutil.rmtree(path)
    assert weights(seqbert.finetune(tree, resume="auto").folder) == before
    plain = seqbert.finetune(settings(tmp_path, output=str(tmp_path / "plain")))
    assert weights(plain.folder) != before


def test_the_variants_do_not_depend_on_the_number_of_workers(tmp_path):
    runs = [
        seqbert.finetune(
            settings(tmp_path, output=str(tmp_path / f"{n}"), domain={"augment": ["mirror"]}, run={"workers": n})
        )
        for n in (1, 2)
    ]
    assert weights(runs[0].folder) == weights(runs[1].folder)


def test_a_run_averages_as_it_was_told_and_as_the_command_line_says(tmp_path, capsys):
    run = seqbert.finetune(settings(tmp_path, domain={"average": ["mirror"]}, training={"learning_rate": 1e-2})).folder
    table, other = tmp_path / "table.csv", tmp_path / "other.csv"
    with table.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    with other.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([rows[0], *([mirrored(text), label] for text, label in rows[1:])])

    def chances(data, average) -> np.ndarray:
        found = seqbert.predict(run, str(data), average=average).predictions
        return np.array([list(one.details["probabilities"].values()) for one in found])

    assert np.abs(chances(table, None) - chances(other, None)).max() < 3e-6  # six digits are kept
    assert np.abs(chances(table, []) - chances(other, [])).max() > 5e-5
    assert np.array_equal(chances(table, ["mirror"]), chances(table, None))
    assert main(["evaluate", str(run), "--data", str(table), "--average", "mirror", "shift", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == len(rows) - 1
    assert main(["evaluate", str(run), "--data", str(table), "--average", "mirrors"]) == 2
    assert '--average names "mirrors"' in capsys.readouterr().err


def test_a_run_with_an_augmentation_that_is_not_there_ends_before_its_folder_is_touched(tmp_path):
    tree = settings(tmp_path, domain={"augment": ["transposition"]})
    with pytest.raises(ConfigError, match=r'domain.augment names "transposition".*it has mirror, shift, drop'):
        seqbert.finetune(tree)
    assert not (tmp_path / "run").exists()
