import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import settings, write_fasta, write_texts

import seqbert
from seqbert.errors import CheckpointError, ConfigError, DataError, TrainingError
from seqbert.models.hub import read_checkpoint
from seqbert.training import loop as loop_module
from seqbert.training.evaluation import perplexity
from seqbert.training.logging import TIMED
from seqbert.training.pretrain_config import load_config
from seqbert.training.run_folder import RunFolder


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def metrics(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMED} for row in rows]


def test_a_run_leaves_the_folder_that_the_design_names(tmp_path: Path) -> None:
    result = seqbert.pretrain(settings(tmp_path))
    names = {path.name for path in result.folder.iterdir()}
    assert {"config.yaml", "data.json", "tokenizers", "checkpoints", "model", "metrics.jsonl"} <= names
    checkpoints = sorted(path.name for path in (result.folder / "checkpoints").iterdir())
    assert checkpoints == [f"step-0000000{step}" for step in (3, 4, 6, 8)]  # every third, the best ones, the last
    assert read_checkpoint(result.folder / "model").heads.keys() == {"masked_lm"}
    report = json.loads((result.folder / "data.json").read_text())["text"]
    assert report["records"]["in"] == report["records"]["read"] + report["records"]["repaired"]
    assert result.domains["text"].after["masked_lm_loss"] < result.domains["text"].before["masked_lm_loss"]  # type: ignore[operator]


def test_the_resolved_config_repeats_the_run_byte_for_byte(tmp_path: Path) -> None:
    first = seqbert.pretrain(settings(tmp_path, objective={"pair": "next_sentence"})).folder
    again = seqbert.pretrain(first / "config.yaml", ["--output", str(tmp_path / "again")]).folder
    assert weights(first) == weights(again)
    assert metrics(first) == metrics(again)


@pytest.mark.parametrize("pair", ["none", "next_sentence", "sentence_order"])
def test_row61_a_run_that_is_resumed_ends_with_the_same_bytes_and_the_same_log(tmp_path: Path, pair: str) -> None:
    tree = settings(tmp_path, objective={"pair": pair}, model={"dropout": 0.1})
    whole = seqbert.pretrain(tree).folder
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    for step in (6, 8):
        shutil.rmtree(broken / "checkpoints" / f"step-{step:08d}")
    shutil.rmtree(broken / "model")
    resumed = seqbert.pretrain(tree | {"output": str(broken)}, resume="auto").folder
    assert weights(whole) == weights(resumed)
    assert metrics(whole) == metrics(resumed)


def test_row65_the_learning_rate_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = seqbert.pretrain(settings(tmp_path)).folder
    before = {row["step"]: row["learning_rate"] for row in metrics(whole) if "learning_rate" in row}
    for step in (6, 8):
        shutil.rmtree(whole / "checkpoints" / f"step-{step:08d}")
    seqbert.pretrain(settings(tmp_path), resume="auto")
    after = {row["step"]: row["learning_rate"] for row in metrics(whole) if "learning_rate" in row}
    assert before == after and len(after) == 8


def test_a_causal_language_model_trains_and_exports(tmp_path: Path) -> None:
    tree = settings(tmp_path, model={"causal": True}, objective={"masked_lm": None, "causal_lm": {}})
    result = seqbert.pretrain(tree)
    assert read_checkpoint(result.folder / "model").config.causal
    with pytest.raises(ConfigError, match="model.causal"):
        seqbert.pretrain(settings(tmp_path, objective={"masked_lm": None, "causal_lm": {}}))


def test_row68_batches_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    runs = [
        seqbert.pretrain(settings(tmp_path, output=str(tmp_path / str(workers)), run={"workers": workers})).folder
        for workers in (0, 2)
    ]
    assert weights(runs[0]) == weights(runs[1])


def gradients(tree: dict[str, Any], micro_tokens: int) -> dict[str, torch.Tensor]:
    """Gradients of one step of a run in float64, whose batch is cut into pieces of ``micro_tokens``."""
    found: dict[str, torch.Tensor] = {}
    original = loop_module.Loop._step

    def step(self: Any, number: int, batches: Any, meter: Any) -> Any:
        self.model.double()
        self.optimizer.step = lambda: found.update(
            {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
        )
        return original(self, number, batches, meter)

    loop_module.Loop._step = step  # type: ignore[method-assign]
    try:
        seqbert.pretrain({**tree, "run": {**tree["run"], "micro_tokens": micro_tokens}}, overwrite=True)
    finally:
        loop_module.Loop._step = original  # type: ignore[method-assign]
    return found


def test_row59_the_gradient_does_not_depend_on_how_a_step_is_cut_into_micro_batches(tmp_path: Path) -> None:
    changes = {
        "model": {"dropout": 0.0},
        "objective": {"pair": "next_sentence"},
        "training": {"steps": 1, "clip_norm": None},
    }
    tree = settings(tmp_path, **changes)
    whole, halves, each = (gradients(tree, tokens) for tokens in (4096, 256, 1))
    assert whole.keys() == halves.keys() == each.keys()
    for name, gradient in whole.items():
        for other in (halves[name], each[name]):
            assert torch.allclose(gradient, other, rtol=1e-7, atol=1e-10)  # the loss is summed in float32


def joint(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    bases = {"data": [str(write_fasta(tmp_path / "dna"))], "validation": 0.1}
    return settings(tmp_path, domains={"dna": bases}, training={"tokens_per_step": 1024}, **changes)


def test_domains_that_train_together_share_the_blocks_and_each_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    result = seqbert.pretrain(joint(tmp_path))
    models = {name: read_checkpoint(result.folder / "model" / name) for name in ("text", "dna")}
    for name, tensor in models["text"].tensors.items():
        if name.startswith("encoder.blocks."):
            assert torch.equal(tensor, models["dna"].tensors[name])
    assert models["text"].vocab_size != models["dna"].vocab_size
    assert set(result.domains) == {"text", "dna"}
    logged = [row for row in metrics(result.folder) if "loss" in row]
    assert all({"text", "dna"} <= row.keys() for row in logged)  # every step holds every domain


def test_an_objective_of_its_own_holds_for_one_domain(tmp_path: Path) -> None:
    tree = joint(tmp_path)
    tree["domains"]["text"]["objective"] = {"pair": "sentence_order"}
    result = seqbert.pretrain(tree)
    assert "sentence_order_loss" in result.domains["text"].after
    assert "sentence_order_loss" not in result.domains["dna"].after


def test_a_domain_whose_documents_are_one_segment_is_told_so_and_trains_without_pairs(tmp_path: Path) -> None:
    result = seqbert.pretrain(joint(tmp_path, objective={"pair": "next_sentence"}))
    assert any(note.startswith("dna:") and "without" in note for note in result.notes)
    assert "next_sentence_loss" in result.domains["text"].after
    assert "next_sentence_loss" not in result.domains["dna"].after


def test_bits_stand_beside_those_of_a_unigram_model_on_the_same_masks(tmp_path: Path) -> None:
    after = seqbert.pretrain(joint(tmp_path)).domains["dna"].after
    # Random bases: no model of counts needs more or less than about two bits.
    assert after["unigram_bits_per_symbol"] == pytest.approx(2.0, abs=0.05)
    assert after["bits_per_symbol"] == pytest.approx(after["masked_lm_loss"] / np.log(2), rel=1e-6)  # type: ignore[operator]


def test_row55_validation_is_repeatable_and_perplexity_of_a_hopeless_loss_is_infinite(tmp_path: Path) -> None:
    result = seqbert.pretrain(settings(tmp_path))
    again = seqbert.pretrain(settings(tmp_path, output=str(tmp_path / "other")))
    assert result.domains["text"].before == again.domains["text"].before
    assert result.domains["text"].before["perplexity"] > 20  # type: ignore[operator]
    assert perplexity(800.0) == float("inf")


def test_row82_validation_covers_every_held_out_window_whatever_the_batch_size(tmp_path: Path) -> None:
    counts = set()
    for number, tokens in enumerate((512, 700, 5000)):
        tree = settings(tmp_path, output=str(tmp_path / str(number)), training={"tokens_per_step": tokens, "steps": 1})
        counts.add(seqbert.pretrain(tree).domains["text"].after["masked_lm_targets"])
    assert len(counts) == 1


def test_training_goes_on_from_a_run_with_its_vocabulary(tmp_path: Path) -> None:
    first = seqbert.pretrain(settings(tmp_path)).folder
    tree = settings(
        tmp_path, output=str(tmp_path / "second"), init=str(first), training={"steps": 1, "learning_rate": 1e-9}
    )
    second = seqbert.pretrain(tree)
    before = json.loads((first / "result.json").read_text())["domains"]["text"]["after"]
    assert second.domains["text"].before["masked_lm_loss"] == pytest.approx(before["masked_lm_loss"], abs=1e-4)
    assert (first / "tokenizers/text/tokenizer.json").read_text() == (
        tmp_path / "second/tokenizers/text/tokenizer.json"
    ).read_text()


@pytest.mark.parametrize("vocabulary", ["extend", "replace"])
def test_training_goes_on_with_an_extended_or_a_new_vocabulary(tmp_path: Path, vocabulary: str) -> None:
    first = seqbert.pretrain(settings(tmp_path)).folder
    other = write_texts(tmp_path / "other", seed=5)
    text = (other / "texts.txt").read_text().replace("cat", "zyx").replace("dog", "qwv")
    (other / "texts.txt").write_text(text)
    domain = {"text": {"data": [str(other)], "vocab_size": 120, "vocabulary": vocabulary}}
    tree = settings(tmp_path, output=str(tmp_path / "second"), init=str(first), domains=domain)
    tree["training"] |= {"steps": 1, "learning_rate": 1e-12}
    second = seqbert.pretrain(tree).folder
    old, new = (read_checkpoint(run / "model") for run in (first, second))
    word = "encoder.embeddings.word.*.weight"
    rows = old.vocab_size if vocabulary == "extend" else 5
    assert torch.allclose(old.tensors[word][:rows], new.tensors[word][:rows], atol=1e-9)
    size = min(old.vocab_size, new.vocab_size)
    assert torch.allclose(old.tensors[word][:size], new.tensors[word][:size], atol=1e-9) == (vocabulary == "extend")
    spellings = json.loads((second / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    assert "z" in spellings and len(spellings) == new.vocab_size


def test_biases_that_begin_at_frequencies_make_a_new_model_as_good_as_a_unigram_model(tmp_path: Path) -> None:
    """In every domain; weights that are not new keep their biases."""
    domains = {"dna": {"data": [str(write_fasta(tmp_path / "dna", letters="AAAACG"))], "validation": 0.1}}
    short = {"steps": 1, "learning_rate": 1e-9}
    tree = settings(tmp_path, domains=domains, model={"bias_init": "unigram"}, training=short)
    first = seqbert.pretrain(tree)
    for name in ("text", "dna"):
        before = first.domains[name].before
        assert before["bits_per_symbol"] == pytest.approx(before["unigram_bits_per_symbol"], rel=0.02)
    other = write_texts(tmp_path / "other", seed=3)
    text = {"text": {"data": [str(other)]}}
    tree = settings(
        tmp_path,
        output=str(tmp_path / "second"),
        init=str(first.folder / "model" / "text"),
        domains=text,
        model={"bias_init": "unigram"},
        training=short,
    )
    second = seqbert.pretrain(tree).folder
    biases = [
        read_checkpoint(folder).tensors["heads.*.masked_lm.bias"]
        for folder in (first.folder / "model" / "text", second / "model")
    ]
    torch.testing.assert_close(biases[0], biases[1], rtol=0, atol=1e-6)


def test_a_model_of_another_shape_than_init_is_refused(tmp_path: Path) -> None:
    first = seqbert.pretrain(settings(tmp_path)).folder
    tree = settings(tmp_path, output=str(tmp_path / "second"), init=str(first), model={"hidden_size": 64})
    with pytest.raises(ConfigError, match="model.hidden_size"):
        seqbert.pretrain(tree)


def test_a_loss_that_is_not_finite_stops_with_the_step_the_checkpoint_and_what_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop_module.Loop._step

    def poisoned(self: Any, step: int, batches: Any, meter: Any) -> Any:
        if step == 4:
            with torch.no_grad():
                next(self.model.parameters()).mul_(float("nan"))
        return original(self, step, batches, meter)

    monkeypatch.setattr(loop_module.Loop, "_step", poisoned)
    with pytest.raises(TrainingError, match=r"not finite.* in step 5.*step-00000004.*learning_rate"):
        seqbert.pretrain(settings(tmp_path))


def test_an_output_folder_that_holds_a_run_is_neither_touched_nor_mixed(tmp_path: Path) -> None:
    folder = seqbert.pretrain(settings(tmp_path)).folder
    before = weights(folder)
    with pytest.raises(ConfigError, match="already holds a run"):
        seqbert.pretrain(settings(tmp_path))
    assert weights(folder) == before
    with pytest.raises(DataError):
        seqbert.pretrain(settings(tmp_path, domains={"text": {"data": ["no/such/file"]}}), overwrite=True)
    assert weights(folder) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="not those of a run"):
        seqbert.pretrain(settings(tmp_path, output=str(tmp_path / "mine")), overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_resume_on_changed_data_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    folder = seqbert.pretrain(settings(tmp_path)).folder
    before = (folder / "data.json").read_text()
    tree = settings(tmp_path)
    write_texts(tmp_path / "texts", seed=9)
    with pytest.raises(ConfigError, match="data of text"):
        seqbert.pretrain(tree, resume="auto")
    assert (folder / "data.json").read_text() == before


def test_resuming_a_finished_run_gives_its_result_again(tmp_path: Path) -> None:
    first = seqbert.pretrain(settings(tmp_path))
    again = seqbert.pretrain(settings(tmp_path), resume="auto")
    assert again.domains["text"].after == first.domains["text"].after


def test_going_on_from_an_older_checkpoint_leaves_the_newer_ones_behind(tmp_path: Path) -> None:
    folder = seqbert.pretrain(settings(tmp_path)).folder
    whole = weights(folder)
    seqbert.pretrain(settings(tmp_path), resume=str(folder / "checkpoints" / "step-00000003"))
    assert weights(folder) == whole
    assert (folder / "checkpoints" / "step-00000008").is_dir()
    with pytest.raises(ConfigError, match="another run"):
        seqbert.pretrain(
            settings(tmp_path, output=str(tmp_path / "new")), resume=str(folder / "checkpoints" / "step-00000003")
        )


def test_another_tokenizer_than_that_of_the_embeddings_is_refused(tmp_path: Path) -> None:
    first = seqbert.pretrain(settings(tmp_path)).folder
    other = tmp_path / "other.json"
    other.write_text((first / "tokenizers/text/tokenizer.json").read_text().replace('"a":', '"qq":'))
    domain = {"text": {"tokenizer": str(other)}}
    with pytest.raises(ConfigError, match="domains.text.tokenizer"):
        seqbert.pretrain(settings(tmp_path, output=str(tmp_path / "new"), init=str(first), domains=domain))


def test_a_run_does_not_overwrite_what_it_begins_from(tmp_path: Path) -> None:
    first = seqbert.pretrain(settings(tmp_path)).folder
    with pytest.raises(ConfigError, match="begins from"):
        seqbert.pretrain(settings(tmp_path, init=str(first)), overwrite=True)
    assert weights(first)


def test_a_folder_that_another_process_writes_to_is_refused(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path / "run").lock(),
        pytest.raises(ConfigError, match="Another process"),
    ):
        seqbert.pretrain(settings(tmp_path))


def test_a_run_follows_upon_its_preparation_in_one_folder(tmp_path: Path) -> None:
    corpora = seqbert.prepare(settings(tmp_path))
    report = json.loads((tmp_path / "run" / "data.json").read_text())
    assert report["text"] == corpora["text"].report
    assert seqbert.pretrain(settings(tmp_path)).best_step


def test_weights_can_be_read_by_whom_the_other_files_can(tmp_path: Path) -> None:
    folder = seqbert.pretrain(settings(tmp_path)).folder
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert len(modes) == 1


def test_row64_a_resume_with_a_changed_batch_is_refused_with_the_difference(tmp_path: Path) -> None:
    seqbert.pretrain(settings(tmp_path))
    with pytest.raises(ConfigError, match="training.tokens_per_step: 512 -> 256"):
        seqbert.pretrain(settings(tmp_path, training={"tokens_per_step": 256}), resume="auto")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"training": {"max_length": 1024, "tokens_per_step": 2048}}, ConfigError, "max_position_embeddings"),
        ({"domains": {"text": {"data": ["no/such/file.txt"]}}}, DataError, "no/such/file.txt"),
        ({"domains": {"text": {"data": []}}}, DataError, "No data"),
        ({"run": {"device": "abacus"}}, ConfigError, "run.device"),
        ({"init": "no/such/run"}, CheckpointError, "no/such/run"),
        ({"objective": {"masked_lm": {"unit": "bar"}}}, ConfigError, "token and word"),
        ({"training": {"tokens_per_step": 16}}, ConfigError, "tokens_per_step"),
        ({"domains": {"text": {"tokenizer": "no/such/tokenizer"}}}, ConfigError, "no/such/tokenizer"),
    ],
)
def test_a_mistake_is_named_before_anything_is_trained(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        seqbert.pretrain(settings(tmp_path, **changes))
    assert not (tmp_path / "run").exists()


def test_the_python_call_the_file_and_the_command_line_describe_the_same_run(tmp_path: Path) -> None:
    tree = settings(tmp_path, training={"steps": 5})
    from_python = load_config(tree)
    (tmp_path / "config.yaml").write_text(seqbert.config.dump(load_config(settings(tmp_path))))
    from_file = load_config(tmp_path / "config.yaml", ["--training.steps", "5"])
    assert from_python == from_file
