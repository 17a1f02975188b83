import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqbert.analysis.parameters import describe
from seqbert.data.packing import pack
from seqbert.errors import ConfigError
from seqbert.models.config import PRESETS
from seqbert.models.model import Model


@pytest.mark.parametrize("preset", ["bert-tiny", "bert-mini", "bert-medium", "bert-base", "bert-large"])
@pytest.mark.parametrize("heads", [(), ("masked_lm",), ("masked_lm", "pair")])
def test_the_count_is_that_of_the_modules(preset: str, heads: tuple[str, ...]) -> None:
    with torch.device("meta"):
        model = Model(PRESETS[preset], {"x": 4101}, {"x": heads})
    description = describe(PRESETS[preset], 4101, heads)
    assert description.total_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert description.encoder_parameters == sum(parameter.numel() for parameter in model.encoder.parameters())


def test_bert_base_and_large_have_the_published_counts() -> None:
    """Numbers: BertModel and BertForPreTraining of bert-base-uncased and bert-large-uncased."""
    base, large = describe(PRESETS["bert-base"]), describe(PRESETS["bert-large"])
    assert base.pooled_encoder_parameters == 109_482_240
    assert large.pooled_encoder_parameters == 335_141_888
    assert base.total_parameters == 110_106_428


def test_operations_are_those_that_pytorch_counts() -> None:
    config = PRESETS["bert-tiny"]
    length, sequences, targets = 20, 3, 9
    model = Model(config, {"x": 100}, {"x": ("masked_lm", "pair")})
    batch = pack("x", [np.arange(5, 5 + length)] * sequences)
    with FlopCounterMode(display=False) as counter:
        hidden = model.encoder(batch, attention=True).hidden
        first = hidden[batch.cu_seqlens[:-1].long()]
        logits = model.heads["x"]["masked_lm"](hidden[:targets]), model.heads["x"]["pair"](first)
        forward = counter.get_total_flops()
        sum(x.sum() for x in logits).backward()
        whole = counter.get_total_flops()
    described = describe(config, 100, length=length, target_share=targets / batch.tokens)
    assert described.forward_flops_per_token * batch.tokens == pytest.approx(forward)
    assert described.training_flops_per_token * batch.tokens == pytest.approx(whole)


def test_a_head_that_is_not_there_costs_nothing() -> None:
    config = PRESETS["bert-mini"]
    assert set(describe(config, heads=()).forward_flops) == {
        "attention projections",
        "attention scores and sums",
        "feed-forward",
    }
    with pytest.raises(ConfigError, match='no head "pears"'):
        describe(config, heads=["pears"])


@pytest.mark.parametrize("preset", ["modern-tiny", "modern-mini", "modern-base"])
@pytest.mark.parametrize("heads", [(), ("masked_lm",), {"classification": 3}, {"tagging": 4}])
@pytest.mark.parametrize(
    "changes",
    [{}, {"bias": True}, {"gated": False, "task_head": "bert"}, {"embedding_norm": False}, {"norm_first": False}],
)
def test_the_count_of_a_modern_encoder_is_that_of_its_modules(preset: str, heads, changes) -> None:
    config = dataclasses.replace(PRESETS[preset], **changes)
    with torch.device("meta"):
        model = Model(config, {"x": 4101}, {"x": heads})
    description = describe(config, 4101, heads)
    assert description.total_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert description.encoder_parameters == sum(parameter.numel() for parameter in model.encoder.parameters())


def test_modernbert_base_and_large_have_the_published_counts() -> None:
    """149 and 395 million parameters (Warner et al. 2024, table 4), of 50,368 tokens and without the decoder's bias."""
    base, large = (describe(PRESETS[name], 50368, ("masked_lm",)) for name in ("modern-base", "modern-large"))
    assert [round(description.total_parameters / 1e6) for description in (base, large)] == [150, 396]
    assert [round(description.encoder_parameters / 1e6) for description in (base, large)] == [149, 395]


@pytest.mark.parametrize(("length", "window"), [(20, 3), (20, 19), (20, 40), (5, 2), (1, 3)])
def test_operations_of_a_local_block_are_those_between_tokens_that_see_each_other(length: int, window: int) -> None:
    everything = dataclasses.replace(PRESETS["modern-mini"], attention_window=None)
    local = dataclasses.replace(everything, attention_window=window, global_attention_every=3)
    pairs = sum(abs(i - j) <= window for i in range(length) for j in range(length)) / length
    one = describe(everything, heads=(), length=length).forward_flops["attention scores and sums"] / 4
    described = describe(local, heads=(), length=length).forward_flops["attention scores and sums"]
    assert described == pytest.approx(one * (2 + 2 * pairs / length))


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_operations_of_a_modern_encoder_are_those_that_pytorch_counts(kind: str) -> None:
    config = dataclasses.replace(PRESETS["modern-tiny"], attention_window=None)
    length, sequences = 20, 3
    model = Model(config, {"x": 100}, {"x": {kind: 4}})
    batch = pack("x", [np.arange(5, 5 + length)] * sequences)
    with FlopCounterMode(display=False) as counter:
        hidden = model.encoder(batch, attention=True).hidden
        model.heads["x"][kind](hidden[batch.cu_seqlens[:-1].long()] if kind == "classification" else hidden)
    described = describe(config, 100, {kind: 4}, length=length)
    assert described.forward_flops_per_token * batch.tokens == pytest.approx(counter.get_total_flops())
