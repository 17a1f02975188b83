"""``seqbert study``: runs a grid, goes on with what was cut, and writes table, pictures and verdicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqbert import config as config_tree
from seqbert.data.whole import write_json, write_text
from seqbert.studies.declaration import StudyConfig, load_study
from seqbert.studies.jobs import Job, plan_jobs
from seqbert.studies.measures import check_arguments
from seqbert.studies.pictures import draw_pictures
from seqbert.studies.results import TABLE, numbers_of, write_table
from seqbert.studies.running import STUDY, Failed, StudyFolder, run_jobs
from seqbert.studies.tables import Judged, Table, as_markdown, build_tables, judge_claims


@dataclasses.dataclass(frozen=True, slots=True)
class StudyResult:
    """Where a study lies and what came of it.

    Attributes:
        folder: The study's folder.
        tables: Its tables.
        claims: What it says about its claims.
        failed: The jobs that could not be done.
    """

    folder: Path
    tables: list[Table]
    claims: list[Judged]
    failed: list[Failed]


def study(
    config: str | Path | Mapping[str, Any] | StudyConfig,
    overrides: Sequence[str] = (),
    *,
    small: bool = False,
    jobs: int | None = None,
    overwrite: bool = False,
) -> StudyResult:
    """Carries out a study: what is done already is skipped, what was cut goes on from its checkpoint.

    Args:
        config: A path, the name of a shipped study, a mapping, or a :class:`StudyConfig`.
        overrides: As on the command line: ``["--data.folder", "data"]``.
        small: Take the study's small setting, which ends in minutes without a GPU.
        jobs: How many jobs at a time; None: one on each GPU, or without one on each core, up to four.
        overwrite: Do anew what was done with other settings.

    Raises:
        SeqbertError: A key, a file or a folder cannot be used; nothing has been run then. Jobs that fail are no error:
            they are in the result.
        Stopped: At Ctrl-C or SIGTERM; the same command goes on.
    """
    settings = load_study(config, overrides, small=small)
    planned = plan_jobs(settings, _beside(config))
    for job in planned:
        if job.function is not None:
            check_arguments(job.function, job.settings)
    folder = StudyFolder(Path(settings.output))
    folder.check()
    with folder.locked():
        write_text(folder.path / STUDY, config_tree.dump(settings))
        failed = run_jobs(planned, folder, jobs, overwrite)
        tables, claims = write_results(settings, planned, folder, failed)
    return StudyResult(folder.path, tables, claims, failed)


def write_results(
    settings: StudyConfig, jobs: Sequence[Job], study_folder: StudyFolder, failed: Sequence[Failed] = ()
) -> tuple[list[Table], list[Judged]]:
    """Writes what came of the jobs that are done: tables, verdicts and pictures.

    Returns:
        The tables, and what the study says about its claims.
    """
    folder = study_folder.path
    seconds = {job.folder: one.seconds for job in jobs if (one := study_folder.record(job)) is not None}
    numbers = numbers_of(jobs, seconds)
    tables, claims = build_tables(settings, numbers), judge_claims(settings, numbers)
    write_table(numbers, folder / TABLE)
    write_json(folder / "tables.json", {"tables": [dataclasses.asdict(table) for table in tables]})
    write_text(folder / "table.md", as_markdown(tables, claims))
    write_json(folder / "claims.json", {"claims": [dataclasses.asdict(claim) for claim in claims]})
    write_json(folder / "failed.json", {"failed": [one.as_dict() for one in failed]})
    draw_pictures(settings, jobs, numbers, folder / "pictures")
    return tables, claims


def _beside(config: object) -> Path | None:
    """The folder of a study's own file."""
    if not isinstance(config, str | Path):
        return None
    return config_tree.find(config).parent
