import importlib.util
import re
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = [path for pattern in ("*.md", "docs/*.md", "examples/**/*.md") for path in sorted(CHECKOUT.glob(pattern))]


def test_every_relative_link_leads_somewhere():
    broken = [
        f"{page.relative_to(CHECKOUT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_every_config_that_a_page_pretrains_with_is_there():
    named = {
        name
        for page in PAGES
        for name in re.findall(r"^seqbert (?:pretrain|prepare) (\S+)", page.read_text(encoding="utf-8"), re.M)
        if name != "CONFIG" and not name.startswith("runs/")
    }
    assert "quickstart" in named
    shipped = {
        path.relative_to(CHECKOUT / "configs").with_suffix("").as_posix() for path in CHECKOUT.glob("configs/**/*.yaml")
    }
    assert not {name for name in named if name not in shipped and not (CHECKOUT / name).is_file()}


def test_the_config_that_the_reference_explains_is_a_valid_one():
    from seqbert.config import load
    from seqbert.training.pretrain_config import PretrainConfig

    text = (CHECKOUT / "docs" / "config.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    assert load(PretrainConfig, yaml.safe_load(block)).domains.keys() == {"dna"}


def test_the_list_of_config_keys_is_current():
    spec = importlib.util.spec_from_file_location("config_keys", CHECKOUT / "docs" / "config_keys.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run make docs"
