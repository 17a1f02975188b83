"""``seqbert import`` and ``seqbert export``: Hugging Face folders in and out, from disk to disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from seqbert import registry
from seqbert.data.whole import draft_of, write_json
from seqbert.errors import CheckpointError, ConfigError
from seqbert.models import hub
from seqbert.models.hub_tokenizer import load_tokenizer
from seqbert.models.model import Model
from seqbert.training.run_folder import RunFolder, open_run


def import_checkpoint(
    source: str | Path, output: str | Path, *, domain: str | None = None, overwrite: bool = False
) -> hub.LoadReport:
    """Makes a run of a Hugging Face checkpoint, for ``init`` and for the commands that take a run.

    Args:
        source: The checkpoint's folder.
        output: The run's folder.
        domain: What its sequences are; without it, the other commands ask for it.
        overwrite: Replace a run that ``output`` holds.

    Returns:
        What became of the weights; it is written to ``import.json`` too.

    Raises:
        CheckpointError: if the checkpoint is damaged, or of a kind that is not supported.
    """
    if domain is not None:
        registry.load(domain)
    checkpoint = hub.read_checkpoint(source)
    name = domain or "imported"
    sizes, heads = {name: checkpoint.vocab_size}, {name: checkpoint.heads}
    model = Model(checkpoint.config, sizes, heads, checkpoint.features, checkpoint.mask_ids(name))
    model.initialise(seed=0)
    report = hub.load_into(model, name, checkpoint)
    pooler_only = any(".pair.classifier." in missing for missing in report.newly_initialised)
    tokenizer = load_tokenizer(source)
    run = RunFolder(Path(output))
    run.check(overwrite, resume=False)
    with run.lock():
        run.begin(resume=False)
        run.tokenizer(name).parent.mkdir(parents=True)
        tokenizer.save(str(run.tokenizer(name)))
        length = checkpoint.config.max_position_embeddings
        hub.save(
            model,
            name,
            run.path / "model",
            run.tokenizer(name),
            length,
            without_classifier=pooler_only,
            labels=checkpoint.labels or None,
            problem_type=checkpoint.problem_type,
            kept=checkpoint.kept,
        )
        write_json(
            run.path / "import.json",
            {
                "source": str(source),
                "loaded": report.loaded,
                "newly_initialised": report.newly_initialised,
                "not_used": report.left_over,
                "ignored": report.ignored,
            },
        )
        domains = {} if domain is None else {domain: {"options": None}}
        tree = {"output": str(output), "init": str(source), "domains": domains}
        run.config.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return report


def export(run: str | Path, output: str | Path, *, domain: str | None = None, overwrite: bool = False) -> Path:
    """Writes the model of a run as a Hugging Face folder that ``transformers`` loads with no missing keys.

    Raises:
        CheckpointError: if the run has no model, or a damaged one, or several and ``domain`` does not say which; or if
            no architecture of ``transformers`` has its shape and heads.
        ConfigError: if ``output`` holds files and ``overwrite`` is not set.
    """
    found = open_run(run, domain)
    obstacle = hub.obstacle(hub.read_checkpoint(found.folder))
    if obstacle is not None:
        raise CheckpointError(f'The model of "{run}" cannot be exported. {obstacle}.')
    target = Path(output)
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise ConfigError(f'The folder "{target}" holds files already. Replace them with --overwrite.')
    draft = draft_of(target)
    try:
        draft.mkdir(parents=True, exist_ok=True)
        for file in found.folder.iterdir():
            if file.name in hub.FILES:  # nothing else that someone may have put there is handed on
                shutil.copyfile(file, draft / file.name)
        target.mkdir(exist_ok=True)
        for file in draft.iterdir():
            file.replace(target / file.name)
    except OSError as error:
        raise CheckpointError(f'"{target}" cannot be written: {error.strerror or error}.') from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target
