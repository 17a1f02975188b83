"""seqbert trains BERT encoders on any kind of sequence.

Each command of the command line has a function of the same name here (``import`` is a Python keyword, so that one is
:func:`import_checkpoint`). Everything is loaded on first use, so that ``import seqbert`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqbert.config import load as load_config
    from seqbert.domain import Document, Domain, Encoded, Example, Report, Sample
    from seqbert.errors import SeqbertError
    from seqbert.inference.describing import describe
    from seqbert.inference.embed import EmbedResult, embed
    from seqbert.inference.fill import fill
    from seqbert.inference.generate import Generated, generate
    from seqbert.inference.predict import PredictResult, evaluate, predict
    from seqbert.inference.score import ScoreResult, score
    from seqbert.inference.similarity import SimilarityResult, similarity
    from seqbert.inference.transfer import export, import_checkpoint
    from seqbert.registry import listing as domains
    from seqbert.studies.study import StudyResult, study
    from seqbert.training.finetune import FinetuneResult, finetune
    from seqbert.training.finetune_config import FinetuneConfig
    from seqbert.training.pretrain import PretrainResult, prepare, pretrain
    from seqbert.training.pretrain_config import PretrainConfig

__version__ = "0.1.0"

_PLACES = {
    "Document": "domain",
    "Domain": "domain",
    "EmbedResult": "inference.embed",
    "Encoded": "domain",
    "Example": "domain",
    "FinetuneConfig": "training.finetune_config",
    "FinetuneResult": "training.finetune",
    "Generated": "inference.generate",
    "PredictResult": "inference.predict",
    "PretrainConfig": "training.pretrain_config",
    "PretrainResult": "training.pretrain",
    "Report": "domain",
    "Sample": "domain",
    "ScoreResult": "inference.score",
    "SeqbertError": "errors",
    "SimilarityResult": "inference.similarity",
    "StudyResult": "studies.study",
    "describe": "inference.describing",
    "domains": "registry:listing",
    "embed": "inference.embed",
    "evaluate": "inference.predict",
    "export": "inference.transfer",
    "fill": "inference.fill",
    "finetune": "training.finetune",
    "generate": "inference.generate",
    "import_checkpoint": "inference.transfer",
    "load_config": "config:load",
    "predict": "inference.predict",
    "prepare": "training.pretrain",
    "pretrain": "training.pretrain",
    "score": "inference.score",
    "similarity": "inference.similarity",
    "study": "studies.study",
}

__all__ = [
    "Document",
    "Domain",
    "EmbedResult",
    "Encoded",
    "Example",
    "FinetuneConfig",
    "FinetuneResult",
    "Generated",
    "PredictResult",
    "PretrainConfig",
    "PretrainResult",
    "Report",
    "Sample",
    "ScoreResult",
    "SeqbertError",
    "SimilarityResult",
    "StudyResult",
    "describe",
    "domains",
    "embed",
    "evaluate",
    "export",
    "fill",
    "finetune",
    "generate",
    "import_checkpoint",
    "load_config",
    "predict",
    "prepare",
    "pretrain",
    "score",
    "similarity",
    "study",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'seqbert' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(importlib.import_module(f"seqbert.{module}"), attribute or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
