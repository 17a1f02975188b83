"""What a model is pretrained on: masked LM, causal LM, next sentence, sentence order."""

from seqbert.objectives.objective import Objective, ObjectiveConfig

__all__ = ["Objective", "ObjectiveConfig"]
