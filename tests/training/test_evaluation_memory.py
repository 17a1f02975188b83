import subprocess
import sys

import pytest

MEASURE = """
import resource
import numpy as np
import torch
from seqbert.data.packing import PackedBatch, Target
from seqbert.models.config import EncoderConfig
from seqbert.models.model import Model
from seqbert.objectives.objective import Objective, ObjectiveConfig
from seqbert.training.device import Device, RunConfig
from seqbert.training.evaluation import evaluate
from types import SimpleNamespace

torch.set_num_threads(1)
VOCABULARY, RECORDS, LENGTH = 30_000, 2_000, 128
corpus = SimpleNamespace(
    domain="text", unit="token", overlap=0, special_mask=np.arange(VOCABULARY) < 5,
    ordinary_ids=np.arange(5, VOCABULARY), special_ids={"[MASK]": 4}, symbols=np.ones(VOCABULARY, np.float32),
)

def batches():
    draw = np.random.default_rng(0)
    for _ in range(RECORDS // 250):
        ids = draw.integers(5, VOCABULARY, 250 * LENGTH)
        index = np.flatnonzero(draw.random(len(ids)) < 0.15)
        target = Target(torch.from_numpy(index), torch.from_numpy(ids[index]), torch.ones(len(index)))
        lengths = np.full(250, LENGTH)
        yield PackedBatch.of("text", ids, np.zeros_like(ids), lengths, np.arange(250), {"masked_lm": target})

config = EncoderConfig(8, 1, 1, 8, max_position_embeddings=LENGTH)
model = Model(config, {"text": VOCABULARY}, {"text": ["masked_lm"]})
model.initialise(0)
device = Device.of(RunConfig(device="cpu"))
metrics = evaluate(model, Objective(ObjectiveConfig(), corpus), batches(), device, np.ones(VOCABULARY))
print(metrics["masked_lm_targets"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read in kilobytes, as Linux gives it")
def test_row74_validating_2000_records_of_128_tokens_with_30000_words_takes_less_than_2_gib() -> None:
    """All logits at once would be 4.3 GiB."""
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    targets, peak = map(float, done.stdout.split())
    assert targets > 38_000
    assert peak < 2 * 2**30
