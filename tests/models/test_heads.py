import dataclasses

import pytest
import torch

from seqbert.errors import ConfigError
from seqbert.models.config import PRESETS
from seqbert.models.heads import HEADS, head_outputs
from seqbert.models.model import Model

TASKS = {"classification": 3, "tagging": 5, "span": 2, "choice": 1}


def test_each_head_turns_rows_of_hidden_states_into_its_number_of_logits(small) -> None:
    model = Model(small, {"letters": 31}, {"letters": TASKS | {"masked_lm": 31, "pair": 2}})
    assert set(model.heads_of("letters")) == set(HEADS)
    for kind, outputs in model.heads_of("letters").items():
        assert model.heads["letters"][kind](torch.randn(7, 32)).shape == (7, outputs), kind


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_row70_every_parameter_of_a_task_head_gets_a_gradient(small, packed, kind) -> None:
    model = Model(small, {"letters": 31}, {"letters": {kind: TASKS[kind]}})
    model.initialise(0)
    model.heads["letters"][kind](model(packed())).square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_a_new_head_adds_what_the_paper_says_to_the_encoder() -> None:
    """Devlin et al. 2019, sections 4.1, 4.2 and 4.4: K x H weights, a start and an end vector, one vector."""
    hidden = 768
    for kind, weights in {"tagging": 5 * (hidden + 1), "span": 2 * (hidden + 1), "choice": hidden + 1}.items():
        with torch.device("meta"):
            head = Model(PRESETS["bert-base"], {"text": 10}, {"text": {kind: TASKS[kind]}}).heads["text"][kind]
        assert sum(parameter.numel() for parameter in head.classifier.parameters()) == weights


def test_dropout_stands_where_bert_has_it(small) -> None:
    """run_classifier.py and its kin: before the classifier of sequences and of tokens; not for spans, not for pairs."""
    config = dataclasses.replace(small, dropout=0.3)
    model = Model(config, {"letters": 31}, {"letters": TASKS | {"pair": 2}})
    rates = {kind: head.dropout.p for kind, head in model.heads["letters"].items()}
    assert rates == {"classification": 0.3, "tagging": 0.3, "choice": 0.3, "span": 0.0, "pair": 0.0}


def test_kinds_with_one_possible_number_of_outputs_need_none() -> None:
    assert head_outputs({"span", "choice", "pair", "masked_lm"}, 9) == {
        "choice": 1,
        "masked_lm": 9,
        "pair": 2,
        "span": 2,
    }


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["tagging"], '"tagging" needs a number of outputs'),
        ({"classification": 0}, '"classification" has at least 1 outputs, and not 0'),
        ({"span": 3}, '"span" has 2 outputs, and not 3'),
        ({"spam": 2}, 'no head "spam".*Did you mean "span"'),
    ],
)
def test_heads_that_cannot_be_built_are_named(kinds, message) -> None:
    with pytest.raises(ConfigError, match=message):
        head_outputs(kinds, vocab_size=9)
