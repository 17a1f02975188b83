"""BERT in Hugging Face's layout (Devlin et al. 2019), also that of mBERT, ProtBert and DNABERT."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from seqbert.models.config import EncoderConfig
from seqbert.models.hub_layout import SIZE_KEYS, Layout, local_blocks


class BertLayout(Layout):
    """``BertModel`` and what stands on it."""

    model_type = "bert"
    title = "BERT"
    prefix = "bert."
    roots = ("embeddings.", "encoder.", "pooler.")
    base = "BertModel"
    names: ClassVar[Mapping[str, str]] = {
        "encoder.embeddings.word.*": "bert.embeddings.word_embeddings",
        "encoder.embeddings.position": "bert.embeddings.position_embeddings",
        "encoder.embeddings.segment": "bert.embeddings.token_type_embeddings",
        "encoder.embeddings.norm.*": "bert.embeddings.LayerNorm",
        "encoder.blocks.#.attention.query": "bert.encoder.layer.#.attention.self.query",
        "encoder.blocks.#.attention.key": "bert.encoder.layer.#.attention.self.key",
        "encoder.blocks.#.attention.value": "bert.encoder.layer.#.attention.self.value",
        "encoder.blocks.#.attention.output": "bert.encoder.layer.#.attention.output.dense",
        "encoder.blocks.#.attention_norm": "bert.encoder.layer.#.attention.output.LayerNorm",
        "encoder.blocks.#.feed_forward.intermediate": "bert.encoder.layer.#.intermediate.dense",
        "encoder.blocks.#.feed_forward.output": "bert.encoder.layer.#.output.dense",
        "encoder.blocks.#.feed_forward_norm": "bert.encoder.layer.#.output.LayerNorm",
        "heads.*.masked_lm.dense": "cls.predictions.transform.dense",
        "heads.*.masked_lm.norm": "cls.predictions.transform.LayerNorm",
        "heads.*.masked_lm": "cls.predictions",
        "heads.*.pair.pooler": "bert.pooler.dense",
        "heads.*.pair.classifier": "cls.seq_relationship",
        "heads.*.classification.pooler": "bert.pooler.dense",
        "heads.*.classification.classifier": "classifier",
        "heads.*.tagging.classifier": "classifier",
        "heads.*.span.classifier": "qa_outputs",
        "heads.*.choice.pooler": "bert.pooler.dense",
        "heads.*.choice.classifier": "classifier",
    }
    classes: ClassVar[Mapping[tuple[str, ...], str]] = {
        (): "BertModel",
        ("masked_lm",): "BertForMaskedLM",
        ("masked_lm", "pair"): "BertForPreTraining",
        ("pair",): "BertForNextSentencePrediction",
        ("classification",): "BertForSequenceClassification",
        ("tagging",): "BertForTokenClassification",
        ("span",): "BertForQuestionAnswering",
        ("choice",): "BertForMultipleChoice",
    }
    pretraining = ("masked_lm", "pair")
    twins = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
    keys: ClassVar[Mapping[str, str]] = {
        **SIZE_KEYS,
        "type_vocab_size": "type_vocab_size",
        "hidden_dropout_prob": "dropout",
        "layer_norm_eps": "layer_norm_eps",
        "initializer_range": "initializer_range",
        "hidden_act": "hidden_act",
        "is_decoder": "causal",
    }
    served: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "position_embedding_type": ("absolute", None),
        "add_cross_attention": (False, None),
        "quantization_config": (None,),
    }
    harmless = frozenset(
        (
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        )
    )
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
    fixed: ClassVar[Mapping[str, Any]] = {
        "position": "learned",
        "norm_first": False,
        "gated": False,
        "bias": True,
        "embedding_norm": True,
        "token_dropout": False,
    }
    token_ids: ClassVar[Mapping[str, str]] = {"pad_token_id": "[PAD]", "cls_token_id": "[CLS]", "sep_token_id": "[SEP]"}
    inputs = ("input_ids", "token_type_ids", "attention_mask")

    def obstacles(self, config: EncoderConfig, heads: Collection[str]) -> list[str]:
        """See :meth:`Layout.obstacles`; every block sees everything, and there are segments."""
        found = super().obstacles(config, heads)
        if config.type_vocab_size == 0:
            found.append("type_vocab_size: 0")
        if any(local_blocks(config)):
            found.append(f"attention_window: {config.attention_window}")
        return found

    def architecture(self, config: EncoderConfig, heads: Sequence[str]) -> str:
        """See :meth:`Layout.architecture`; a left-to-right LM has a class of its own."""
        return (
            "BertLMHeadModel"
            if config.causal and tuple(heads) == ("masked_lm",)
            else super().architecture(config, heads)
        )
