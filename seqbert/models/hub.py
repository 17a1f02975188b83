"""Hugging Face checkpoints, from disk and to disk.

What is read is a :class:`~seqbert.models.hub_read.Checkpoint`; it goes into a model here, and a model is written. Which
architectures there are, and how each is spelled, is said by the layouts beside this module.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqbert.errors import CheckpointError
from seqbert.models.adaptation import merged
from seqbert.models.config import EncoderConfig
from seqbert.models.heads import CARRIED_OVER
from seqbert.models.hub_layout import Layout
from seqbert.models.hub_read import FEATURES_JSON, HEAD_FILE, OWN, PUBLISHED, Checkpoint, read_checkpoint
from seqbert.models.hub_tokenizer import (
    VOCABULARY_FILE,
    check_vocabulary,
    load_tokenizer,
    read_tokenizer,
    save_tokenizer,
    write_json,
)
from seqbert.models.initialisation import draw
from seqbert.models.model import Model
from seqbert.models.weights import save_tensors

__all__ = ["Checkpoint", "LoadReport", "load_into", "load_tokenizer", "read_checkpoint", "resize", "save"]

FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    VOCABULARY_FILE,
    FEATURES_JSON,
    HEAD_FILE,
)
"""What :func:`save` writes."""


@dataclasses.dataclass(slots=True)
class LoadReport:
    """What became of a checkpoint's weights and of a model's.

    Attributes:
        loaded: The model's parameters that were set, by name.
        newly_initialised: Parameters that the checkpoint has nothing for; they stay as they were.
        left_over: Tensors of the checkpoint that the model has no place for, by their Hugging Face names.
        ignored: What carried nothing, with the reason.
    """

    loaded: list[str]
    newly_initialised: list[str]
    left_over: list[str]
    ignored: list[str]


@torch.no_grad()
def load_into(
    model: Model,
    vocabulary: str,
    checkpoint: Checkpoint,
    shared: bool = True,
    fresh: Collection[str] = frozenset(),
) -> LoadReport:
    """Puts a checkpoint's weights into the words and heads of one vocabulary, and into what all of them share.

    A pooler, or ModernBERT's dense layer and LayerNorm, is taken from whichever head the checkpoint has it in, so that
    a classifier begins with that of pretraining. Heads on features are taken only where the checkpoint has the same
    features.

    Args:
        model: Takes the weights; call its ``initialise`` before, for the parameters that the checkpoint
            lacks.
        vocabulary: Which of the model's vocabularies the checkpoint is for.
        checkpoint: From :func:`read_checkpoint`.
        shared: Whether to set blocks, positions and segments too; False for the second vocabulary of a joint model.
        fresh: Kinds of heads that stay as they are, but for what they begin with, whatever the checkpoint has.

    Raises:
        CheckpointError: The model has another shape, another vocabulary size or another number of outputs;
            nothing is loaded then.
    """
    taken = _taken_heads(model, vocabulary, checkpoint, fresh)
    _check_same_shape(model, vocabulary, checkpoint, shared)
    _check_same_outputs(model, vocabulary, checkpoint, taken)
    report = LoadReport([], [], list(checkpoint.left_over), list(checkpoint.ignored))
    unused = set(checkpoint.tensors)
    on_hidden_states = model.features is None and checkpoint.features is None
    carried = [name for name in checkpoint.tensors if _carried_over(name)]
    for name, parameter in model.named_parameters():
        general = _general_name(name, vocabulary)
        if general is None or (not shared and is_shared(general)):
            continue
        source: str | None = general
        if on_hidden_states and (part := _carried_over(general)) and ".masked_lm." not in general:
            source = next((name for name in (general, *carried) if name in carried and name.endswith(part)), None)
        elif general.startswith("heads."):
            source = general if general.split(".")[2] in taken else None
        elif general.startswith("features."):
            source = general if taken else None
        if source in checkpoint.tensors:
            parameter.copy_(checkpoint.tensors[source])
            report.loaded.append(name)
            unused.discard(source)
        else:
            report.newly_initialised.append(name)
    if not shared:
        unused = {general for general in unused if not is_shared(general)}
        report.ignored.append("blocks, positions and segments: the model's own are kept")
    report.left_over += [checkpoint.layout.their_name(general) for general in checkpoint.tensors if general in unused]
    return report


def save(
    model: Model,
    vocabulary: str,
    folder: str | Path,
    tokenizer_json: str | Path,
    max_length: int,
    without_classifier: bool = False,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
    scale: tuple[float, float] | None = None,
    kept: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes one vocabulary's embeddings and heads with the shared blocks, for us and for ``transformers``.

    The folder gets config.json, model.safetensors, tokenizer.json and tokenizer_config.json. The decoder that
    is tied to the word embeddings is written once, and what LoRA learned is added to the weights. Where
    tokenizer.json adds no [CLS] and [SEP] by itself, the copy does.

    It is in the layout of the published architecture that has the model's shape and heads. Where none has, it is in one
    of our own, which :func:`read_checkpoint` reads and ``transformers`` does not; :func:`obstacle` says why.

    Features are nothing that ``transformers`` knows: it finds the encoder alone, and head.safetensors and
    features.json beside it hold the rest for :func:`read_checkpoint`.

    Args:
        model: Holds the weights.
        vocabulary: Which vocabulary to write.
        folder: Made if it is not there.
        tokenizer_json: The file that the vocabulary's tokenizer is saved in.
        max_length: Longest sequence the model was trained on; tokenizers cut longer ones.
        without_classifier: Leave the pair head's classifier out, of which only the pooler was trained.
        labels: Names of the classes of a classification or tagging head, one an output; None: LABEL_0, LABEL_1, …
        problem_type: One of :data:`~seqbert.models.hub_read.PROBLEM_TYPES`.
        scale: Mean and deviation of what a regression head was trained to give standardised; the classifier that
            is written gives it as it is.
        kept: What the checkpoint that the weights are from has for parts of its architecture that ours lacks.

    Raises:
        CheckpointError: The tokenizer cannot be read, or has ids beyond the word embeddings.
    """
    folder = Path(folder)
    tokenizer = read_tokenizer(Path(tokenizer_json))
    check_vocabulary(Path(tokenizer_json), tokenizer, model.vocabularies[vocabulary])
    model = merged(model)
    pooler_alone = without_classifier and tuple(model.heads_of(vocabulary)) == ("pair",)
    heads = () if model.features is not None or pooler_alone else tuple(model.heads_of(vocabulary))
    layout = _layout_for(model.config, heads)
    parts: dict[str, list[Tensor]] = {}
    beside: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        general = _general_name(name, vocabulary)
        if general is None or (without_classifier and ".pair.classifier." in name):
            continue
        tensor = parameter.detach()
        if scale is not None and general.startswith("heads.*.classification.classifier."):
            tensor = tensor * scale[1] + (scale[0] if general.endswith("bias") else 0.0)
        if model.features is not None and not general.startswith("encoder."):
            beside[general] = tensor
        else:
            parts.setdefault(layout.their_name(general), []).append(tensor)
    tensors = {name: torch.cat(pieces) if len(pieces) > 1 else pieces[0] for name, pieces in parts.items()}
    tensors |= layout.required_tensors(model.config, kept or {})
    architecture = layout.architecture(model.config, heads)
    if architecture == layout.base:
        tensors = {name.removeprefix(layout.prefix): tensor for name, tensor in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(tensors, folder / "model.safetensors")
    if model.features is None:
        for name in (HEAD_FILE, FEATURES_JSON):
            (folder / name).unlink(missing_ok=True)
    else:
        save_tensors(beside, folder / HEAD_FILE)
        write_json(folder / FEATURES_JSON, dataclasses.asdict(model.features.config))
    word = model.word_embedding(vocabulary)
    settings: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": layout.model_type,
        "vocab_size": word.num_embeddings,
        **layout.settings(model.config),
        "tie_word_embeddings": True,
        "dtype": str(word.weight.dtype).removeprefix("torch."),
        **{key: tokenizer.token_to_id(token) for key, token in layout.token_ids.items()},
        **_label_settings(model.heads_of(vocabulary), labels),
    }
    if problem_type is not None:
        settings["problem_type"] = problem_type
    write_json(folder / "config.json", settings)
    longest = min(max_length, model.config.max_position_embeddings)
    save_tokenizer(tokenizer, folder, longest, layout.inputs, layout.special_tokens, layout.vocabulary_file)


def obstacle(checkpoint: Checkpoint) -> str | None:
    """Why ``transformers`` has no architecture for a checkpoint of our own layout; None where it has."""
    if checkpoint.layout is not OWN:
        return None
    heads = () if checkpoint.features is not None else tuple(checkpoint.heads)
    reasons = {layout.title: layout.obstacles(checkpoint.config, heads) for layout in PUBLISHED}
    nearest = min(reasons, key=lambda title: len(reasons[title]))
    return (
        f"No architecture of transformers holds it. The nearest is {nearest}, against {'; '.join(reasons[nearest])}. "
        "The commands here take it as it is"
    )


def _layout_for(config: EncoderConfig, heads: Sequence[str]) -> Layout:
    return next((layout for layout in PUBLISHED if not layout.obstacles(config, heads)), OWN)


@torch.no_grad()
def resize(model: Model, vocabulary: str, size: int, seed: int) -> None:
    """Makes room for tokens that were added to a vocabulary: old rows stay bit for bit, new ones are drawn.

    The word embeddings' new rows are normal with deviation ``initializer_range``, those of the masked LM's
    bias are 0. Parameters are replaced, so make the optimizer afterwards.

    Raises:
        CheckpointError: ``size`` is smaller than the vocabulary, which would drop tokens.
    """
    word = model.word_embedding(vocabulary)
    old = word.num_embeddings
    if size < old:
        raise CheckpointError(
            f'the vocabulary "{vocabulary}" has {old} tokens and cannot be cut to {size}: the weights of the '
            "tokens beyond would be lost. Use the tokenizer that the weights were trained with"
        )
    shape = torch.Size((size - old, word.embedding_dim))
    name = f"encoder.embeddings.{vocabulary}.word.weight/{old}:{size}"
    rows = draw(shape, model.config.initializer_range, seed, name).to(word.weight)
    word.weight = nn.Parameter(torch.cat([word.weight, rows]), word.weight.requires_grad)
    word.num_embeddings = size
    heads: Any = model.heads[vocabulary]
    if "masked_lm" in heads:
        bias = heads["masked_lm"].bias
        longer = torch.cat([bias, bias.new_zeros(size - old)])
        heads["masked_lm"].bias = nn.Parameter(longer, bias.requires_grad)


# Names


def _carried_over(general: str) -> str | None:
    """Of a parameter that heads of all kinds have alike, what follows its head's name; None for others."""
    found = re.fullmatch(rf"heads\.\*\.\w+(\.(?:{'|'.join(CARRIED_OVER)})\.\w+)", general)
    return found[1] if found else None


def _general_name(name: str, vocabulary: str) -> str | None:
    """A parameter's name with ``*`` for its vocabulary; None where it belongs to another one."""
    parts = name.split(".")
    if parts[0] == "features" or (parts[0] == "encoder" and parts[2] not in ("word", "norm")):
        return name
    place = 1 if parts[0] == "heads" else 3
    if parts[place] != vocabulary:
        return None
    parts[place] = "*"
    return ".".join(parts)


def is_shared(general: str) -> bool:
    """Whether the weight of that name, with ``*`` for a vocabulary, is the encoder's and serves all vocabularies."""
    return general.startswith("encoder.") and "*" not in general


# Checks


def _check_same_shape(model: Model, vocabulary: str, checkpoint: Checkpoint, shared: bool) -> None:
    per_vocabulary = {
        "hidden_size",
        "max_position_embeddings",
        "type_vocab_size",
        "layer_norm_eps",
        "hidden_act",
        "bias",
        "embedding_norm",
        "token_dropout",
        "task_head",
    }
    of_training = {"dropout", "initializer_range", "position_init", "attention_init", "bias_init"}
    for field in dataclasses.fields(EncoderConfig):
        if field.name in of_training or not (shared or field.name in per_vocabulary):
            continue
        ours, theirs = getattr(model.config, field.name), getattr(checkpoint.config, field.name)
        if ours != theirs:
            raise CheckpointError(
                f"the model has {field.name} {ours}, but the checkpoint {checkpoint.folder} has {theirs}; "
                "build the model from the checkpoint's config"
            )
    size = model.vocabularies[vocabulary]
    if size != checkpoint.vocab_size:
        raise CheckpointError(
            f'the vocabulary "{vocabulary}" has {size} tokens, but the checkpoint {checkpoint.folder} has '
            f"{checkpoint.vocab_size} word embeddings: use its tokenizer, and resize only after loading"
        )


def _taken_heads(model: Model, vocabulary: str, checkpoint: Checkpoint, fresh: Collection[str]) -> set[str]:
    """The kinds of heads that are read whole from the checkpoint."""
    features = None if model.features is None else model.features.config
    if features != checkpoint.features:
        return set()
    return (model.heads_of(vocabulary).keys() & checkpoint.heads.keys()) - set(fresh)


def _check_same_outputs(model: Model, vocabulary: str, checkpoint: Checkpoint, kinds: set[str]) -> None:
    for kind in sorted(kinds):
        ours, theirs = model.heads_of(vocabulary)[kind], checkpoint.heads[kind]
        if ours != theirs:
            raise CheckpointError(
                f"the model's head for {kind} has {ours} outputs, but that of the checkpoint {checkpoint.folder} has "
                f"{theirs}: they are of other labels"
            )


def _label_settings(heads: Mapping[str, int], labels: Sequence[str] | None) -> dict[str, Any]:
    """``id2label`` and its inverse: from them ``transformers`` has the number of outputs too."""
    outputs = heads.get("classification", heads.get("tagging"))
    if outputs is None:
        return {}
    names = [f"LABEL_{number}" for number in range(outputs)] if labels is None else list(labels)
    if len(names) != outputs:
        raise ValueError(f"{len(names)} labels were given for {outputs} outputs")
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }
