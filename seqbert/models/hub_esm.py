"""ESM-2 in Hugging Face's layout (Lin et al. 2023)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from seqbert.errors import CheckpointError
from seqbert.models.config import EncoderConfig
from seqbert.models.encoder import Rotary
from seqbert.models.hub_layout import SIZE_KEYS, Layout, local_blocks

_FREQUENCIES = "esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq"
_CONTACTS = ("esm.contact_head.regression.weight", "esm.contact_head.regression.bias")


class EsmLayout(Layout):
    """``EsmModel`` and what stands on it, of the second generation: rotary positions and no LayerNorm of embeddings.

    The frequencies of the positions are in the file, and those of the published models are rounded to float16, in which
    they were trained. The head that reads contacts from attention is kept as it is; a new model has one of zeros, for
    ``transformers`` builds it in any case.
    """

    model_type = "esm"
    title = "ESM-2"
    prefix = "esm."
    roots = ("embeddings.", "encoder.", "pooler.", "rotary_embeddings.", "contact_head.")
    base = "EsmModel"
    names: ClassVar[Mapping[str, str]] = {
        "encoder.embeddings.word.*": "esm.embeddings.word_embeddings",
        "encoder.blocks.#.attention.query": "esm.encoder.layer.#.attention.self.query",
        "encoder.blocks.#.attention.key": "esm.encoder.layer.#.attention.self.key",
        "encoder.blocks.#.attention.value": "esm.encoder.layer.#.attention.self.value",
        "encoder.blocks.#.attention.output": "esm.encoder.layer.#.attention.output.dense",
        "encoder.blocks.#.attention_norm": "esm.encoder.layer.#.attention.LayerNorm",
        "encoder.blocks.#.feed_forward.intermediate": "esm.encoder.layer.#.intermediate.dense",
        "encoder.blocks.#.feed_forward.output": "esm.encoder.layer.#.output.dense",
        "encoder.blocks.#.feed_forward_norm": "esm.encoder.layer.#.LayerNorm",
        "encoder.final_norm": "esm.encoder.emb_layer_norm_after",
        "heads.*.masked_lm.dense": "lm_head.dense",
        "heads.*.masked_lm.norm": "lm_head.layer_norm",
        "heads.*.masked_lm": "lm_head",
        "heads.*.pair.pooler": "esm.pooler.dense",
        "heads.*.classification.pooler": "classifier.dense",
        "heads.*.classification.classifier": "classifier.out_proj",
        "heads.*.tagging.classifier": "classifier",
    }
    classes: ClassVar[Mapping[tuple[str, ...], str]] = {
        (): "EsmModel",
        ("masked_lm",): "EsmForMaskedLM",
        ("classification",): "EsmForSequenceClassification",
        ("tagging",): "EsmForTokenClassification",
    }
    pretraining = ("masked_lm", "pair")  # of which the pooler alone, in the file of an EsmModel
    twins = ("lm_head.decoder.weight",)
    keys: ClassVar[Mapping[str, str]] = {
        **SIZE_KEYS,
        "hidden_dropout_prob": "dropout",
        "layer_norm_eps": "layer_norm_eps",
        "initializer_range": "initializer_range",
        "is_decoder": "causal",
        "rope_theta": "rope_theta",
        "token_dropout": "token_dropout",
    }
    served: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "position_embedding_type": ("rotary",),
        "emb_layer_norm_before": (False, None),
        "hidden_act": ("gelu", None),
        "is_folding_model": (False, None),
        "add_cross_attention": (False, None),
        "quantization_config": (None,),
    }
    harmless = frozenset(("esmfold_config", "vocab_list"))
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    defaults: ClassVar[Mapping[str, Any]] = {"max_position_embeddings": 1026}
    fixed: ClassVar[Mapping[str, Any]] = {
        "position": "rotary",
        "norm_first": True,
        "gated": False,
        "bias": True,
        "embedding_norm": False,
        "type_vocab_size": 0,
        "hidden_act": "gelu",
    }
    token_ids: ClassVar[Mapping[str, str]] = {
        "pad_token_id": "[PAD]",
        "cls_token_id": "[CLS]",
        "eos_token_id": "[SEP]",
        "mask_token_id": "[MASK]",
    }
    special_tokens: ClassVar[Mapping[str, str]] = {
        "[PAD]": "<pad>",
        "[UNK]": "<unk>",
        "[CLS]": "<cls>",
        "[SEP]": "<eos>",
        "[MASK]": "<mask>",
    }
    vocabulary_file = True

    def passed_over(self, standard: str) -> str | None:
        """See :meth:`Layout.passed_over`."""
        if standard == "esm.embeddings.position_embeddings.weight":
            return "learned positions, which rotary ones replace"
        return super().passed_over(standard)

    def is_kept(self, standard: str) -> bool:
        """See :meth:`Layout.is_kept`."""
        return standard in _CONTACTS

    def is_computed(self, standard: str) -> bool:
        """See :meth:`Layout.is_computed`; the frequencies are written once in every block, or once for all of them."""
        return standard.startswith("esm.") and standard.endswith("rotary_embeddings.inv_freq")

    def settle(self, folder: Path, config: EncoderConfig, computed: Mapping[str, Tensor]) -> EncoderConfig:
        """See :meth:`Layout.settle`: the precision of the frequencies is that of those in the file."""
        if not computed:
            return config
        for precision in ("float32", "float16", "bfloat16"):
            ours = _frequencies(config, precision)
            if all(
                tensor.shape == ours.shape and torch.allclose(tensor.float(), ours, rtol=1e-6, atol=0.0)
                for tensor in computed.values()
            ):
                return dataclasses.replace(config, rope_precision=precision)
        raise CheckpointError(
            f"{folder}: the frequencies of rotary positions, {next(iter(computed))}, are not those of rope_theta "
            f"{config.rope_theta} and heads of {config.head_dim}, which is not supported"
        )

    def obstacles(self, config: EncoderConfig, heads: Collection[str]) -> list[str]:
        """See :meth:`Layout.obstacles`; every block sees everything."""
        found = super().obstacles(config, heads)
        if any(local_blocks(config)):
            found.append(f"attention_window: {config.attention_window}")
        return found

    def settings(self, config: EncoderConfig) -> dict[str, Any]:
        """See :meth:`Layout.settings`."""
        return {
            **super().settings(config),
            "position_embedding_type": "rotary",
            "emb_layer_norm_before": False,
            "hidden_act": "gelu",
            "is_folding_model": False,
        }

    def required_tensors(self, config: EncoderConfig, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See :meth:`Layout.required_tensors`."""
        weights = config.num_hidden_layers * config.num_attention_heads
        shapes = ((1, weights), (1,))
        contacts = {name: torch.zeros(shape) for name, shape in zip(_CONTACTS, shapes, strict=True)}
        fitting = {name: tensor for name, tensor in kept.items() if tensor.shape == contacts[name].shape}
        frequencies = _frequencies(config, config.rope_precision)
        blocks = range(config.num_hidden_layers)
        return {**{_FREQUENCIES.format(block): frequencies.clone() for block in blocks}, **contacts, **fitting}


def _frequencies(config: EncoderConfig, precision: str) -> Tensor:
    return Rotary(config.head_dim, config.rope_theta, getattr(torch, precision)).frequency
