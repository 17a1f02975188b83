"""Our own layout, for shapes and heads that no published architecture holds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from seqbert.models.config import EncoderConfig
from seqbert.models.heads import HEADS
from seqbert.models.hub_layout import Layout

_FIELDS = {field.name: field.name for field in dataclasses.fields(EncoderConfig)}


class OwnLayout(Layout):
    """Every field of a shape and every weight by our own names, so that a run can always be read again.

    ``transformers`` does not know it.
    """

    model_type = "seqbert"
    title = "seqbert"
    prefix = ""
    roots = ()
    base = "Model"
    names: ClassVar[Mapping[str, str]] = {}
    classes: ClassVar[Mapping[tuple[str, ...], str]] = {}
    twins = ()
    keys: ClassVar[Mapping[str, str]] = _FIELDS
    served: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    dropouts = ("dropout",)

    def kinds(self, architecture: str, names: Collection[str]) -> tuple[str, ...]:
        """See :meth:`Layout.kinds`."""
        return HEADS

    def our_names(self, standard: str, ours: Mapping[str, list[str]]) -> list[str]:
        """See :meth:`Layout.our_names`."""
        kind = re.fullmatch(r"heads\.\*\.(\w+)\..+", standard)
        return [standard] if standard.startswith("encoder.") or (kind and kind[1] in HEADS) else []

    def their_name(self, general: str) -> str:
        """See :meth:`Layout.their_name`."""
        return general

    def obstacles(self, config: EncoderConfig, heads: Collection[str]) -> list[str]:
        """See :meth:`Layout.obstacles`: there are none."""
        return []

    def architecture(self, config: EncoderConfig, heads: Sequence[str]) -> str:
        """See :meth:`Layout.architecture`."""
        return self.base

    def settings(self, config: EncoderConfig) -> dict[str, Any]:
        """See :meth:`Layout.settings`."""
        return dataclasses.asdict(config)
