"""ModernBERT in Hugging Face's layout (Warner et al. 2024), as old and new versions of ``transformers`` spell it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from seqbert.errors import CheckpointError
from seqbert.models.config import EncoderConfig
from seqbert.models.heads import TASKS
from seqbert.models.hub_layout import SIZE_KEYS, Layout, local_blocks

GLOBAL_EVERY = 3
"""Every so manieth block sees whole sequences where config.json does not say how many do."""

_BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
_THETAS = {
    "full_attention": ("global_rope_theta", 160000.0),
    "sliding_attention": ("local_rope_theta", 10000.0),
}


class ModernBertLayout(Layout):
    """``ModernBertModel`` and what stands on it.

    Which blocks are local, and how fast positions turn the heads, is written twice: as ``layer_types`` and
    ``rope_parameters``, and as ``global_attn_every_n_layers``, ``global_rope_theta`` and ``local_rope_theta``, which
    versions before 5 of ``transformers`` read.
    """

    model_type = "modernbert"
    title = "ModernBERT"
    prefix = "model."
    roots = ("embeddings.", "layers.", "final_norm.")
    base = "ModernBertModel"
    names: ClassVar[Mapping[str, str]] = {
        "encoder.embeddings.word.*": "model.embeddings.tok_embeddings",
        "encoder.embeddings.norm.*": "model.embeddings.norm",
        "encoder.blocks.#.attention.query": "model.layers.#.attn.Wqkv",
        "encoder.blocks.#.attention.key": "model.layers.#.attn.Wqkv",
        "encoder.blocks.#.attention.value": "model.layers.#.attn.Wqkv",
        "encoder.blocks.#.attention.output": "model.layers.#.attn.Wo",
        "encoder.blocks.#.attention_norm": "model.layers.#.attn_norm",
        "encoder.blocks.#.feed_forward.intermediate": "model.layers.#.mlp.Wi",
        "encoder.blocks.#.feed_forward.output": "model.layers.#.mlp.Wo",
        "encoder.blocks.#.feed_forward_norm": "model.layers.#.mlp_norm",
        "encoder.final_norm": "model.final_norm",
        "heads.*.masked_lm.dense": "head.dense",
        "heads.*.masked_lm.norm": "head.norm",
        "heads.*.masked_lm": "decoder",
        **{f"heads.*.{kind}.dense": "head.dense" for kind in TASKS},
        **{f"heads.*.{kind}.norm": "head.norm" for kind in TASKS},
        **{f"heads.*.{kind}.classifier": "classifier" for kind in TASKS},
    }
    classes: ClassVar[Mapping[tuple[str, ...], str]] = {
        (): "ModernBertModel",
        ("masked_lm",): "ModernBertForMaskedLM",
        ("classification",): "ModernBertForSequenceClassification",
        ("tagging",): "ModernBertForTokenClassification",
        ("span",): "ModernBertForQuestionAnswering",
        ("choice",): "ModernBertForMultipleChoice",
    }
    twins = ("decoder.weight",)
    keys: ClassVar[Mapping[str, str]] = {
        **SIZE_KEYS,
        "mlp_dropout": "dropout",
        "norm_eps": "layer_norm_eps",
        "initializer_range": "initializer_range",
        "hidden_activation": "hidden_act",
        "norm_bias": "bias",
    }
    served: ClassVar[Mapping[str, tuple[Any, ...]]] = {"quantization_config": (None,), "rope_scaling": (None,)}
    harmless = frozenset(
        (
            "attention_bias",
            "mlp_bias",
            "classifier_bias",
            "decoder_bias",
            "classifier_activation",
            "classifier_pooling",
            "layer_types",
            "rope_parameters",
            "local_attention",
            "global_attn_every_n_layers",
            "global_rope_theta",
            "local_rope_theta",
            "layer_norm_eps",
            "initializer_cutoff_factor",
            "position_embedding_type",
            "deterministic_flash_attn",
            "reference_compile",
            "repad_logits_with_grad",
            "sparse_prediction",
            "sparse_pred_ignore_index",
        )
    )
    dropouts = ("mlp_dropout", "attention_dropout", "embedding_dropout", "classifier_dropout")
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 8192,
        "dropout": 0.0,
        "layer_norm_eps": 1e-5,
        "bias": False,
    }
    fixed: ClassVar[Mapping[str, Any]] = {
        "position": "rotary",
        "rope_precision": "float32",
        "norm_first": True,
        "gated": True,
        "embedding_norm": True,
        "type_vocab_size": 0,
        "token_dropout": False,
        "causal": False,
        "task_head": "modern",
    }
    token_ids: ClassVar[Mapping[str, str]] = {
        "pad_token_id": "[PAD]",
        "cls_token_id": "[CLS]",
        "sep_token_id": "[SEP]",
        "bos_token_id": "[CLS]",
        "eos_token_id": "[SEP]",
    }

    def fields(self, path: Path, settings: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`Layout.fields`; what ModernBERT sets apart and we do not has to agree."""
        fields = super().fields(path, settings)
        for key in _BIASES:
            if settings.get(key, False) != fields.get("bias", False):
                raise CheckpointError(
                    f"{path}: {key} is {settings.get(key, False)!r} and norm_bias is {fields.get('bias', False)!r}, "
                    "which is not supported: linear layers and LayerNorms have biases together, or none has"
                )
        activations = [settings.get(key, "gelu") for key in ("hidden_activation", "classifier_activation")]
        if activations[0] != activations[1]:
            raise CheckpointError(
                f"{path}: classifier_activation is {activations[1]!r} and hidden_activation is {activations[0]!r}, "
                "which is not supported: blocks and heads have the same one"
            )
        return fields | _windows(path, settings)

    def settings(self, config: EncoderConfig) -> dict[str, Any]:
        """See :meth:`Layout.settings`."""
        local = local_blocks(config)
        thetas = {
            "full_attention": config.rope_theta,
            "sliding_attention": config.local_rope_theta or config.rope_theta,
        }
        return {
            **super().settings(config),
            **dict.fromkeys(_BIASES, config.bias),
            "decoder_bias": True,
            "classifier_activation": config.hidden_act,
            "classifier_pooling": "cls",
            "local_attention": 2 * (config.attention_window or 64),
            "layer_types": ["sliding_attention" if is_local else "full_attention" for is_local in local],
            "global_attn_every_n_layers": config.global_attention_every if any(local) else 1,
            "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
            **{_THETAS[kind][0]: theta for kind, theta in thetas.items()},
        }

    def left_out(self, settings: dict[str, Any], kinds: Collection[str]) -> tuple[Collection[str], str | None]:
        """See :meth:`Layout.left_out`; our heads stand on the first token of a sequence."""
        pooling = settings.get("classifier_pooling", "cls")
        pooled = [kind for kind in kinds if kind in ("classification", "choice")]
        if pooling == "cls" or not pooled:
            return (), None
        return pooled, f"classifier: classifier_pooling is {pooling!r}, and heads stand on the first token here"


def _windows(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Which blocks are local, how far they see, and the bases of their positions."""
    layers, types = settings["num_hidden_layers"], settings.get("layer_types")
    every = settings.get("global_attn_every_n_layers")
    if types is not None:
        every = _period(path, types, layers, every)
    elif every is None:
        every = GLOBAL_EVERY
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise CheckpointError(
            f"{path}: global_attn_every_n_layers is {every!r}; it must be a whole number of at least 1"
        )
    thetas = {}
    parameters = settings.get("rope_parameters") or {}
    for kind, (key, default) in _THETAS.items():
        of_kind = parameters.get(kind) or {} if isinstance(parameters, dict) else None
        if not isinstance(of_kind, dict) or of_kind.get("rope_type", "default") != "default":
            raise CheckpointError(f"{path}: rope_parameters is {parameters!r}, which is not supported")
        thetas[kind] = of_kind.get("rope_theta", settings.get(key, default))
    if every == 1 or layers == 1:
        return {"rope_theta": thetas["full_attention"]}
    width = settings.get("local_attention", 128)
    if isinstance(width, bool) or not isinstance(width, int) or width < 2:
        raise CheckpointError(f"{path}: local_attention is {width!r}; it must be a whole number of at least 2")
    return {
        "attention_window": width // 2,
        "global_attention_every": every,
        "rope_theta": thetas["full_attention"],
        "local_rope_theta": thetas["sliding_attention"],
    }


def _period(path: Path, types: object, layers: object, asked: object) -> int:
    """Every so manieth block is global by ``layer_types``."""
    if isinstance(types, list) and len(types) == layers:
        # Of few blocks several periods tell the same: the one that is named, or else the usual one, comes first.
        likely = [asked] if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0 else []
        second = next((block for block in range(1, len(types)) if types[block] == "full_attention"), len(types))
        for every in (*likely, GLOBAL_EVERY, second):
            if types == ["sliding_attention" if block % every else "full_attention" for block in range(len(types))]:
                return every
    raise CheckpointError(
        f"{path}: layer_types is {types!r}, which is not supported: it must name each of the {layers} blocks "
        "(num_hidden_layers), and every so manieth, from the first, must have full_attention and the others "
        "sliding_attention"
    )
