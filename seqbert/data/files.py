"""What a user names as data, as a list of files: paths, folders, globs, addresses, standard input, or the sample."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from seqbert.data.fetching import STANDARD_INPUT, fetch, is_address, keep_standard_input
from seqbert.domain import Domain
from seqbert.errors import DataError

SAMPLE = "sample"


@dataclasses.dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read; ``named`` is true where the user named it, so that it must yield something."""

    path: Path
    named: bool


@dataclasses.dataclass(slots=True)
class Inputs:
    """The files to read, in order, and those met in folders that no reader of the domain knows."""

    files: list[InputFile]
    unknown: list[Path]
    sample: bool = False

    def without(self, others: Inputs) -> Inputs:
        """These inputs less the files of others, so that nothing is trained on that is held out."""
        held_out = {file.path.resolve() for file in others.files}
        files = [file for file in self.files if file.path.resolve() not in held_out]
        return Inputs(files, self.unknown, self.sample)


def find_inputs(
    entries: Sequence[str], domain: Domain, cache: Path, say: Callable[[str], None] = lambda what: None
) -> Inputs:
    """Resolves what stands under ``data:`` into files, sorted within each folder and glob.

    Args:
        entries: Paths, folders, globs, addresses, "-" for standard input, or "sample".
        domain: Says which files of a folder it reads.
        cache: Keeps what standard input and addresses hold.
        say: Is told what is fetched.

    Raises:
        DataError: if a path is not there, a glob matches nothing, or a folder holds no file that ``domain`` reads.
    """
    if not entries:
        raise DataError(
            f'No data is given for the domain "{domain.name}": name files, folders, globs or addresses under '
            f'domains.{domain.name}.data, "-" for standard input, or "sample" for the sample that comes with it.'
        )
    inputs = Inputs([], [])
    for entry in entries:
        path = Path(entry).expanduser()
        if entry == SAMPLE:  # a folder of that name is ./sample
            inputs.sample = True
            inputs.files += [InputFile(file, False) for file in domain.sample().files]
        elif entry == STANDARD_INPUT:
            inputs.files.append(InputFile(keep_standard_input(cache), True))
        elif is_address(entry):
            _add_fetched(fetch(entry, cache, say), domain, inputs)
        elif path.is_dir():
            _add_folder(path, domain, inputs)
        elif path.exists():
            inputs.files.append(InputFile(path, True))
        elif glob.has_magic(entry):
            _add_glob(str(path), domain, inputs)
        else:
            raise DataError(f'There is no file or folder "{entry}" (data of the domain "{domain.name}").')
    by_path: dict[Path, InputFile] = {}
    for file in inputs.files:
        known = by_path.setdefault(file.path.resolve(), file)
        if file.named and not known.named:
            by_path[file.path.resolve()] = dataclasses.replace(known, named=True)
    inputs.files = list(by_path.values())
    return inputs


def _add_folder(folder: Path, domain: Domain, inputs: Inputs) -> None:
    files = files_inside(folder)
    known = [path for path in files if domain.reads(path)]
    if not known:
        found = f"it holds {len(files)} files, none of them of a kind it knows" if files else "it is empty"
        raise DataError(
            f'The folder "{folder}" has nothing that the domain "{domain.name}" reads: {found} '
            f"({', '.join(domain.formats)})."
        )
    inputs.files += [InputFile(path, False) for path in known]
    inputs.unknown += sorted(set(files) - set(known))


def files_inside(folder: Path) -> list[Path]:
    """The files of a folder and those below it, sorted; links to folders are followed, hidden names left out."""
    found: list[Path] = []
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if (real := os.path.realpath(place)) in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        found += [path for name in names if not name.startswith(".") and (path := Path(place, name)).is_file()]
    return sorted(found)


def _add_glob(pattern: str, domain: Domain, inputs: Inputs) -> None:
    matches = [Path(match) for match in sorted(glob.glob(pattern, recursive=True))]
    if not matches:
        raise DataError(f'Nothing matches "{pattern}" (data of the domain "{domain.name}").')
    for path in matches:
        if path.is_dir():
            _add_folder(path, domain, inputs)
        else:
            inputs.files.append(InputFile(path, len(matches) == 1))


def _add_fetched(files: list[Path], domain: Domain, inputs: Inputs) -> None:
    known = files if len(files) == 1 else [file for file in files if domain.reads(file)]
    inputs.files += [InputFile(file, len(files) == 1) for file in known]
    inputs.unknown += [file for file in files if file not in known]
