"""The command that measures embedding and prediction against transformers, at toy size."""

import json
import random
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def inference(load_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return load_benchmark("inference")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A model of one small block whose tokens are letters, and a table of 70 texts of which one is too long."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("toy")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
    transformers.BertTokenizer(vocab={token: number for number, token in enumerate(tokens)}).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(tokens), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder)
    draw = random.Random(0)
    texts = ["".join(draw.choices(string.ascii_lowercase + " ", k=draw.randint(2, 30))).strip("ab ") for _ in range(69)]
    texts.insert(5, "z" * 40)
    (folder / "texts.tsv").write_text("sentence\tlabel\n" + "".join(f"{text or 'c'}\t0\n" for text in texts))
    return [str(folder), str(folder / "texts.tsv"), "--column=sentence", "--max-length=32", "--passes=1"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_both_say_the_same_of_the_same_texts(
    inference: ModuleType, toy: list[str], tmp_path: Path, precision: str
) -> None:
    arguments = inference.parser().parse_args([*toy, "--precision", precision])
    about = inference.prepare(arguments, tmp_path)
    assert about["texts"] == 69 and about["longest"] <= 32 and 0.4 < about["padding_efficiency"] < 0.9
    contenders = {name: make(arguments, tmp_path) for name, make in inference.CONTENDERS.items()}
    for contender in contenders.values():
        for job in inference.JOBS:
            getattr(contender, job)()
    padded = sum(batch["input_ids"].numel() for batch in contenders["transformers"].batches)
    assert about["padding_efficiency"] == pytest.approx(about["tokens"] / padded, abs=1e-3)
    assert sum(batch["input_ids"].numel() for batch in contenders["transformers_sorted"].batches) < padded
    assert sum(batch.tokens for batch in contenders["seqbert"].batches) == about["tokens"]
    found = inference.agreement(tmp_path, list(inference.JOBS))
    assert found["least_cosine"] > (1 - 1e-5 if precision == "fp32" else 0.999)
    assert found["equal_labels"] >= (1 if precision == "fp32" else 0.9)


@pytest.mark.slow
def test_one_command_measures_ours_against_the_peer(checkout: Path, toy: list[str]) -> None:
    command = [sys.executable, str(checkout / "benchmarks" / "inference.py"), *toy, "--sorted"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["ratios"]) == {"embed", "predict", "encoder"}
    for job, rates in report["texts_per_second"].items():
        for name in ("transformers", "transformers_sorted"):
            assert report["ratios"][job][f"seqbert / {name}"] == pytest.approx(rates["seqbert"] / rates[name], rel=0.02)


def test_a_column_that_is_not_there_is_named(inference: ModuleType, toy: list[str]) -> None:
    with pytest.raises(SystemExit, match='no column "text"'):
        inference.read_texts(Path(toy[1]), "text")
