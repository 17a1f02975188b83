"""Tokenizers and JSON in Hugging Face's layout: tokenizer.json, and the vocab.txt of BERT's and of ESM's release.

Special tokens have our names once a tokenizer is read, ``[CLS]`` where ESM says ``<cls>``, and keep their ids; what is
written for an architecture has its names again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqbert.errors import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BERT_SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""Special tokens by the names that tokenizer_config.json has for them."""

VOCABULARY_FILE = "vocab.txt"
"""A list of tokens, one a line, which BERT's and ESM's own tokenizers read."""

_OTHER_NAMES = {
    "[PAD]": ("<pad>",),
    "[UNK]": ("<unk>",),
    "[CLS]": ("<cls>", "<s>"),
    "[SEP]": ("<sep>", "<eos>", "</s>"),
    "[MASK]": ("<mask>",),
}
"""How others spell special tokens where no tokenizer_config.json says it."""


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: tokenizer.json, or one that is built from vocab.txt.

    A vocab.txt is that of BERT's WordPiece, or that of ESM's residues, as its special tokens tell. Special tokens of
    other names get ours and keep their ids.

    Raises:
        CheckpointError: The folder has neither, or the file is damaged.
    """
    path = tokenizer_file(Path(folder))
    if path is None:
        raise CheckpointError(
            f"{folder} has no tokenizer: there is neither tokenizer.json nor vocab.txt. Copy the one that "
            "the model was trained with into it"
        )
    config_json = path.with_name("tokenizer_config.json")
    options = read_json(config_json) if config_json.is_file() else {}
    if path.suffix == ".json":
        tokenizer = read_tokenizer(path)
        names = _special_names(tokenizer.get_vocab(with_added_tokens=True), options)
        return renamed(tokenizer, {theirs: ours for ours, theirs in names.items()})
    return _from_list(path, options)


def tokenizer_file(folder: Path) -> Path | None:
    """The file that :func:`load_tokenizer` reads; None where there is none."""
    return next((path for name in ("tokenizer.json", VOCABULARY_FILE) if (path := folder / name).is_file()), None)


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer.json.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{path} is not readable as a tokenizer ({error})") from error


def save_tokenizer(
    tokenizer: Tokenizer,
    folder: Path,
    max_length: int,
    inputs: Sequence[str] = ("input_ids", "token_type_ids", "attention_mask"),
    special_tokens: Mapping[str, str] | None = None,
    vocabulary_file: bool = False,
) -> None:
    """Writes tokenizer.json and tokenizer_config.json so that ``AutoTokenizer`` gives the same ids.

    Args:
        tokenizer: Changed in place: padding and truncation go, [CLS] and [SEP] around a text come where
            nothing adds them yet.
        folder: Must be there.
        max_length: What ``transformers`` cuts texts to when it is asked to.
        inputs: What the model takes.
        special_tokens: How its architecture spells our special tokens, if otherwise; none of them may name two.
        vocabulary_file: Write vocab.txt too, if it says all: a token for every id, and none is part of another.
    """
    found = {key: token for key, token in BERT_SPECIAL_TOKENS.items() if tokenizer.token_to_id(token) is not None}
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if tokenizer.post_processor is None and {"cls_token", "sep_token"} <= found.keys():
        _add_bert_frame(tokenizer)
    spelled = {ours: theirs for ours, theirs in (special_tokens or {}).items() if tokenizer.token_to_id(theirs) is None}
    tokenizer = renamed(tokenizer, spelled)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {key: spelled.get(token, token) for key, token in found.items()}
    if special_tokens and "sep_token" in named:
        named["eos_token"] = named["sep_token"]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": list(inputs),
        "clean_up_tokenization_spaces": False,
        **named,
    }
    write_json(folder / "tokenizer_config.json", settings)
    tokens = {number: token for token, number in tokenizer.get_vocab(with_added_tokens=True).items()}
    lines = [tokens.get(number, "") for number in range(len(tokens))]
    is_plain = type(tokenizer.model).__name__ == "WordLevel" and all(line.split() == [line] for line in lines)
    if vocabulary_file and is_plain:
        (folder / VOCABULARY_FILE).write_text("\n".join(lines), encoding="utf-8")
    else:
        (folder / VOCABULARY_FILE).unlink(missing_ok=True)


def renamed(tokenizer: Tokenizer, names: Mapping[str, str]) -> Tokenizer:
    """A tokenizer with tokens under other names and all else as it was: ids, and what stands around a text.

    Args:
        tokenizer: Itself the answer where no name changes.
        names: New names by old ones; those that the tokenizer does not have are passed over.
    """
    from tokenizers import Tokenizer

    changes = {old: new for old, new in names.items() if old != new and tokenizer.token_to_id(old) is not None}
    if not changes:
        return tokenizer
    document = json.loads(tokenizer.to_str())
    model = document["model"]
    if isinstance(model.get("vocab"), dict):
        model["vocab"] = {changes.get(token, token): number for token, number in model["vocab"].items()}
    else:
        model["vocab"] = [[changes.get(token, token), score] for token, score in model["vocab"]]
    if model.get("unk_token") in changes:
        model["unk_token"] = changes[model["unk_token"]]
    for token in document["added_tokens"]:
        token["content"] = changes.get(token["content"], token["content"])
    document["post_processor"] = _with_names(document["post_processor"], changes)
    return Tokenizer.from_str(json.dumps(document, ensure_ascii=False))


def check_vocabulary(source: Path, tokenizer: Tokenizer, rows: int) -> None:
    """Makes sure that every token has a word embedding; there may be spare ones.

    Raises:
        CheckpointError: The tokenizer has an id of ``rows`` or above.
    """
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= rows:
        raise CheckpointError(
            f"{source} has token ids up to {highest}, but the model has only {rows} word embeddings: it is "
            "another model's tokenizer, or tokens were added to it and the model was not resized"
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        CheckpointError: The file is missing, damaged, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no {path.name}, so it is no Hugging Face checkpoint") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not readable as JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object and holds a {type(content).__name__}")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A JSON object to a file that a person can read."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _add_bert_frame(tokenizer: Tokenizer) -> None:
    """Makes a tokenizer put [CLS] a [SEP] b [SEP] around one text or two, the second as segment 1."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )


def _with_names(processor: Any, changes: Mapping[str, str]) -> Any:
    """A post-processor's JSON with tokens under other names, wherever it names them."""
    if isinstance(processor, str):
        return changes.get(processor, processor)
    if isinstance(processor, list):
        return [_with_names(part, changes) for part in processor]
    if isinstance(processor, dict):
        return {changes.get(key, key): _with_names(part, changes) for key, part in processor.items()}
    return processor


def _special_names(vocabulary: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, str]:
    """How a vocabulary spells each of our special tokens, if it has a token for it under some name."""
    names: dict[str, str] = {}
    for key, ours in BERT_SPECIAL_TOKENS.items():
        said = [options.get(key)] + ([options.get("eos_token")] if key == "sep_token" else [])
        likely = [ours, *(_token_text(token) for token in said if token), *_OTHER_NAMES[ours]]
        found = next((name for name in likely if name in vocabulary), None)
        if found is not None and found not in names.values():
            names[ours] = found
    return names


def _from_list(vocab_txt: Path, options: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a list of tokens, one a line.

    Raises:
        CheckpointError: The file is unreadable, or it lacks special tokens.
    """
    try:
        # not splitlines(): some tokens are characters that it takes for the end of a line
        tokens = vocab_txt.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{vocab_txt} is not readable as a list of tokens ({error})") from error
    ids = {token: number for number, token in enumerate(tokens)}
    names = _special_names(ids, options)
    lacking = [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in names]
    if lacking:
        raise CheckpointError(
            f"{vocab_txt} is no vocabulary of BERT or ESM: it lacks {', '.join(lacking)}, by these names and others"
        )
    is_esm = options.get("tokenizer_class") == "EsmTokenizer" or {"<cls>", "<eos>"} <= ids.keys()
    theirs = {name: ours for ours, name in names.items()}
    tokens = [theirs.get(token, token) for token in tokens]
    return _residues(tokens) if is_esm else _word_piece(tokens, options)


def _residues(tokens: Sequence[str]) -> Tokenizer:
    """ESM's tokenizer: each token of its list wherever it stands, and one unknown token for what lies between.

    White space parts tokens and is nothing itself.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    ids = {token: number for number, token in enumerate(tokens)}
    special = [token for token in BERT_SPECIAL_TOKENS.values() if token in ids]
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    ordinary = sorted((token for token in tokens if token not in special), key=len, reverse=True)
    anyone = Regex("|".join(re.escape(token) for token in ordinary))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(anyone, "isolated"), pre_tokenizers.WhitespaceSplit()]
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    _add_bert_frame(tokenizer)
    return tokenizer


def _word_piece(tokens: Sequence[str], options: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that BERT was released with (Devlin et al. 2019), from its list of tokens.

    Where tokenizer_config.json does not say whether texts are lower-cased, the list does: they are if it has
    no capital letter outside special tokens.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import WordPiece as WordPieceDecoder
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    ids = {token: number for number, token in enumerate(tokens)}
    uncased = not any(token != token.lower() for token in tokens if not token.startswith("["))
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
        strip_accents=options.get("strip_accents"),
        lowercase=bool(options.get("do_lower_case", uncased)),
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder(prefix="##")
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in BERT_SPECIAL_TOKENS.values() if token in ids]
    )
    _add_bert_frame(tokenizer)
    return tokenizer


def _token_text(token: Any) -> str:
    """A special token as tokenizer_config.json spells it: plain, or an object with its options."""
    return str(token.get("content") if isinstance(token, dict) else token)
