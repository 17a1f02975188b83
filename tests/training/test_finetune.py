"""Fine-tuning runs as a user starts them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import runs
import torch
from labelled import settings, write_reviews
from safetensors.torch import load_file

import seqbert
from seqbert import registry
from seqbert.config import load
from seqbert.errors import CheckpointError, ConfigError, DataError
from seqbert.models.hub import read_checkpoint
from seqbert.tasks import build_task
from seqbert.tasks.span import SpanConfig
from seqbert.training.finetune_config import FinetuneConfig, FinetuneDataConfig
from seqbert.training.finetune_data import read_labelled
from seqbert.training.finetuned import Finetuned
from seqbert.training.logging import TIMED, read_metrics


def metrics(folder: Path) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in TIMED} for row in read_metrics(folder)]


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_a_run_leaves_the_folder_that_the_design_names(tmp_path):
    result = seqbert.finetune(
        settings(tmp_path, data={"test": [str(write_reviews(tmp_path / "test.csv", 20, seed=9))]})
    )
    names = {path.name for path in result.folder.iterdir()}
    assert {"config.yaml", "data.json", "task.json", "tokenizers", "checkpoints", "model", "metrics.jsonl"} <= names
    assert {path.name for path in (result.folder / "evaluation").iterdir()} == {
        "validation",
        "test",
        "learning_curve.png",
    }
    files = {path.name for path in (result.folder / "evaluation" / "test").iterdir()}
    assert files == {"metrics.json", "predictions.jsonl", "confusion.json", "confusion.png"}
    assert json.loads((result.folder / "task.json").read_text())["labels"] == ["no", "yes"]
    assert set(result.metrics) == {"validation", "test"}
    report = json.loads((result.folder / "data.json").read_text())
    assert report["train"]["records"] == {"in": 60, "read": 60, "repaired": 0, "skipped": 0}
    assert report["train"]["used"]["records"] + report["validation"]["used"]["records"] == 60
    assert (
        report["validation"]["used"]["labels"] == {"no": 8, "yes": 8}
        or sum(report["validation"]["used"]["labels"].values()) == report["validation"]["used"]["records"]
    )


def test_the_written_config_repeats_the_run_byte_for_byte(tmp_path):
    first = seqbert.finetune(settings(tmp_path, model={"dropout": 0.1}))
    second = seqbert.finetune(first.folder / "config.yaml", ["--output", str(tmp_path / "again")])
    assert weights(first.folder) == weights(second.folder)
    assert metrics(first.folder) == metrics(second.folder)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training": {"lora": {"rank": 2}}},
        {"training": {"optimizer": {"name": "bert_adam"}, "layer_decay": 0.8, "freeze": {"embeddings": True}}},
        {"features": {"lstm_hidden": 8, "lstm_layers": 1, "layers": "weighted_sum"}},
    ],
    ids=["plain", "lora", "bert_adam", "features"],
)
def test_a_resumed_run_ends_as_one_that_was_never_stopped(tmp_path, changes):
    tree = settings(tmp_path, model={"dropout": 0.1}, **changes)
    whole = seqbert.finetune(tree)
    rows, end = metrics(whole.folder), (whole.folder / "model").rglob("*.safetensors")
    before = {path.name: path.read_bytes() for path in end}
    checkpoints = sorted((whole.folder / "checkpoints").iterdir())
    tree["run"]["keep"] = 10
    shutil.rmtree(whole.folder)
    kept = seqbert.finetune(tree)
    for path in sorted((kept.folder / "checkpoints").iterdir())[1:]:
        shutil.rmtree(path)
    seqbert.finetune(tree, resume="auto")
    assert checkpoints
    assert {path.name: path.read_bytes() for path in (kept.folder / "model").rglob("*.safetensors")} == before
    assert metrics(kept.folder) == rows


def test_the_batches_do_not_depend_on_the_number_of_workers(tmp_path):
    first = seqbert.finetune(settings(tmp_path))
    second = seqbert.finetune(settings(tmp_path, output=str(tmp_path / "two"), run={"workers": 2}))
    assert weights(first.folder) == weights(second.folder)


def test_a_run_goes_on_with_its_own_config_only(tmp_path):
    tree = settings(tmp_path)
    seqbert.finetune(tree)
    with pytest.raises(ConfigError, match="already holds a run"):
        seqbert.finetune(tree)
    with pytest.raises(ConfigError, match=r"training.learning_rate: 0.001 -> 0.1"):
        seqbert.finetune(tree, ["--training.learning_rate", "0.1"], resume="auto")
    write_reviews(tmp_path / "reviews.csv", 40)
    with pytest.raises(ConfigError, match="not what the run"):
        seqbert.finetune(tree, resume="auto")


def test_several_seeds_are_summed_up_and_the_best_is_the_model(tmp_path):
    result = seqbert.finetune(settings(tmp_path, training={"seeds": 3, "epochs": 1}, seed=5))
    assert sorted(result.seeds) == [5, 6, 7]
    values = [row["validation"]["accuracy"] for row in result.seeds.values()]
    summary = result.summary["validation"]["accuracy"]
    assert summary["mean"] == pytest.approx(np.mean(values))
    assert summary["median"] == pytest.approx(np.median(values))
    assert summary["standard_deviation"] == pytest.approx(np.std(values, ddof=1))
    assert result.seeds[result.best_seed]["validation"]["accuracy"] == max(values)
    assert weights(result.folder) == weights(result.folder / "seeds" / str(result.best_seed))
    assert (result.folder / "evaluation" / "seeds.png").is_file()
    alone = seqbert.finetune(settings(tmp_path, training={"epochs": 1}, seed=6, output=str(tmp_path / "six")))
    assert weights(alone.folder) == weights(result.folder / "seeds" / "6")


def test_training_ends_early_where_nothing_gets_better(tmp_path):
    tree = settings(tmp_path, training={"epochs": 30, "early_stopping": 2, "learning_rate": 1e-9})
    result = seqbert.finetune(tree)
    rows = [row for row in metrics(result.folder) if "validation_text" in row]
    assert len(rows) == 3  # the first is the best, and two more bring nothing
    before = weights(result.folder)
    seqbert.finetune(tree, resume="auto")
    assert weights(result.folder) == before


def test_train_size_takes_part_of_the_records_and_smaller_parts_lie_within_larger(tmp_path):
    sizes = {}
    for size in (10, 20):
        tree = settings(tmp_path, output=str(tmp_path / str(size)), data={"train_size": size}, training={"epochs": 1})
        result = seqbert.finetune(tree)
        sizes[size] = json.loads((result.folder / "data.json").read_text())["train"]["used"]["records"]
    assert sizes == {10: 10, 20: 20}


# Where a run begins


def test_it_begins_from_a_pretrained_run_with_the_domain_and_options_of_that(tmp_path):
    pretrained = seqbert.pretrain(runs.settings(tmp_path / "pre", domains={"text": {"options": {"lowercase": False}}}))
    tree = settings(tmp_path, init=str(pretrained.folder))
    del tree["domain"], tree["model"]
    result = seqbert.finetune(tree)
    config = load(FinetuneConfig, result.folder / "config.yaml")
    assert (config.domain.name, config.domain.options.lowercase) == ("text", False)
    assert any("not used: cls.predictions" in note for note in result.notes)
    with pytest.raises(ConfigError, match=r"lowercase: false -> true"):
        tree["domain"] = {"options": {"lowercase": True}}
        seqbert.finetune(tree, ["--output", str(tmp_path / "other")])


def test_it_begins_from_a_fine_tuned_run_whose_head_is_dropped_and_listed(tmp_path):
    first = seqbert.finetune(settings(tmp_path))
    tree = settings(tmp_path, output=str(tmp_path / "second"), init=str(first.folder))
    del tree["model"]
    second = seqbert.finetune(tree, ["--training.learning_rate", "1e-12"])
    assert any("not used" in note and "classifier.weight" in note for note in second.notes)
    old, new = (load_file(run.folder / "model" / "model.safetensors") for run in (first, second))
    assert torch.allclose(old["bert.pooler.dense.weight"], new["bert.pooler.dense.weight"], atol=1e-6)
    assert not torch.allclose(old["classifier.weight"], new["classifier.weight"], atol=1e-3)


def test_frozen_blocks_stay_and_the_topmost_are_drawn_anew(tmp_path):
    pretrained = seqbert.pretrain(runs.settings(tmp_path / "pre"))
    before = load_file(pretrained.folder / "model" / "model.safetensors")
    tree = settings(
        tmp_path,
        seed=7,
        init=str(pretrained.folder),
        training={"freeze": {"embeddings": True, "layers": 1}, "reinitialise": 1},
    )
    del tree["model"], tree["domain"]["vocab_size"]
    after = load_file(seqbert.finetune(tree).folder / "model" / "model.safetensors")
    for name, tensor in before.items():
        if "embeddings." in name or ".layer.0." in name:
            assert torch.equal(tensor, after[name]), name
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    assert not torch.allclose(before[name], after[name], atol=0.01)


def test_a_run_may_have_no_validation_records_and_keeps_its_newest_weights(tmp_path):
    result = seqbert.finetune(settings(tmp_path, data={"validation": 0}))
    assert result.metrics == {}
    assert any("no validation records" in note for note in result.notes)
    assert (result.folder / "model" / "model.safetensors").is_file()


# Labels and records


def test_row37_a_label_that_only_validation_has_is_an_error_before_training_with_its_count(tmp_path):
    validation = write_reviews(tmp_path / "dev.csv", 10, labels=("no", "maybe"))
    tree = settings(tmp_path, data={"validation": str(validation)})
    with pytest.raises(DataError, match=r'"maybe" \(5\).*dev.csv:3'):
        seqbert.finetune(tree)
    assert not (tmp_path / "run" / "model").exists()
    result = seqbert.finetune(tree, ["--data.unseen_labels", "skip"])
    assert any("5 validation records" in note and "left out" in note for note in result.notes)
    rows = [row for row in metrics(result.folder) if "validation_text" in row]
    assert all(np.isfinite(row["validation_text"]["loss"]) for row in rows)


def test_row38_labels_come_back_as_they_were_and_a_changed_list_is_refused(tmp_path):
    result = seqbert.finetune(settings(tmp_path))
    assert read_checkpoint(result.folder / "model").labels == ("no", "yes")
    predictions = seqbert.predict(result.folder, str(tmp_path / "reviews.csv")).predictions
    assert {prediction.value for prediction in predictions} <= {"no", "yes"}
    state = json.loads((result.folder / "task.json").read_text())
    (result.folder / "task.json").write_text(json.dumps(state | {"labels": ["yes", "no"]}))
    with pytest.raises(CheckpointError, match="labels"):
        seqbert.predict(result.folder, str(tmp_path / "reviews.csv"))


def test_records_of_validation_that_stand_in_train_are_counted(tmp_path):
    (tmp_path / "x").mkdir()
    lines = write_reviews(tmp_path / "x" / "all.csv", 60).read_text().splitlines()
    validation = tmp_path / "dev.csv"
    validation.write_text("\n".join([lines[0], *lines[1:4], "new words,yes", "other words,no"]) + "\n")
    result = seqbert.finetune(settings(tmp_path, data={"validation": str(validation)}, training={"epochs": 1}))
    assert any(note.startswith("3 of the 5 validation records") for note in result.notes)
    assert json.loads((result.folder / "data.json").read_text())["validation"]["shared_with_train"] == 3


def test_questions_whose_paragraph_was_trained_on_are_counted(shared_data, tmp_path):
    """78 paragraphs of XQuAD's English file stand in this part of SQuAD, as an independent count of both says."""
    squad, xquad = (
        shared_data / "text" / "squad2_cs224n_dev" / "dev-v2.0.json",
        shared_data / "multilingual" / "xquad" / "xquad.en.json",
    )
    contexts = [
        {
            paragraph["context"]
            for article in json.loads(path.read_text())["data"]
            for paragraph in article["paragraphs"]
        }
        for path in (squad, xquad)
    ]
    assert len(contexts[0] & contexts[1]) == 78
    task = build_task(SpanConfig())
    config = FinetuneDataConfig(train=[str(squad)], validation=0, test=[str(xquad)])
    notes: list[str] = []
    data = read_labelled(config, task, registry.load("text")(), notes.append)
    expected = sum(example.sequences[1] in contexts[0] for example in data.parts["test"])
    assert data.shared["test"] == expected > 78
    assert any(f"{expected} of the 1,190 test records have contexts" in note for note in notes)


def test_row78_records_longer_than_the_positions_have_the_outcome_that_was_asked_for(tmp_path):
    path = tmp_path / "long.csv"
    short = write_reviews(tmp_path / "short.csv", 40).read_text()
    path.write_text(short + f"{'good tree ' * 300},yes\n{'bad tree ' * 300},no\n")
    tree = settings(tmp_path, data={"train": [str(path)], "validation": 0.2}, training={"epochs": 1})
    report = json.loads((seqbert.finetune(tree).folder / "data.json").read_text())
    assert sum(report[part]["used"]["windowed_records"] for part in ("train", "validation")) == 2
    report = json.loads(
        (seqbert.finetune(tree, ["--data.long", "cut"], overwrite=True).folder / "data.json").read_text()
    )
    assert sum(report[part]["used"]["cut_records"] for part in ("train", "validation")) == 2
    with pytest.raises(DataError, match=r"long.csv:4\d: with its special tokens the record has 602 tokens"):
        seqbert.finetune(tree, ["--data.long", "error"], overwrite=True)
    with pytest.raises(ConfigError, match="max_position_embeddings"):
        seqbert.finetune(tree, ["--training.max_length", "1000"], overwrite=True)


# What comes out


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".json", ".jsonl", ".parquet"])
def test_predictions_are_written_in_the_form_that_the_ending_says(tmp_path, suffix):
    result = seqbert.finetune(settings(tmp_path, training={"epochs": 1}))
    target = tmp_path / f"out{suffix}"
    predictions = seqbert.predict(result.folder, str(tmp_path / "reviews.csv"), target).predictions
    values = [prediction.value for prediction in predictions]
    match suffix:
        case ".tsv":
            lines = target.read_text().splitlines()
            assert lines[0] == "index\tprediction"
            assert [line.split("\t")[1] for line in lines[1:]] == values
        case ".csv":
            assert target.read_text().splitlines()[0] == "id,prediction,no,yes"
        case ".json":
            assert list(json.loads(target.read_text()).values()) == values
        case ".jsonl":
            rows = [json.loads(line) for line in target.read_text().splitlines()]
            assert [row["prediction"] for row in rows] == values
            assert all(sum(row["probabilities"].values()) == pytest.approx(1.0, abs=1e-5) for row in rows)
        case ".parquet":
            pandas = pytest.importorskip("pandas")
            assert pandas.read_parquet(target)["prediction"].tolist() == values
    assert not [path for path in tmp_path.iterdir() if "writing" in path.name]
    with pytest.raises(ConfigError, match="says no form"):
        seqbert.predict(result.folder, str(tmp_path / "reviews.csv"), tmp_path / "out.doc")


def test_evaluate_gives_what_training_reported(tmp_path):
    test = write_reviews(tmp_path / "test.csv", 30, seed=3)
    result = seqbert.finetune(settings(tmp_path, data={"test": [str(test)]}))
    found = seqbert.evaluate(result.folder, str(test))
    assert found["metrics"] == result.metrics["test"]
    assert found["records"] == 30


def test_lora_is_merged_into_the_weights_that_are_saved(tmp_path):
    result = seqbert.finetune(settings(tmp_path, training={"lora": {"rank": 2}}))
    names = load_file(result.folder / "model" / "model.safetensors").keys()
    assert not [name for name in names if "lora" in name or "parametrizations" in name]
    assert Finetuned.of_run(result.folder).model.heads_of("text") == {"classification": 2}


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_transformers_gives_the_logits_of_a_fine_tuned_run(tmp_path, task):
    transformers = pytest.importorskip("transformers")
    labels = ("no", "yes") if task == "classification" else ("10.5", "30.25")
    write_reviews(tmp_path / "x.csv", labels=labels)
    tree = settings(tmp_path, task={"name": task})
    write_reviews(tmp_path / "reviews.csv", labels=labels)
    result = seqbert.finetune(tree)
    exported = seqbert.export(result.folder, tmp_path / "exported")
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(exported, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    texts = ["a good tree", "the river sleeps and a poor old dog never walks"]
    with torch.no_grad():
        theirs = [model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts]
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(texts) + "\n")
    ours = seqbert.predict(result.folder, str(tmp_path / "texts.csv")).predictions
    for prediction, logits in zip(ours, theirs, strict=True):
        if task == "regression":
            assert prediction.value == pytest.approx(float(logits[0]), rel=1e-4)
        else:
            assert np.allclose(prediction.logits, logits, atol=1e-4)
            assert prediction.value == model.config.id2label[int(logits.argmax())]


# Mistakes


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--data.train", "nowhere.csv"], 'There is no file or folder "nowhere.csv"'),
        (["--data.columns.label", "lable"], "lable"),
        (["--training.epoch", "3"], 'Did you mean "epochs"'),
        (["--task.name", "clasification"], 'Did you mean "classification"'),
        (["--domain.name", "txt"], 'Did you mean "text"'),
        (["--data.train", "sample:nothing"], "comes with no table"),
        (["--init", "nowhere"], "no run and no Hugging Face folder"),
        (["--training.reinitialise", "5"], "the encoder has 2"),
        (["--task.metric", "acuracy"], 'Did you mean "accuracy"'),
    ],
)
def test_a_mistake_is_an_error_that_names_it(tmp_path, overrides, message):
    with pytest.raises(seqbert.SeqbertError, match=message):
        seqbert.finetune(settings(tmp_path), overrides)


def test_row41_columns_that_do_not_match_are_listed_with_those_that_are_there(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("txt,y\nab,1\ncd,0\n")
    tree = settings(tmp_path, data={"train": [str(path)], "columns": {"sequence": "text", "label": "label"}})
    with pytest.raises(DataError) as error:
        seqbert.finetune(tree)
    assert all(name in str(error.value) for name in ("txt", "y", "text", "label"))


def test_row39_a_fraction_is_no_class(tmp_path):
    path = tmp_path / "fractions.csv"
    path.write_text("text,label\nab,0.5\ncd,1\n")
    with pytest.raises(DataError, match="regression"):
        seqbert.finetune(settings(tmp_path, data={"train": [str(path)]}))


# What must not be lost


def test_a_mistake_leaves_the_run_that_was_to_be_overwritten_as_it_was(tmp_path):
    tree = settings(tmp_path, training={"epochs": 1})
    first = seqbert.finetune(tree)
    before = {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(ConfigError, match="encoder has 2"):
        seqbert.finetune(tree, ["--training.freeze.layers", "9"], overwrite=True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_mistake_leaves_no_folder_that_looks_like_a_run(tmp_path):
    with pytest.raises(ConfigError):
        seqbert.finetune(settings(tmp_path), ["--training.freeze.layers", "9"])
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_small_train_size_still_knows_all_labels(tmp_path):
    path = tmp_path / "many.csv"
    path.write_text("text,label\n" + "".join(f"word{n} tree,{'abcdef'[n % 6]}\n" for n in range(90)))
    result = seqbert.finetune(settings(tmp_path, data={"train": [str(path)], "train_size": 4}, training={"epochs": 1}))
    assert json.loads((result.folder / "task.json").read_text())["labels"] == list("abcdef")


def test_the_only_record_of_a_class_is_trained_on_and_not_held_out(tmp_path):
    path = tmp_path / "rare.csv"
    rows = [f"tree {n} {label},{label}\n" for label in "abcd" for n in range(50)]
    rows += [f"river {n},rare{n}\n" for n in range(30)]
    path.write_text("text,label\n" + "".join(rows))
    result = seqbert.finetune(
        settings(tmp_path, data={"train": [str(path)], "validation": 0.1}, training={"epochs": 1})
    )
    labels = json.loads((result.folder / "data.json").read_text())["train"]["used"]["labels"]
    assert set(labels) == {*"abcd", *(f"rare{n}" for n in range(30))}


def test_large_numbers_are_told_apart_in_bfloat16(tmp_path):
    path = tmp_path / "large.csv"
    path.write_text(
        "text,label\n" + "".join(f"{'good' if n % 2 else 'bad'} tree {n},{1000 + n % 2}\n" for n in range(80))
    )
    tree = settings(
        tmp_path,
        data={"train": [str(path)]},
        task={"name": "regression"},
        run={"precision": "bf16"},
        training={"epochs": 6, "learning_rate": 5e-3},
    )
    result = seqbert.finetune(tree)
    assert result.metrics["validation"]["r2"]["value"] > 0.9
    assert seqbert.evaluate(result.folder, str(path), precision="bf16")["metrics"]["r2"]["value"] > 0.9


def test_records_that_could_not_be_predicted_are_counted(tmp_path):
    result = seqbert.finetune(settings(tmp_path, training={"epochs": 1}))
    path = tmp_path / "new.csv"
    path.write_text("id,text\n1,a good tree\n2,\n3,a bad tree\n")
    found = seqbert.predict(result.folder, str(path))
    assert len(found.predictions) == 2
    assert sum(found.skipped.values()) == 1


def test_ids_that_stand_for_several_records_are_no_keys_of_a_json_file(tmp_path):
    result = seqbert.finetune(settings(tmp_path, training={"epochs": 1}))
    files = [str(write_reviews(tmp_path / name, 4)) for name in ("one.csv", "two.csv")]
    with pytest.raises(DataError, match="ids stand for several records"):
        seqbert.predict(result.folder, files, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
    assert len(seqbert.predict(result.folder, files, tmp_path / "out.jsonl").predictions) == 8


def test_a_file_that_two_patterns_name_is_read_once(tmp_path):
    tree = settings(tmp_path, training={"epochs": 1})
    tree["data"]["train"] = [str(tmp_path / "*.csv"), str(tmp_path / "reviews.csv")]
    report = json.loads((seqbert.finetune(tree).folder / "data.json").read_text())
    assert report["train"]["records"]["in"] == 60


def test_a_tokenizer_that_does_not_belong_to_the_embeddings_is_refused(tmp_path):
    pretrained = seqbert.pretrain(runs.settings(tmp_path / "pre"))
    other = seqbert.finetune(settings(tmp_path, output=str(tmp_path / "other")))
    tree = settings(
        tmp_path, init=str(pretrained.folder), domain={"tokenizer": str(other.folder / "tokenizers" / "text")}
    )
    del tree["model"], tree["domain"]["vocab_size"]
    with pytest.raises(ConfigError, match="domain.tokenizer is another"):
        seqbert.finetune(tree)


def test_a_frozen_encoder_without_pretrained_weights_is_told(tmp_path):
    result = seqbert.finetune(settings(tmp_path, training={"epochs": 1, "lora": {"rank": 1}}))
    assert any("random weights" in note for note in result.notes)


def test_labels_that_a_run_skips_are_skipped_by_evaluate_too(tmp_path):
    result = seqbert.finetune(settings(tmp_path, training={"epochs": 1}))
    strange = str(write_reviews(tmp_path / "strange.csv", 10, labels=("no", "maybe")))
    with pytest.raises(DataError, match='"maybe" \\(5\\)'):
        seqbert.evaluate(result.folder, strange)
    found = seqbert.evaluate(result.folder, strange, options=["--unseen_labels", "skip"])
    assert (found["records"], found["read"]["unseen_labels"]) == (5, {"maybe": 5})
    with pytest.raises(ConfigError, match="train_size"):
        seqbert.evaluate(result.folder, strange, options=["--train_size", "5"])


def test_a_table_for_another_task_is_refused(tmp_path):
    with pytest.raises(DataError, match="which is none for tagging"):
        seqbert.finetune(settings(tmp_path, task={"name": "tagging"}, data={"train": ["sample:classification"]}))


def test_a_metric_that_the_labels_do_not_have_is_refused_before_training(tmp_path):
    path = tmp_path / "three.csv"
    path.write_text("text,label\n" + "".join(f"word{n},{'abc'[n % 3]}\n" for n in range(30)))
    tree = settings(tmp_path, task={"metric": "f1"}, data={"train": [str(path)]})
    with pytest.raises(ConfigError, match="accuracy, macro_f1"):
        seqbert.finetune(tree)
