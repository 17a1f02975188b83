"""Changes to a tokenizer's vocabulary that keep the ids it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def missing_special_tokens(tokenizer: Tokenizer) -> list[str]:
    """Those of :data:`~seqbert.domain.SPECIAL_TOKENS` that a tokenizer does not have."""
    return [token for token in SPECIAL_TOKENS if tokenizer.token_to_id(token) is None]


def extend_vocabulary(tokenizer_json: str, more: Tokenizer) -> str:
    """The tokenizer with the tokens of ``more`` that it lacks, behind its own; every old id stays.

    Args:
        tokenizer_json: The tokenizer to extend, as ``tokenizers`` writes it.
        more: A tokenizer of the same kind over other data.

    Raises:
        CheckpointError: if the tokenizers are not both WordPiece or both WordLevel: in others the order of merges
            or the scores would change how old words are cut.
    """
    document: dict[str, Any] = json.loads(tokenizer_json)
    kind, other = document["model"]["type"], type(more.model).__name__
    if kind not in ("WordPiece", "WordLevel") or kind != other:
        raise CheckpointError(
            f"A vocabulary of kind {kind} cannot be extended by one of kind {other}: both must be WordPiece, or both "
            "WordLevel. Set domains.NAME.vocabulary to keep or replace."
        )
    vocabulary: dict[str, int] = document["model"]["vocab"]
    taken = set(vocabulary) | {token["content"] for token in document["added_tokens"]}
    free = max([*vocabulary.values(), *(token["id"] for token in document["added_tokens"])]) + 1
    by_id = sorted(more.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    new = [token for token, _ in by_id if token not in taken]
    vocabulary.update({token: free + place for place, token in enumerate(new)})
    return json.dumps(document, ensure_ascii=False)
