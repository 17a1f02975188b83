"""From files to a corpus: read, train the tokenizer, encode, hold documents out.

Files are cut into groups by their sizes alone; each group becomes one shard, whichever process writes it. So the
corpus is the same for any number of processes on any number of machines, and memory holds one record batch a process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqbert.data.corpus import LAYOUT, Corpus
from seqbert.data.crew import ALONE, Crew
from seqbert.data.drafts import SCAFFOLD, draft_of
from seqbert.data.encoding import (
    FileGroup,
    MakeShard,
    PluginError,
    last_counts,
    last_place,
    read_documents,
    read_report,
)
from seqbert.data.files import InputFile, Inputs, find_inputs
from seqbert.data.finishing import Draft, finish_corpus, nothing_usable
from seqbert.data.pace import Pace, Passed, Progress, ticking
from seqbert.data.ties import SplitConfig
from seqbert.data.vocabulary import missing_special_tokens
from seqbert.data.vocabulary_text import vocabulary_text
from seqbert.data.workers import WorkerDied, spread
from seqbert.domain import SPECIAL_TOKENS, Document, Domain, Report
from seqbert.errors import DataError, DomainError, SeqbertError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHARDS = 64
"""Most shards that one input is cut into: more than any machine has use for, few enough to open at once."""


@dataclasses.dataclass(slots=True)
class BuildRequest:
    """What a corpus is made from; everything here, and only this, decides its content.

    Attributes:
        domain: The plugin, with its options.
        data: What stands under ``data:``: files, folders, globs, or "sample".
        validation: The share of tokens to hold out, or what names the held-out files.
        vocab_size: Entries of a new tokenizer; None: the domain's default.
        tokenizer: JSON of a tokenizer to use, or None to train one.
        extend: Add what a new tokenizer would hold to ``tokenizer`` instead of using it as it is.
        strict: Make each record that is skipped, cut, repaired or mapped an error.
        split: What stays on one side of the share that is held out.
    """

    domain: Domain
    data: Sequence[str]
    validation: float | str = 0.05
    vocab_size: int | None = None
    tokenizer: str | None = None
    extend: Callable[[str, Tokenizer], str] | None = None
    strict: bool = False
    split: SplitConfig = dataclasses.field(default_factory=SplitConfig)


def build_corpus(
    request: BuildRequest,
    cache: Path,
    processes: int = 1,
    progress: Progress = lambda what, share: None,
    crew: Crew = ALONE,
) -> Corpus:
    """The corpus for ``request``: the one in ``cache`` if its inputs and options have not changed, else a new one.

    Of a crew, the process of rank 0 decides what is built, makes the tokenizer and finishes the corpus; each
    encodes files of its own, with ``processes`` processes, into a folder in ``cache`` that all of them share.

    Raises:
        DataError: if the data is missing, a named file yields nothing, nothing is left to train on, the corpus cannot
            be written, or a process that reads the data ends before it is done.
    """
    if crew.rank == 0:
        return _Builder(request, cache, processes, progress, crew).build()
    return _help(request, processes, crew)


class _Builder:
    """What the process of rank 0 does."""

    def __init__(self, request: BuildRequest, cache: Path, processes: int, progress: Progress, crew: Crew) -> None:
        self.request = request
        self.domain = request.domain
        self.cache = cache
        self.processes = processes
        self.progress = progress
        self.crew = crew
        self.inputs = self._find(request.data)
        self.held_out: Inputs | None = None
        if isinstance(request.validation, str):
            self.held_out = self._find([request.validation])
            self.inputs = self.inputs.without(self.held_out)

    def build(self) -> Corpus:
        folder = self.cache / f"{self.domain.name}-{_key(self.request, self.inputs, self.held_out)}"
        if (folder / "manifest.json").is_file():
            self.progress(f"{self.domain.name}: corpus found in {folder}", None)
            self.crew.tell("")
        else:
            groups = self._groups(self.inputs)
            held_out = [] if self.held_out is None else self._groups(self.held_out)
            with _writing_to(self.cache), draft_of(folder) as draft:
                self._fill(draft.path, groups, held_out)
                draft.publish(whole="manifest.json")
        self.crew.tell(str(folder.absolute()))
        return Corpus(folder)

    def _find(self, entries: Sequence[str]) -> Inputs:
        return find_inputs(entries, self.domain, self.cache, lambda what: self.progress(what, None))

    def _fill(self, draft: Path, groups: list[list[InputFile]], held_out: list[list[InputFile]]) -> None:
        tokenizer = self._tokenizer(groups)
        self.domain.use(tokenizer)
        _tokenizer_file(draft).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
        _write_groups(draft, groups + held_out)
        self.crew.tell(str(draft.absolute()))
        report = self._encode(groups + held_out, draft)
        finish_corpus(
            Draft(
                folder=draft,
                domain=self.domain,
                shards=len(groups) + len(held_out),
                first_held_out=None if self.held_out is None else len(groups),
                share=0.0 if isinstance(self.request.validation, str) else self.request.validation,
                inputs=self.inputs,
                report=report,
                split=self.request.split,
            )
        )

    def _groups(self, inputs: Inputs) -> list[list[InputFile]]:
        groups = _group(inputs.files)
        if inputs.sample and self.domain.sample().documents is not None:
            groups.append([])  # the group without files is the sample's documents
        return groups

    def _tokenizer(self, groups: list[list[InputFile]]) -> Tokenizer:
        from tokenizers import Tokenizer

        given, extend = self.request.tokenizer, self.request.extend
        if given is not None:
            tokenizer = Tokenizer.from_str(given)
            _check_special_tokens(tokenizer, self.domain.name)
            if extend is None:
                return tokenizer
        self.progress(f"{self.domain.name}: making the tokenizer", None)
        report = Report(self.request.strict)
        sizes = {str(file.path): _bytes_of(file) for group in groups for file in group}

        def passed() -> Passed:
            done = sum(sizes[name] for name in list(report.files))
            readings = 1 if self.domain.balance is None else 2
            return Passed(report.yielded, report.skipped_records, done / readings / max(1, sum(sizes.values())))

        def documents() -> Iterator[Document]:
            for group in groups:
                yield from read_documents(self.domain, group, report)

        try:
            pace = Pace(f"{self.domain.name}: reading for the tokenizer", passed, self.progress)
            with ticking(pace.tell):
                segments = vocabulary_text(documents, self.domain.balance)
                trained = self.domain.tokenizer(segments, self.request.vocab_size)
        except (SeqbertError, OSError):
            if report.files or not report.skipped_files:
                raise
            raise nothing_usable(self.domain, report) from None
        except Exception as error:
            raise PluginError.of(self.domain, "making its tokenizer", error) from error
        _check_tokenizer(trained, self.domain.name)
        if given is None or extend is None:
            return trained
        return Tokenizer.from_str(extend(given, trained))

    def _encode(self, groups: list[list[InputFile]], draft: Path) -> Report:
        """What became of all records, once every shard is there."""
        own = _part_of(groups, self.crew)
        sizes = {group.shard: max(1, sum(map(_bytes_of, group.files))) for group in own}
        done = 0

        def passed() -> Passed:
            read, skipped = np.array([(0, 0), *(last_counts(draft, shard) for shard in sizes)]).sum(axis=0).tolist()
            return Passed(read, skipped, done / max(1, sum(sizes.values())))

        pace = Pace(f"{self.domain.name}: encoding", passed, self.progress)
        for shard in _make_shards(self.request, draft, own, self.processes, pace.tell):
            done += sizes[shard]
        pace.finish()
        self.crew.wait()
        report = Report()
        for shard in range(len(groups)):
            report.merge(read_report(draft, shard))
        return report


def _help(request: BuildRequest, processes: int, crew: Crew) -> Corpus:
    """What the other processes of a crew do."""
    told = crew.tell("")
    if told:
        draft = Path(told)
        with _writing_to(draft.parent), _shared(draft, crew):
            own = _part_of(_read_groups(draft), crew)
            for _ in _make_shards(request, draft, own, processes):
                pass
        crew.wait()
    folder = Path(crew.tell(""))
    with _shared(folder, crew):
        return Corpus(folder)


def _part_of(groups: list[list[InputFile]], crew: Crew) -> list[FileGroup]:
    return [FileGroup(shard, group) for shard, group in enumerate(groups)][crew.rank :: crew.size]


def _make_shards(
    request: BuildRequest,
    draft: Path,
    groups: list[FileGroup],
    processes: int,
    tick: Callable[[], None] = lambda: None,
) -> Iterator[int]:
    """Makes the shards of some groups, and yields the number of each that is made."""
    domain = request.domain
    tokenizer = _tokenizer_file(draft).read_text(encoding="utf-8")
    job = MakeShard(type(domain), domain.options, tokenizer, draft, request.strict)
    try:
        for group in spread(job, groups, processes, tick):
            yield group.shard
    except WorkerDied as error:
        raise DataError(
            f'A process that read data of the domain "{domain.name}" {error.cause} '
            f"{_circumstances(last_place(draft, error.task.shard))}"
        ) from error


def _circumstances(place: str) -> str:
    """When a worker ended, and what may have ended it."""
    if place:
        return (
            f"while it was {place}. The system ends a process so when memory runs out, or a library fails on what it "
            "reads. Try run.workers 1, or leave that file or record out."
        )
    method = multiprocessing.get_start_method()
    if method == "fork":
        return "before it read anything, as happens when memory runs out. Try run.workers 1."
    return (
        f'before it read anything. A script that makes a corpus under the start method "{method}" has to do so below '
        '`if __name__ == "__main__":`; or try run.workers 1.'
    )


@contextmanager
def _writing_to(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # pyarrow's own words are about itself
        raise DataError(
            f'The corpus cannot be written to "{cache}": {reason}. Make room there, or name another '
            "place by run.corpus_dir or $SEQBERT_CACHE."
        ) from error


@contextmanager
def _shared(folder: Path, crew: Crew) -> Iterator[None]:
    """Makes sure that this process sees what the one of rank 0 has made, and says so when that one takes it away."""
    if not folder.is_dir():
        raise DataError(
            f'Process {crew.rank} of {crew.size} does not see the folder "{folder}", which process 0 has made: '
            "run.corpus_dir or $SEQBERT_CACHE must name a place on a file system that all machines share."
        )
    try:
        yield
    except OSError as error:
        if folder.is_dir():
            raise
        raise DataError(f'Process 0 has given up and removed "{folder}": its own message says why.') from error


def _tokenizer_file(folder: Path) -> Path:
    return folder / "tokenizer.json"


def _groups_file(draft: Path) -> Path:
    return draft / SCAFFOLD / "groups.json"


def _write_groups(draft: Path, groups: list[list[InputFile]]) -> None:
    described = [[[str(file.path), file.named] for file in group] for group in groups]
    _groups_file(draft).write_text(json.dumps(described), encoding="utf-8")


def _read_groups(draft: Path) -> list[list[InputFile]]:
    described = json.loads(_groups_file(draft).read_text(encoding="utf-8"))
    return [[InputFile(Path(path), named) for path, named in group] for group in described]


def _key(request: BuildRequest, inputs: Inputs, held_out: Inputs | None) -> str:
    domain = request.domain
    described = {
        "layout": LAYOUT,
        "domain": [domain.name, type(domain).__module__, domain.version],
        "options": dataclasses.asdict(domain.options),
        "options_files": _files_in_options(domain.options),
        "files": [_fingerprint(file.path) for file in inputs.files],
        "sample": domain.sample().version if inputs.sample else None,
        "validation": [_fingerprint(f.path) for f in held_out.files] if held_out else request.validation,
        "vocab_size": request.vocab_size,
        "tokenizer": request.tokenizer,
        "extend": request.extend is not None,
        "split": None if request.split.by is None else dataclasses.asdict(request.split),
        "clusters": None if request.split.file is None else _fingerprint(request.split.file),
        "strict": request.strict,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _files_in_options(options: Any) -> list[list[Any]]:
    """Of the files that a plugin's options name, such as regions of a genome."""
    values = [value for value in dataclasses.asdict(options).values() if isinstance(value, str) and value]
    return [_fingerprint(path) for value in values if (path := Path(value).expanduser()).is_file()]


def _fingerprint(path: Path) -> list[Any]:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _bytes_of(file: InputFile) -> int:
    return file.path.stat().st_size


def _group(files: Sequence[InputFile]) -> list[list[InputFile]]:
    """Cuts the list of files into at most :data:`SHARDS` neighbouring groups of about equal size in bytes."""
    sizes = np.array([max(1, _bytes_of(file)) for file in files], np.float64)
    middles = (np.cumsum(sizes) - sizes / 2) / max(1.0, sizes.sum())
    groups: dict[int, list[InputFile]] = {}
    for file, middle in zip(files, middles.tolist(), strict=True):
        groups.setdefault(int(middle * SHARDS), []).append(file)
    return list(groups.values())


def _check_special_tokens(tokenizer: Tokenizer, name: str) -> None:
    if missing := missing_special_tokens(tokenizer):
        raise DataError(
            f'The tokenizer that was given for the domain "{name}" has no {", ".join(missing)}, and every vocabulary '
            f"needs {', '.join(SPECIAL_TOKENS)}. Add them to it, or leave it out so that a new one is made."
        )


def _check_tokenizer(tokenizer: Tokenizer, name: str) -> None:
    ids = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    if ids != list(range(len(SPECIAL_TOKENS))):
        raise DomainError(
            f'The tokenizer that the plugin of the domain "{name}" makes does not begin with '
            f"{', '.join(SPECIAL_TOKENS)}, as every vocabulary must: a fault of the plugin, for its author to mend."
        )
