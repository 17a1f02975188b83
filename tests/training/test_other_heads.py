"""What a task's head stands on where that is not the first token's hidden state: the last token, or an LSTM."""

from pathlib import Path

import labelled
import numpy as np
import pytest
import torch

import seqbert
from seqbert.models.hub import read_checkpoint
from seqbert.training.finetuned import Finetuned

QUERY = "encoder.blocks.0.attention.query.weight"


def query_after(folder: Path, **features: object) -> torch.Tensor:
    tree = labelled.settings(folder, training={"epochs": 1}, features={"layers": "last", "lstm_hidden": 8, **features})
    return read_checkpoint(seqbert.finetune(tree).folder / "model").tensors[QUERY]


def test_an_lstm_on_top_is_trained_with_the_encoder_unless_that_is_frozen(tmp_path: Path) -> None:
    start = labelled.settings(tmp_path / "start", training={"epochs": 1, "learning_rate": 1e-12})
    begun = read_checkpoint(seqbert.finetune(start).folder / "model").tensors[QUERY]
    assert torch.allclose(query_after(tmp_path / "frozen", frozen=True), begun, atol=1e-8)
    assert not torch.allclose(query_after(tmp_path / "trained", frozen=False), begun, atol=1e-4)


def test_the_encoder_under_an_lstm_that_is_trained_with_it_has_dropout(tmp_path: Path) -> None:
    from seqbert.models.config import PRESETS
    from seqbert.models.lstm import FeaturesConfig
    from seqbert.models.model import Model

    for frozen in (True, False):
        model = Model(
            PRESETS["bert-tiny"], {"x": 9}, {"x": {"classification": 2}}, FeaturesConfig("last", frozen=frozen)
        )
        assert model.train().encoder.training is not frozen
        assert all(weight.requires_grad is not frozen for weight in model.encoder.parameters())


@pytest.mark.parametrize("causal", [True, False])
def test_the_head_on_a_causal_encoder_reads_the_last_token_and_else_the_first(tmp_path: Path, causal: bool) -> None:
    folder = seqbert.finetune(labelled.settings(tmp_path, model={"causal": causal})).folder
    tuned = Finetuned.of_run(folder)
    records = [seqbert.Example(str(n), (text,)) for n, text in enumerate(["the cat sees a house", "the bad dog"])]
    source = tuned.source(records)
    batch = tuned.task.batch(source, np.arange(2))
    ends = np.cumsum(batch.lengths)
    assert tuned.task.rows(batch).tolist() == ((ends - 1) if causal else ends - batch.lengths).tolist()
