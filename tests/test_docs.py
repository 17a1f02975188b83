import contextlib
import doctest
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from labelled import write_reviews

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = [path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for path in sorted(CHECKOUT.glob(pattern))]
LABELLED = ("finetuning.md", "tables.md", "metrics.md", "adding-a-domain.md")
SHIPPED = {
    path.relative_to(CHECKOUT / "configs").with_suffix("").as_posix() for path in CHECKOUT.glob("configs/**/*.yaml")
}


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in a language; "" for those that name none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    return [block for named, block in found if named == language]


def commands(page: Path) -> list[list[str]]:
    """The words of each command of seqbert that a page shows, without comments."""
    lines = (line for block in blocks(page, "") for line in block.splitlines())
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("seqbert ")]


def reviews_config() -> dict[str, Any]:
    """The config that docs/finetuning.md calls reviews.yaml."""
    found = [block for block in blocks(CHECKOUT / "docs" / "finetuning.md", "yaml") if "output: runs/reviews" in block]
    tree = yaml.safe_load(found[0])
    assert isinstance(tree, dict)
    return tree


def test_every_relative_link_leads_somewhere():
    broken = [
        f"{page.relative_to(CHECKOUT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_every_command_and_every_config_that_a_page_names_is_there():
    from seqbert.cli import COMMANDS

    shown = [words for page in PAGES for words in commands(page) if words[0] != "COMMAND"]
    assert {words[0] for words in shown if not words[0].startswith("-")} <= COMMANDS.keys()
    named = {words[1] for words in shown if words[0] in ("pretrain", "prepare", "finetune")}
    assert {"quickstart", "text/squad_v2", "music/composer"} <= named
    own = {name for name in named if name in ("CONFIG", "reviews.yaml") or name.startswith("runs/")}
    assert not {name for name in named - own - SHIPPED if not (CHECKOUT / name).is_file()}


def test_the_configs_that_the_reference_explains_are_valid_ones():
    from seqbert.config import load
    from seqbert.training.finetune_config import FinetuneConfig
    from seqbert.training.pretrain_config import PretrainConfig

    pretraining, finetuning = map(yaml.safe_load, blocks(CHECKOUT / "docs" / "config.md", "yaml"))
    assert load(PretrainConfig, pretraining).domains.keys() == {"dna"}
    assert load(FinetuneConfig, finetuning) == load(
        FinetuneConfig,
        {"output": "runs/splice", "domain": {"name": "dna"}, "data": {"train": "splice.data"}},
    ), "what the page shows is the default"


@pytest.mark.parametrize("name", LABELLED)
def test_every_config_of_fine_tuning_that_a_page_shows_is_a_valid_one(name: str):
    from seqbert.config import load
    from seqbert.training.finetune_config import FinetuneConfig

    for block in blocks(CHECKOUT / "docs" / name, "yaml"):
        load(FinetuneConfig, {"output": "runs/x"} | yaml.safe_load(block))


def test_every_fine_tuning_command_that_a_page_shows_can_be_given():
    from seqbert.config import load
    from seqbert.training.finetune_config import FinetuneConfig

    shown = [words for page in PAGES for words in commands(page) if words[0] == "finetune" and len(words) > 2]
    assert len(shown) > 10
    for _, name, *overrides in shown:
        if name in ("CONFIG", "runs/reviews/config.yaml"):
            continue
        load(FinetuneConfig, reviews_config() if name == "reviews.yaml" else name, overrides)


def test_the_python_of_the_metrics_page_gives_what_the_page_says():
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for block in blocks(CHECKOUT / "docs" / "metrics.md", "python"):
        runner.run(parser.get_doctest(block, {}, "docs/metrics.md", None, 0))
    assert runner.tries and not runner.failures


def test_the_python_of_the_fine_tuning_page_runs_and_transformers_agrees_with_it(tmp_path: Path):
    pytest.importorskip("transformers")
    write_reviews(tmp_path / "reviews.csv")
    small = {"preset": "bert-tiny"}
    run = {"workers": 0, "device": "cpu"}
    (tmp_path / "reviews.yaml").write_text(yaml.safe_dump(reviews_config() | {"model": small, "run": run}))
    namespace: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        for block in blocks(CHECKOUT / "docs" / "finetuning.md", "python"):
            exec(compile(block, "docs/finetuning.md", "exec"), namespace)
        (answer,) = namespace["seqbert"].predict("runs/reviews", str(one_text(tmp_path))).predictions
    assert namespace["label"] == answer.value
    logits = namespace["logits"].detach().numpy()[0]
    assert logits == pytest.approx(answer.logits, abs=1e-4)
    rows = (tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + len(namespace["answers"].predictions) == 61
    assert set(namespace["result"].metrics["validation"]["accuracy"]) == {"value", "low", "high"}


def one_text(folder: Path) -> Path:
    """A table of the one text that docs/finetuning.md gives to transformers."""
    path = folder / "one.csv"
    path.write_text("text\na great room near the street\n", encoding="utf-8")
    return path


def test_the_list_of_config_keys_is_current():
    spec = importlib.util.spec_from_file_location("config_keys", CHECKOUT / "docs" / "config_keys.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run make docs"
