"""The metrics of every task under one name."""

from seqbert.tasks.class_metrics import choice_scores, classification_scores, confusion, multilabel_scores
from seqbert.tasks.intervals import Metric, Scores
from seqbert.tasks.regression_metrics import regression_scores
from seqbert.tasks.span_metrics import best_threshold, squad_scores
from seqbert.tasks.tagging_metrics import is_span_scheme, span_report, spans_of, tagging_scores

__all__ = [
    "Metric",
    "Scores",
    "best_threshold",
    "choice_scores",
    "classification_scores",
    "confusion",
    "is_span_scheme",
    "multilabel_scores",
    "regression_scores",
    "span_report",
    "spans_of",
    "squad_scores",
    "tagging_scores",
]
