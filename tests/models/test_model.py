import copy

import pytest
import torch

from seqbert.errors import ConfigError
from seqbert.models.config import PRESETS
from seqbert.models.model import Model

BOTH = ("masked_lm", "pair")


def count(model: Model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("preset", "with_pooler"), [("bert-base", 109_482_240), ("bert-large", 335_141_888)])
def test_published_sizes_have_the_published_number_of_parameters(preset: str, with_pooler: int) -> None:
    """Numbers: BertModel of bert-base-uncased and bert-large-uncased, 30,522 tokens."""
    with torch.device("meta"):
        model = Model(PRESETS[preset], {"text": 30522}, {"text": ["pair"]})
    classifier = 2 * PRESETS[preset].hidden_size + 2
    assert count(model) - classifier == with_pooler


def test_row84_the_decoder_is_the_word_embedding_and_counts_once(small, vocab_size) -> None:
    model = Model(small, {"letters": vocab_size}, {"letters": BOTH})
    head = model.heads["letters"]["masked_lm"]
    assert [name for name, _ in head.named_parameters()] == [
        "bias",
        "dense.weight",
        "dense.bias",
        "norm.weight",
        "norm.bias",
    ]
    hidden = torch.randn(3, 32)
    before = head(hidden)
    with torch.no_grad():
        model.word_embedding("letters").weight[7] += torch.arange(32)  # a constant is nothing to normalised states
    assert (head(hidden) != before).any(0).nonzero().flatten().tolist() == [7]


def test_row84_a_copied_model_is_tied_to_its_own_embedding(small, vocab_size) -> None:
    model = Model(small, {"letters": vocab_size}, {"letters": BOTH})
    twin = copy.deepcopy(model)
    hidden = torch.randn(3, 32)
    before = model.heads["letters"]["masked_lm"](hidden)
    with torch.no_grad():
        twin.word_embedding("letters").weight.zero_()
    assert torch.equal(model.heads["letters"]["masked_lm"](hidden), before)
    assert not twin.heads["letters"]["masked_lm"](hidden).any()


@pytest.mark.parametrize("heads", [("masked_lm",), ("pair",), BOTH])
def test_row70_every_parameter_of_a_head_gets_a_gradient(small, vocab_size, packed, heads) -> None:
    model = Model(small, {"letters": vocab_size}, {"letters": heads})
    model.initialise(0)
    batch = packed()
    hidden = model.encoder(batch)
    rows = {"masked_lm": hidden[::3], "pair": hidden[batch.cu_seqlens[:-1].long()]}
    sum(model.heads["letters"][kind](rows[kind]).square().sum() for kind in heads).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_initial_weights_depend_on_the_seed_and_nothing_else(small) -> None:
    alone = Model(small, {"letters": 31}, {"letters": ["masked_lm"]})
    joint = Model(small, {"digits": 15, "letters": 31}, {"digits": BOTH, "letters": BOTH})
    other = Model(small, {"letters": 31}, {"letters": ["masked_lm"]})
    torch.manual_seed(1)
    alone.initialise(0)
    torch.manual_seed(2)
    joint.initialise(0)
    other.initialise(1)
    weights = dict(joint.named_parameters())
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter, weights[name]), name
    assert not torch.equal(alone.word_embedding("letters").weight, other.word_embedding("letters").weight)


def test_initial_weights_are_those_of_bert() -> None:
    model = Model(PRESETS["bert-tiny"], {"letters": 1000}, {"letters": BOTH})
    model.initialise(0)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm." in name:
            assert (parameter == 1).all(), name
        elif parameter.numel() > 1000:
            assert abs(parameter.std().item() - 0.02) < 0.001, name
            assert abs(parameter.mean().item()) < 0.001, name


def test_unknown_heads_are_errors_that_name_the_nearest(small) -> None:
    with pytest.raises(ConfigError, match=r'no head "masked_ml".*Did you mean "masked_lm"'):
        Model(small, {"letters": 31}, {"letters": ["masked_ml"]})
    with pytest.raises(ConfigError, match='"digits", which is none of the vocabularies'):
        Model(small, {"letters": 31}, {"digits": ["pair"]})
