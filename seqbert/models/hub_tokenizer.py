"""Tokenizers and JSON in Hugging Face's layout: tokenizer.json, and the vocab.txt of BERT's release."""

from __future__ import annotations

import json
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


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder: tokenizer.json, or BERT's WordPiece built from vocab.txt.

    Raises:
        CheckpointError: The folder has neither, or the file is damaged.
    """
    path = tokenizer_file(Path(folder))
    if path is None:
        raise CheckpointError(
            f"{folder} has no tokenizer: there is neither tokenizer.json nor vocab.txt. Copy the one that "
            "the model was trained with into it"
        )
    return read_tokenizer(path) if path.suffix == ".json" else _word_piece(path)


def tokenizer_file(folder: Path) -> Path | None:
    """The file that :func:`load_tokenizer` reads; None where there is none."""
    return next((path for name in ("tokenizer.json", "vocab.txt") if (path := folder / name).is_file()), None)


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


def save_tokenizer(tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    """Writes tokenizer.json and tokenizer_config.json so that ``AutoTokenizer`` gives the same ids.

    Args:
        tokenizer: Changed in place: padding and truncation go, [CLS] and [SEP] around a text come where
            nothing adds them yet.
        folder: Must be there.
        max_length: What ``transformers`` cuts texts to when it is asked to.
    """
    special = {key: token for key, token in BERT_SPECIAL_TOKENS.items() if tokenizer.token_to_id(token) is not None}
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if tokenizer.post_processor is None and {"cls_token", "sep_token"} <= special.keys():
        _add_bert_frame(tokenizer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
    }
    write_json(folder / "tokenizer_config.json", settings)


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


def _add_bert_frame(tokenizer: Tokenizer, cls: str = "[CLS]", sep: str = "[SEP]") -> None:
    """Makes a tokenizer put [CLS] a [SEP] b [SEP] around one text or two, the second as segment 1."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.post_processor = TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )


def _word_piece(vocab_txt: Path) -> Tokenizer:
    """The tokenizer that BERT was released with (Devlin et al. 2019), from its list of tokens, one a line.

    Where tokenizer_config.json does not say whether texts are lower-cased, the list does: they are if it has
    no capital letter outside special tokens.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import WordPiece as WordPieceDecoder
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    try:
        # not splitlines(): some tokens are characters that it takes for the end of a line
        tokens = vocab_txt.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{vocab_txt} is not readable as a list of tokens ({error})") from error
    ids = {token: number for number, token in enumerate(tokens)}
    config_json = vocab_txt.with_name("tokenizer_config.json")
    options = read_json(config_json) if config_json.is_file() else {}
    special = {key: _token_text(options.get(key) or token) for key, token in BERT_SPECIAL_TOKENS.items()}
    lacking = [special[key] for key in ("unk_token", "cls_token", "sep_token") if special[key] not in ids]
    if lacking:
        raise CheckpointError(f"{vocab_txt} is no BERT vocabulary: it lacks {', '.join(lacking)}")
    uncased = not any(token != token.lower() for token in tokens if not token.startswith("["))
    tokenizer = Tokenizer(WordPiece(ids, unk_token=special["unk_token"], max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
        strip_accents=options.get("strip_accents"),
        lowercase=bool(options.get("do_lower_case", uncased)),
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder(prefix="##")
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special.values() if token in ids]
    )
    _add_bert_frame(tokenizer, special["cls_token"], special["sep_token"])
    return tokenizer


def _token_text(token: Any) -> str:
    """A special token as tokenizer_config.json spells it: plain, or an object with its options."""
    return str(token["content"] if isinstance(token, dict) else token)
