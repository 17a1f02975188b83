import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from letters import build, objective_and_source, write_documents

from seqbert.data.corpus import Corpus
from seqbert.errors import ConfigError
from seqbert.models.losses import cross_entropy
from seqbert.objectives import ObjectiveConfig
from seqbert.objectives.causal_lm import CausalLMConfig


def test_a_document_that_cannot_be_read_any_more_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "a.letters", 20)
    corpus = build(folder, validation=0.0)
    objective, source = objective_and_source(corpus, ObjectiveConfig())
    gather, broken = source.split.store.gather, int(source.split.offset[source.split.first_segment[7]])

    def failing(name: str, start: np.ndarray, stop: np.ndarray, after: np.ndarray) -> np.ndarray:
        if ((start <= broken) & (broken < stop)).any():
            raise IndexError("gone")
        return gather(name, start, stop, after)

    source.split.store.gather = failing  # type: ignore[method-assign]
    with pytest.raises(IndexError) as found:
        for step in range(20):
            objective.examples(source, step)
    assert found.value.__notes__ == ["in the document a-7 (" + str(folder / "a.letters") + ":7)"]


def test_a_step_fills_its_token_budget_and_never_exceeds_it(corpus: Corpus) -> None:
    objective, source = objective_and_source(corpus, ObjectiveConfig(), max_length=32, tokens_per_step=4096)
    sizes = [objective.examples(source, step).tokens for step in range(50)]
    assert max(sizes) <= 4096
    assert sum(sizes) / len(sizes) > 0.99 * 4096


def test_an_epoch_of_steps_visits_nearly_every_window(corpus: Corpus) -> None:
    objective, source = objective_and_source(corpus, ObjectiveConfig(), max_length=32, tokens_per_step=1024)
    steps = -(-source.plan.total // source.stages[0].sequences)
    seen = set()
    for step in range(steps):
        seen |= set(objective.examples(source, step).record.tolist())
    assert len(seen) >= 0.99 * source.split.documents


def test_validation_is_the_same_every_time_whatever_the_step(corpus: Corpus) -> None:
    objective, source = objective_and_source(corpus, ObjectiveConfig())
    first = [batch.ids for batch in objective.validation(source, 1024)]
    objective.examples(source, 3)
    second = [batch.ids for batch in objective.validation(source, 1024)]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_in_validation_every_target_is_hidden_from_the_model(corpus: Corpus) -> None:
    objective, source = objective_and_source(corpus, ObjectiveConfig())
    for batch in objective.validation(source, 4096):
        assert (batch.ids[batch.targets["masked_lm"].index] == 4).all()


def test_row77_a_source_that_was_sent_to_another_process_gives_the_same_batches(corpus: Corpus) -> None:
    objective, source = objective_and_source(corpus, ObjectiveConfig())
    there_objective, there = pickle.loads(pickle.dumps((objective, source)))
    assert torch.equal(objective.examples(source, 5).ids, there_objective.examples(there, 5).ids)


def test_causal_targets_are_the_next_tokens_within_each_sequence(corpus: Corpus) -> None:
    objective, source = objective_and_source(corpus, ObjectiveConfig(None, CausalLMConfig()))
    batch = objective.examples(source, 0)
    target = batch.targets["causal_lm"]
    assert torch.equal(batch.ids[target.index + 1], target.labels)
    assert len(target.index) == sum(length - 2 for length in batch.lengths)


def test_one_token_term_is_needed_and_one_only() -> None:
    with pytest.raises(ConfigError, match="one of them"):
        ObjectiveConfig(None)
    with pytest.raises(ConfigError, match="one of them"):
        ObjectiveConfig(causal_lm=CausalLMConfig())


def test_row51_a_batch_without_targets_has_loss_0_and_a_gradient_of_0() -> None:
    weight = torch.ones(3, 4, requires_grad=True)
    term = cross_entropy(torch.zeros(0, 3) @ weight, torch.zeros(0, dtype=torch.long))
    term.loss.backward()
    assert term.loss.item() == 0.0 and term.targets == 0
    assert weight.grad is not None and not weight.grad.any()
