"""Hugging Face checkpoints, from disk and to disk.

Only data is read: JSON and safetensors, never a pickle, and of config.json only the keys that this module
knows. A checkpoint serves one vocabulary; its tensors are held under our parameters' names with ``*`` in the
vocabulary's place, so that it can be put under any name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from seqbert import config as config_tree
from seqbert.errors import CheckpointError, ConfigError
from seqbert.models.adaptation import merged
from seqbert.models.config import EncoderConfig
from seqbert.models.heads import FIXED_OUTPUTS, HEADS
from seqbert.models.hub_tokenizer import (
    BERT_SPECIAL_TOKENS,
    check_vocabulary,
    load_tokenizer,
    read_json,
    read_tokenizer,
    save_tokenizer,
    tokenizer_file,
    write_json,
)
from seqbert.models.lstm import FeaturesConfig
from seqbert.models.model import Model, draw
from seqbert.models.weights import save_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Checkpoint", "LoadReport", "load_into", "load_tokenizer", "read_checkpoint", "resize", "save"]

MODEL_TYPES = ("bert",)
"""Values of ``model_type`` in config.json that can be read."""

NAMES = {
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
"""Our modules and Hugging Face's; ``*`` is the vocabulary and ``#`` the number of a block. Several heads of theirs have
the same name, and the architecture says which of them it is."""

TASK_HEADS = {
    "BertForSequenceClassification": "classification",
    "BertForTokenClassification": "tagging",
    "BertForQuestionAnswering": "span",
    "BertForMultipleChoice": "choice",
}
"""The head of each architecture that is made for a task. Others have those of pretraining, or none that we know."""

PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
"""Values of ``problem_type`` in config.json: what the outputs of a classification head mean."""

_FEATURES_JSON = "features.json"
_HEAD_FILE = "head.safetensors"
"""Where a model with features keeps what Hugging Face has no names for: which features, their weights and the heads."""

FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    _FEATURES_JSON,
    _HEAD_FILE,
)
"""What :func:`save` writes."""

_SHAPING_KEYS = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "hidden_dropout_prob": "dropout",
    "layer_norm_eps": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "hidden_act": "hidden_act",
    "is_decoder": "causal",
}
"""Keys of config.json that become fields of :class:`EncoderConfig`."""

_REQUIRED_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)

_REFUSED_VALUES = {
    "position_embedding_type": ("absolute", None),
    "add_cross_attention": (False, None),
    "quantization_config": (None,),
}
"""Keys of config.json that change what the weights mean, and the values that can be served."""

_HARMLESS_KEYS = frozenset(
    (
        "model_type",
        "architectures",
        "attention_probs_dropout_prob",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "sep_token_id",
        "cls_token_id",
        "tie_word_embeddings",
        "use_cache",
        "transformers_version",
        "dtype",
        "torch_dtype",
        "_name_or_path",
        "gradient_checkpointing",
        "classifier_dropout",
        "num_labels",
        "_num_labels",
        "id2label",
        "label2id",
        "output_past",
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "finetuning_task",
        "problem_type",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "cross_attention_hidden_size",
        "chunk_size_feed_forward",
        "is_encoder_decoder",
    )
)
"""Keys of config.json that do not bear on hidden states and are passed over without a note."""


@dataclasses.dataclass(slots=True)
class Checkpoint:
    """What a Hugging Face folder holds.

    Attributes:
        folder: Where it lies.
        config: The encoder's shape.
        vocab_size: Number of word embeddings.
        architecture: What config.json calls the model; empty where it does not say.
        tensors: Weights by our names, with ``*`` where the vocabulary's name goes.
        tokenizer: The file :func:`load_tokenizer` would read; None where there is none.
        left_over: Tensors that no part of ours takes, by the names they have in the file.
        ignored: Tensors and keys that were passed over because they carry nothing, with the reason.
        labels: Names of the classes of a classification or tagging head, in order; empty where there are none.
        problem_type: One of :data:`PROBLEM_TYPES`; None where config.json does not say.
        features: What the heads stand on, if not on the last hidden states.
    """

    folder: Path
    config: EncoderConfig
    vocab_size: int
    architecture: str
    tensors: dict[str, Tensor]
    tokenizer: Path | None
    left_over: list[str]
    ignored: list[str]
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    features: FeaturesConfig | None = None

    @property
    def heads(self) -> dict[str, int]:
        """The kinds of heads that there are weights for, of "pair" perhaps the pooler alone, and their outputs."""
        return _heads(self.tensors, self.vocab_size)


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


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """Reads a folder that ``save_pretrained`` or :func:`save` wrote: config.json and safetensors.

    Raises:
        CheckpointError: A file is missing or damaged, the model is of a kind that is not supported, a weight
            of the encoder is missing, or the weights do not fit config.json.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; a Hugging Face checkpoint is one, with a config.json")
    settings = read_json(folder / "config.json")
    config, vocab_size, ignored = _read_config(folder / "config.json", settings)
    architectures = settings.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    tensors, left_over, twins = _sort_tensors(folder, architecture, ignored)
    _settle_twins(twins, tensors, left_over, ignored)
    features = _read_features(folder, tensors)
    _check_weights(folder, config, vocab_size, tensors, features)
    tokenizer = tokenizer_file(folder)
    if tokenizer is not None:
        check_vocabulary(tokenizer, load_tokenizer(folder), vocab_size)
    labels = _read_labels(settings, _heads(tensors, vocab_size), ignored)
    problem_type = settings.get("problem_type")
    if problem_type not in PROBLEM_TYPES:
        problem_type = None
    return Checkpoint(
        folder,
        config,
        vocab_size,
        architecture,
        tensors,
        tokenizer,
        left_over,
        ignored,
        labels,
        problem_type,
        features,
    )


@torch.no_grad()
def load_into(
    model: Model,
    vocabulary: str,
    checkpoint: Checkpoint,
    shared: bool = True,
    fresh: Collection[str] = frozenset(),
) -> LoadReport:
    """Puts a checkpoint's weights into the words and heads of one vocabulary, and into what all of them share.

    A pooler is taken from whichever head the checkpoint has it in, so that a classifier begins with that of
    pretraining. Heads on features are taken only where the checkpoint has the same features.

    Args:
        model: Takes the weights; call its ``initialise`` before, for the parameters that the checkpoint
            lacks.
        vocabulary: Which of the model's vocabularies the checkpoint is for.
        checkpoint: From :func:`read_checkpoint`.
        shared: Whether to set blocks, positions and segments too; False for the second vocabulary of a joint model.
        fresh: Kinds of heads that stay as they are, but for their poolers, whatever the checkpoint has.

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
    poolers = {name.split(".pooler.")[1]: name for name in checkpoint.tensors if ".pooler." in name}
    for name, parameter in model.named_parameters():
        general = _general_name(name, vocabulary)
        if general is None or (not shared and is_shared(general)):
            continue
        source: str | None = general
        if ".pooler." in general and on_hidden_states:
            source = poolers.get(general.split(".pooler.")[1])
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
    report.left_over += [_their_name(general) for general in checkpoint.tensors if general in unused]
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
) -> None:
    """Writes one vocabulary's embeddings and heads with the shared blocks, for us and for ``transformers``.

    The folder gets config.json, model.safetensors, tokenizer.json and tokenizer_config.json. The decoder that
    is tied to the word embeddings is written once, and what LoRA learned is added to the weights. Where
    tokenizer.json adds no [CLS] and [SEP] by itself, the copy does.

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
        problem_type: One of :data:`PROBLEM_TYPES`.
        scale: Mean and deviation of what a regression head was trained to give standardised; the classifier that
            is written gives it as it is.

    Raises:
        CheckpointError: The tokenizer cannot be read, or has ids beyond the word embeddings.
    """
    folder = Path(folder)
    tokenizer = read_tokenizer(Path(tokenizer_json))
    check_vocabulary(Path(tokenizer_json), tokenizer, model.vocabularies[vocabulary])
    model = merged(model)
    architecture = _architecture(model, vocabulary, without_classifier)
    tensors: dict[str, Tensor] = {}
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
            continue
        theirs = _their_name(general)
        tensors[theirs.removeprefix("bert.") if architecture == "BertModel" else theirs] = tensor
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(tensors, folder / "model.safetensors")
    if model.features is None:
        for name in (_HEAD_FILE, _FEATURES_JSON):
            (folder / name).unlink(missing_ok=True)
    else:
        save_tensors(beside, folder / _HEAD_FILE)
        write_json(folder / _FEATURES_JSON, dataclasses.asdict(model.features.config))
    settings = _settings(model, vocabulary, architecture, tokenizer)
    settings |= _label_settings(model.heads_of(vocabulary), labels)
    if problem_type is not None:
        settings["problem_type"] = problem_type
    write_json(folder / "config.json", settings)
    save_tokenizer(tokenizer, folder, min(max_length, model.config.max_position_embeddings))


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


def _standard_name(name: str) -> str:
    """A tensor's name as today's ``transformers`` spells it within a model that has heads."""
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    return re.sub(
        r"LayerNorm\.(gamma|beta)$",
        lambda old: f"LayerNorm.{'weight' if old[1] == 'gamma' else 'bias'}",
        name,
    )


def _our_names(architecture: str, classified: bool) -> dict[str, str]:
    """Our modules by Hugging Face's.

    Args:
        architecture: Says whose names a head's are.
        classified: Whether there is a classifier; without one, the pooler is one of pretraining.
    """
    head = TASK_HEADS.get(architecture)
    kinds = ("masked_lm", "pair") if head is None or not classified else (head,)
    return {
        theirs: ours for ours, theirs in NAMES.items() if not ours.startswith("heads.") or ours.split(".")[2] in kinds
    }


def _our_name(standard: str, names: Mapping[str, str]) -> str | None:
    module, _, parameter = standard.rpartition(".")
    number = re.search(r"(?<=\.layer\.)\d+(?=\.)", module)
    ours = names.get(re.sub(r"(?<=\.layer\.)\d+(?=\.)", "#", module))
    if ours is None or parameter not in ("weight", "bias"):
        return None
    return f"{ours.replace('#', number[0]) if number else ours}.{parameter}"


def _their_name(general: str) -> str:
    """A parameter's name in Hugging Face's files; those of features have none and keep ours."""
    module, _, parameter = general.rpartition(".")
    number = re.search(r"(?<=\.blocks\.)\d+(?=\.)", module)
    theirs = NAMES.get(re.sub(r"(?<=\.blocks\.)\d+(?=\.)", "#", module), module)
    return f"{theirs.replace('#', number[0]) if number else theirs}.{parameter}"


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


def _heads(tensors: Mapping[str, Tensor], vocab_size: int) -> dict[str, int]:
    """The kinds of heads that tensors are of, by our names, and the number of outputs of each."""
    outputs = {}
    for kind in sorted({name.split(".")[2] for name in tensors if name.startswith("heads.")}):
        classifier = tensors.get(f"heads.*.{kind}.classifier.weight")
        found = len(classifier) if classifier is not None and classifier.ndim else 1
        outputs[kind] = vocab_size if kind == "masked_lm" else FIXED_OUTPUTS.get(kind, max(1, found))
    return outputs


# Reading


def _read_config(path: Path, settings: dict[str, Any]) -> tuple[EncoderConfig, int, list[str]]:
    model_type = settings.get("model_type", "bert")  # Google's own files do not say
    if model_type not in MODEL_TYPES:
        raise CheckpointError(
            f'{path}: models of type "{model_type}" are not supported; supported are {", ".join(MODEL_TYPES)}'
        )
    for key, served in _REFUSED_VALUES.items():
        if settings.get(key) not in served:
            raise CheckpointError(f"{path}: {key} is {settings[key]!r}, which is not supported")
    missing = [key for key in _REQUIRED_KEYS if key not in settings]
    if missing:
        raise CheckpointError(f"{path} lacks {', '.join(missing)}: it does not describe a BERT encoder")
    vocab_size = settings["vocab_size"]
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, int) or vocab_size < 1:
        raise CheckpointError(f"{path}: vocab_size is {vocab_size!r}; it must be a whole number of at least 1")
    fields = {field: settings[key] for key, field in _SHAPING_KEYS.items() if key in settings}
    try:
        config = EncoderConfig(**fields)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    ignored = []
    attention_dropout = settings.get("attention_probs_dropout_prob", config.dropout)
    if attention_dropout != config.dropout:
        ignored.append(
            f"config.json: attention_probs_dropout_prob {attention_dropout}; there is one dropout, and it is "
            f"hidden_dropout_prob {config.dropout}"
        )
    classifier_dropout = settings.get("classifier_dropout")
    if classifier_dropout not in (None, config.dropout):
        ignored.append(
            f"config.json: classifier_dropout {classifier_dropout}; there is one dropout, and it is "
            f"hidden_dropout_prob {config.dropout}"
        )
    unread = settings.keys() - _SHAPING_KEYS.keys() - _REFUSED_VALUES.keys() - _HARMLESS_KEYS - {"vocab_size"}
    if unread:
        ignored.append(f"config.json: {', '.join(sorted(unread))}; config.json is read as data, for known keys only")
    return config, vocab_size, ignored


def _sort_tensors(
    folder: Path, architecture: str, ignored: list[str]
) -> tuple[dict[str, Tensor], list[str], dict[str, Tensor]]:
    """Tensors by our names, the names of those that we have no place for, and the copies that a tied decoder has."""
    tensors: dict[str, Tensor] = {}
    left_over: list[str] = []
    twins: dict[str, Tensor] = {}
    index = folder / "model.safetensors.index.json"
    found = [
        (name, _standard_name(name), tensor) for path in _weight_files(folder) for name, tensor in _read(path, index)
    ]
    standard_names = {standard for _, standard, _ in found}
    names = _our_names(architecture, not standard_names.isdisjoint(("classifier.weight", "qa_outputs.weight")))
    for name, standard, tensor in found:
        if standard.endswith("embeddings.position_ids"):
            ignored.append(f"{name}: the numbers 0, 1, 2, ... that old versions saved")
        elif standard in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
            twins[standard] = tensor
        elif (ours := _our_name(standard, names)) is None or ours in tensors:
            left_over.append(name)
        else:
            _check_floating(folder, name, tensor)
            tensors[ours] = tensor
    return tensors, left_over, twins


def _read(path: Path, named_by: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is no mapping
                yield name, file.get_tensor(name)
    except FileNotFoundError:
        raise CheckpointError(f"{named_by} names {path.name}, which is not there; fetch it") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is not readable as safetensors ({error}); it may be cut short, so fetch it again"
        ) from error


def _check_floating(folder: Path, name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise CheckpointError(
            f"{folder}: the weight {name} holds {tensor.dtype}; only floating-point weights can be read, "
            "so convert the checkpoint back from its quantised form first"
        )


def _read_features(folder: Path, tensors: dict[str, Tensor]) -> FeaturesConfig | None:
    """What heads stand on features, if the folder has such; their weights are added to ``tensors``."""
    path = folder / _FEATURES_JSON
    if not path.is_file():
        return None
    try:
        features = config_tree.load(FeaturesConfig, read_json(path))
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    for name in [name for name in tensors if name.startswith("heads.")]:
        raise CheckpointError(f"{path} says that the heads are in {_HEAD_FILE}, but {_their_name(name)} is not there")
    for name, tensor in _read(folder / _HEAD_FILE, path):
        kind = re.fullmatch(r"heads\.\*\.(\w+)\..+", name)
        if not name.startswith("features.") and (kind is None or kind[1] not in HEADS):
            raise CheckpointError(f"{folder / _HEAD_FILE} has a weight {name}, which is of no head and no features")
        _check_floating(folder, name, tensor)
        tensors[name] = tensor
    return features


def _read_labels(settings: dict[str, Any], heads: Mapping[str, int], ignored: list[str]) -> tuple[str, ...]:
    """The names of a task head's classes, if config.json has a name for each of them."""
    names = settings.get("id2label")
    outputs = heads.get("classification", heads.get("tagging"))
    if outputs is None or names is None:
        return ()
    plain = isinstance(names, dict) and all(isinstance(label, str) for label in names.values())
    if not plain or names.keys() != {str(number) for number in range(outputs)}:
        ignored.append(f"config.json: id2label, which does not name each of the {outputs} classes")
        return ()
    return tuple(names[str(number)] for number in range(outputs))


def _weight_files(folder: Path) -> list[Path]:
    whole = folder / "model.safetensors"
    if whole.is_file():
        return [whole]
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index} has no weight_map, so the files of weights are not known")
        shards = sorted({str(name) for name in weight_map.values()})
        for name in shards:
            if Path(name).name != name:
                raise CheckpointError(f'{index} names "{name}"; a file of weights must lie in the same folder')
        return [folder / name for name in shards]
    pickles = sorted(path.name for pattern in ("*.bin", "*.ckpt", "*.h5", "*.pt") for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder} holds its weights as {pickles[0]} and not as model.safetensors. Such a file can run "
            "code when it is opened, so it is not read. If you trust where it comes from, convert it once "
            "with transformers: AutoModelForPreTraining.from_pretrained('OLD').save_pretrained('NEW')"
        )
    raise CheckpointError(f"{folder} holds no weights: there is no model.safetensors")


def _settle_twins(
    twins: dict[str, Tensor], tensors: dict[str, Tensor], left_over: list[str], ignored: list[str]
) -> None:
    """Decides about the decoder's copies of the word embeddings and of the masked LM's bias."""
    weight = twins.get("cls.predictions.decoder.weight")
    word = tensors.get("encoder.embeddings.word.*.weight")
    if weight is not None and word is not None and not torch.equal(weight, word):
        # An untied decoder is a function that ours cannot express, and without it the head means nothing.
        head = [name for name in tensors if name.startswith("heads.*.masked_lm.")]
        left_over += [*twins, *(_their_name(name) for name in head)]
        ignored.append("cls.predictions: its decoder is not tied to the word embeddings, so the head is left out")
        for name in head:
            del tensors[name]
        return
    if weight is not None:
        ignored.append("cls.predictions.decoder.weight: a copy of the word embeddings, to which it is tied")
    bias = twins.get("cls.predictions.decoder.bias")
    if bias is not None:
        kept = tensors.setdefault("heads.*.masked_lm.bias", bias)
        if kept is not bias and torch.equal(kept, bias):
            ignored.append("cls.predictions.decoder.bias: a copy of cls.predictions.bias, to which it is tied")
        elif kept is not bias:
            left_over.append("cls.predictions.decoder.bias")


def _check_weights(
    folder: Path,
    config: EncoderConfig,
    vocab_size: int,
    tensors: dict[str, Tensor],
    features: FeaturesConfig | None,
) -> None:
    """Makes sure that the encoder and the features are there whole, and that each weight has its shape."""
    blocks = len({name.split(".")[2] for name in tensors if ".blocks." in name})
    layers = min(config.num_hidden_layers, blocks + 1)  # enough to see what is missing, whatever config.json says
    try:
        with torch.device("meta"):
            shape = dataclasses.replace(config, num_hidden_layers=layers)
            expected = Model(shape, {"*": vocab_size}, {"*": _heads(tensors, vocab_size)}, features)
    except (ConfigError, RuntimeError) as error:  # RuntimeError: sizes whose product is beyond all memory
        raise CheckpointError(f"{folder}: {error}") from error
    shapes = {name: parameter.shape for name, parameter in expected.named_parameters()}
    missing = [name for name in shapes if name not in tensors and not name.startswith("heads.")]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} weights of the {missing[0].split('.')[0]}, beginning with "
            f"{_their_name(missing[0])}: the files may be incomplete, or belong to another config.json"
        )
    word = tensors["encoder.embeddings.word.*.weight"]
    if word.ndim == 2 and len(word) != vocab_size:
        raise CheckpointError(
            f"{folder}: config.json says vocab_size {vocab_size}, but there are {len(word)} word embeddings. "
            "Set vocab_size to their number if the tokenizer has no more tokens, or fetch the matching files"
        )
    for name, tensor in tensors.items():
        if name not in shapes and ".blocks." in name:
            raise CheckpointError(
                f"{folder}: there is a weight {_their_name(name)}, but config.json says num_hidden_layers "
                f"{config.num_hidden_layers}"
            )
        if name not in shapes:
            raise CheckpointError(f"{folder / _HEAD_FILE} has a weight {name}, which no model has by {_FEATURES_JSON}")
        if tensor.shape != shapes[name]:
            raise CheckpointError(
                f"{folder}: the weight {_their_name(name)} has the shape {list(tensor.shape)}, but by "
                f"config.json it must be {list(shapes[name])}"
            )


def _check_same_shape(model: Model, vocabulary: str, checkpoint: Checkpoint, shared: bool) -> None:
    per_vocabulary = {
        "hidden_size",
        "max_position_embeddings",
        "type_vocab_size",
        "layer_norm_eps",
        "hidden_act",
    }
    of_training = {"dropout", "initializer_range", "position_init"}
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


# Writing


_ARCHITECTURES: dict[tuple[str, ...], str] = {
    (): "BertModel",
    ("masked_lm",): "BertForMaskedLM",
    ("masked_lm", "pair"): "BertForPreTraining",
    ("pair",): "BertForNextSentencePrediction",
    **{(kind,): architecture for architecture, kind in TASK_HEADS.items()},
}


def _architecture(model: Model, vocabulary: str, without_classifier: bool) -> str:
    heads = tuple(model.heads_of(vocabulary))
    if model.features is not None or (heads == ("pair",) and without_classifier):
        return "BertModel"
    if heads == ("masked_lm",) and model.config.causal:
        return "BertLMHeadModel"
    if heads not in _ARCHITECTURES:
        raise ValueError(f"transformers has no architecture with the heads {', '.join(heads)}")
    return _ARCHITECTURES[heads]


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


def _settings(model: Model, vocabulary: str, architecture: str, tokenizer: Tokenizer) -> dict[str, Any]:
    config = model.config
    word = model.word_embedding(vocabulary)
    settings: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": word.num_embeddings,
        **{key: getattr(config, field) for key, field in _SHAPING_KEYS.items()},
        "attention_probs_dropout_prob": config.dropout,
        "tie_word_embeddings": True,
        "dtype": str(word.weight.dtype).removeprefix("torch."),
    }
    for key in ("pad_token", "cls_token", "sep_token"):
        token_id = tokenizer.token_to_id(BERT_SPECIAL_TOKENS[key])
        if token_id is not None:
            settings[f"{key}_id"] = token_id
    return settings
