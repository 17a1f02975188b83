"""Reads a Hugging Face folder: config.json, safetensors, and what else lies there.

Only data is read, never a pickle, and of config.json only the keys that a layout knows. A checkpoint serves one
vocabulary; its tensors are held under our parameters' names with ``*`` in the vocabulary's place, so that it can be put
under any name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqbert import config as config_tree
from seqbert.errors import CheckpointError, ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.heads import FIXED_OUTPUTS, HEADS
from seqbert.models.hub_bert import BertLayout
from seqbert.models.hub_esm import EsmLayout
from seqbert.models.hub_layout import Layout, Spare
from seqbert.models.hub_modernbert import ModernBertLayout
from seqbert.models.hub_own import OwnLayout
from seqbert.models.hub_tokenizer import check_vocabulary, load_tokenizer, read_json, tokenizer_file
from seqbert.models.initialisation import Undrawn
from seqbert.models.lstm import FeaturesConfig
from seqbert.models.model import Model

PUBLISHED: tuple[Layout, ...] = (BertLayout(), ModernBertLayout(), EsmLayout())
"""The architectures that ``transformers`` has too."""

OWN = OwnLayout()
"""That of shapes and heads which none of them holds."""

PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
"""Values of ``problem_type`` in config.json: what the outputs of a classification head mean."""

FEATURES_JSON = "features.json"
HEAD_FILE = "head.safetensors"
"""Where a model with features keeps what Hugging Face has no names for: which features, their weights and the heads."""


@dataclasses.dataclass(slots=True)
class Checkpoint:
    """What a Hugging Face folder holds.

    Attributes:
        folder: Where it lies.
        layout: The architecture, and how it is spelled.
        config: The encoder's shape.
        vocab_size: Number of word embeddings.
        architecture: What config.json calls the model; empty where it does not say.
        tensors: Weights by our names, with ``*`` where the vocabulary's name goes.
        tokenizer: The file :func:`~seqbert.models.hub_tokenizer.load_tokenizer` would read; None where there is none.
        left_over: Tensors that no part of ours takes, by the names they have in the file.
        ignored: Tensors and keys that were passed over because they carry nothing, with the reason.
        labels: Names of the classes of a classification or tagging head, in order; empty where there are none.
        problem_type: One of :data:`PROBLEM_TYPES`; None where config.json does not say.
        features: What the heads stand on, if not on the last hidden states.
        mask_id: The id of [MASK]; None where neither config.json nor a tokenizer says.
        kept: Tensors of parts that we have no use for and that the architecture needs, by Hugging Face's names.
    """

    folder: Path
    layout: Layout
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
    mask_id: int | None = None
    kept: dict[str, Tensor] = dataclasses.field(default_factory=dict)

    @property
    def heads(self) -> dict[str, int]:
        """The kinds of heads that there are weights for, of "pair" perhaps the pooler alone, and their outputs."""
        return heads_in(self.tensors, self.vocab_size)

    def mask_ids(self, vocabulary: str) -> dict[str, int]:
        """The id of [MASK] under the name of a vocabulary, as :class:`Model` takes it."""
        return {} if self.mask_id is None else {vocabulary: self.mask_id}


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """Reads a folder that ``save_pretrained`` or :func:`~seqbert.models.hub.save` wrote: config.json and safetensors.

    Raises:
        CheckpointError: A file is missing or damaged, the model is of a kind that is not supported, a weight
            of the encoder is missing, or the weights do not fit config.json.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; a Hugging Face checkpoint is one, with a config.json")
    settings = read_json(folder / "config.json")
    layout = _layout_of(folder / "config.json", settings)
    ignored: list[str] = []
    config, vocab_size = layout.read_config(folder / "config.json", settings, ignored)
    architectures = settings.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    tensors, left_over, spare = _sort_tensors(folder, layout, architecture, ignored)
    _settle_twins(layout, spare.twins, tensors, left_over, ignored)
    _leave_out(layout, settings, vocab_size, tensors, left_over, ignored)
    config = layout.settle(folder, config, spare.computed)
    features = _read_features(folder, layout, tensors)
    _check_weights(folder, layout, config, vocab_size, tensors, features)
    tokenizer = tokenizer_file(folder)
    mask_id = None
    if tokenizer is not None:
        loaded = load_tokenizer(folder)
        check_vocabulary(tokenizer, loaded, vocab_size)
        mask_id = loaded.token_to_id("[MASK]")
    if config.token_dropout:
        mask_id = _mask_id(folder / "config.json", settings, mask_id, vocab_size)
    labels = _read_labels(settings, heads_in(tensors, vocab_size), ignored)
    problem_type = settings.get("problem_type")
    if problem_type not in PROBLEM_TYPES:
        problem_type = None
    return Checkpoint(
        folder,
        layout,
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
        mask_id,
        spare.kept,
    )


def heads_in(tensors: Mapping[str, Tensor], vocab_size: int) -> dict[str, int]:
    """The kinds of heads that tensors are of, by our names, and the number of outputs of each."""
    outputs = {}
    for kind in sorted({name.split(".")[2] for name in tensors if name.startswith("heads.")}):
        classifier = tensors.get(f"heads.*.{kind}.classifier.weight")
        found = len(classifier) if classifier is not None and classifier.ndim else 1
        outputs[kind] = vocab_size if kind == "masked_lm" else FIXED_OUTPUTS.get(kind, max(1, found))
    return outputs


def _layout_of(path: Path, settings: dict[str, Any]) -> Layout:
    model_type = settings.get("model_type", "bert")  # Google's own files do not say
    for layout in (*PUBLISHED, OWN):
        if layout.model_type == model_type:
            return layout
    known = ", ".join(layout.model_type for layout in PUBLISHED)
    raise CheckpointError(f'{path}: models of type "{model_type}" are not supported; supported are {known}')


def _mask_id(path: Path, settings: dict[str, Any], of_tokenizer: int | None, vocab_size: int) -> int:
    """The id of [MASK] for an encoder that treats it apart."""
    said = settings.get("mask_token_id", of_tokenizer)
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said < vocab_size:
        raise CheckpointError(
            f"{path}: mask_token_id is {said!r}; with token_dropout it must be one of the {vocab_size} tokens"
        )
    if of_tokenizer not in (None, said):
        raise CheckpointError(
            f"{path}: mask_token_id is {said}, but the tokenizer beside it has its mask at {of_tokenizer}: the files "
            "are of different models"
        )
    return said


# Weights


def _sort_tensors(
    folder: Path, layout: Layout, architecture: str, ignored: list[str]
) -> tuple[dict[str, Tensor], list[str], Spare]:
    """Tensors by our names, the names of those that we have no place for, and those that are no weights of ours."""
    tensors: dict[str, Tensor] = {}
    left_over: list[str] = []
    spare = Spare()
    index = folder / "model.safetensors.index.json"
    found = [
        (name, layout.standard_name(name), tensor)
        for path in _weight_files(folder)
        for name, tensor in _read(path, index)
    ]
    kinds = layout.kinds(architecture, {standard for _, standard, _ in found})
    modules = layout.ours(kinds)
    for name, standard, tensor in found:
        ours = layout.our_names(standard, modules)
        if (reason := layout.passed_over(standard)) is not None:
            ignored.append(f"{name}: {reason}")
        elif standard in layout.twins:
            spare.twins[standard] = tensor
        elif layout.is_computed(standard):
            spare.computed[standard] = tensor
        elif layout.is_kept(standard):
            spare.kept[standard] = tensor
            ignored.append(f"{name}: of no use here; import and export keep it as it is")
        elif not ours or not tensors.keys().isdisjoint(ours):
            left_over.append(name)
        else:
            _check_floating(folder, name, tensor)
            tensors.update(zip(ours, _parts(folder, name, tensor, len(ours)), strict=True))
    return tensors, left_over, spare


def _parts(folder: Path, name: str, tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    """What stands one above the other in a tensor."""
    if count == 1:
        return (tensor,)
    if tensor.ndim == 0 or len(tensor) % count or len(tensor) == 0:
        raise CheckpointError(
            f"{folder}: the weight {name} has the shape {list(tensor.shape)}, and it must hold {count} of equal shape, "
            "one above the other"
        )
    return tensor.chunk(count)


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


def _read_features(folder: Path, layout: Layout, tensors: dict[str, Tensor]) -> FeaturesConfig | None:
    """What heads stand on features, if the folder has such; their weights are added to ``tensors``."""
    path = folder / FEATURES_JSON
    if not path.is_file():
        return None
    try:
        features = config_tree.load(FeaturesConfig, read_json(path))
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    for name in [name for name in tensors if name.startswith("heads.")]:
        raise CheckpointError(
            f"{path} says that the heads are in {HEAD_FILE}, but {layout.their_name(name)} is not there"
        )
    for name, tensor in _read(folder / HEAD_FILE, path):
        kind = re.fullmatch(r"heads\.\*\.(\w+)\..+", name)
        if not name.startswith("features.") and (kind is None or kind[1] not in HEADS):
            raise CheckpointError(f"{folder / HEAD_FILE} has a weight {name}, which is of no head and no features")
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
    layout: Layout, twins: dict[str, Tensor], tensors: dict[str, Tensor], left_over: list[str], ignored: list[str]
) -> None:
    """Decides about the decoder's copies of the word embeddings and of the masked LM's bias."""
    if not twins:
        return
    weight_name, *bias_names = layout.twins
    weight = twins.get(weight_name)
    word = tensors.get("encoder.embeddings.word.*.weight")
    if weight is not None and word is not None and not torch.equal(weight, word):
        # An untied decoder is a function that ours cannot express, and without it the head means nothing.
        head = [name for name in tensors if name.startswith("heads.*.masked_lm.")]
        left_over += [*twins, *(layout.their_name(name) for name in head)]
        what = weight_name.removesuffix(".decoder.weight")
        ignored.append(f"{what}: its decoder is not tied to the word embeddings, so the head is left out")
        for name in head:
            del tensors[name]
        return
    if weight is not None:
        ignored.append(f"{weight_name}: a copy of the word embeddings, to which it is tied")
    for bias_name in bias_names:
        bias = twins.get(bias_name)
        if bias is None:
            continue
        kept = tensors.setdefault("heads.*.masked_lm.bias", bias)
        if kept is not bias and torch.equal(kept, bias):
            real = layout.their_name("heads.*.masked_lm.bias")
            ignored.append(f"{bias_name}: a copy of {real}, to which it is tied")
        elif kept is not bias:
            left_over.append(bias_name)


def _leave_out(
    layout: Layout,
    settings: dict[str, Any],
    vocab_size: int,
    tensors: dict[str, Tensor],
    left_over: list[str],
    ignored: list[str],
) -> None:
    """Takes out the heads that compute something else than ours would with their weights."""
    kinds, reason = layout.left_out(settings, heads_in(tensors, vocab_size))
    if reason is not None:
        ignored.append(reason)
    for name in [name for name in tensors if name.startswith(tuple(f"heads.*.{kind}." for kind in kinds))]:
        left_over.append(layout.their_name(name))
        del tensors[name]


def _check_weights(
    folder: Path,
    layout: Layout,
    config: EncoderConfig,
    vocab_size: int,
    tensors: dict[str, Tensor],
    features: FeaturesConfig | None,
) -> None:
    """Makes sure that the encoder and the features are there whole, and that each weight has its shape."""
    blocks = len({name.split(".")[2] for name in tensors if ".blocks." in name})
    layers = min(config.num_hidden_layers, blocks + 1)  # enough to see what is missing, whatever config.json says
    try:
        with torch.device("meta"), Undrawn():
            shape = dataclasses.replace(config, num_hidden_layers=layers, token_dropout=False)
            expected = Model(shape, {"*": vocab_size}, {"*": heads_in(tensors, vocab_size)}, features)
    except (ConfigError, RuntimeError) as error:  # RuntimeError: sizes whose product is beyond all memory
        raise CheckpointError(f"{folder}: {error}") from error
    shapes = {name: parameter.shape for name, parameter in expected.named_parameters()}
    missing = [name for name in shapes if name not in tensors and not name.startswith("heads.")]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} weights of the {missing[0].split('.')[0]}, beginning with "
            f"{layout.their_name(missing[0])}: the files may be incomplete, or belong to another config.json"
        )
    word = tensors["encoder.embeddings.word.*.weight"]
    if word.ndim == 2 and len(word) != vocab_size:
        raise CheckpointError(
            f"{folder}: config.json says vocab_size {vocab_size}, but there are {len(word)} word embeddings. "
            "Set vocab_size to their number if the tokenizer has no more tokens, or fetch the matching files"
        )
    for name, tensor in tensors.items():
        if name in shapes:
            if tensor.shape != shapes[name]:
                raise CheckpointError(
                    f"{folder}: the weight {layout.their_name(name)} has the shape {list(tensor.shape)}, but by "
                    f"config.json it must be {list(shapes[name])}"
                )
            continue
        number = re.match(r"encoder\.blocks\.(\d+)\.", name)
        if number and int(number[1]) >= layers:
            raise CheckpointError(
                f"{folder}: there is a weight {layout.their_name(name)}, but config.json says num_hidden_layers "
                f"{config.num_hidden_layers}"
            )
        if features is not None and not name.startswith("encoder."):
            raise CheckpointError(f"{folder / HEAD_FILE} has a weight {name}, which no model has by {FEATURES_JSON}")
        raise CheckpointError(
            f"{folder}: there is a weight {layout.their_name(name)}, which no model has by config.json"
        )
