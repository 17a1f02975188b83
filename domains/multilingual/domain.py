"""The multilingual domain: text whose documents each have a language."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from domains.multilingual.formats import (
    Kind,
    aligned_lines,
    conllu_records,
    kind_of,
    parallel_rows,
    read_head,
    sections,
    siblings,
    word_records,
)
from domains.multilingual.languages import (
    UNKNOWN,
    Language,
    language_code,
    placed,
    read_tag,
    unplaced,
    usual_script,
)
from domains.multilingual.sample import multilingual_sample
from domains.multilingual.scripts import PHRASES, has_spaces, is_written_in, main_script, script_name, script_of
from domains.multilingual.tables import sample_tables
from domains.text import Text
from domains.text.domain import TextOptions
from domains.text.readers import Record
from seqbert.data.compressed import without_compression
from seqbert.data.content import describe
from seqbert.domain import SPECIAL_TOKENS, Balance, Document, Report, Sample
from seqbert.errors import ConfigError, DataError, nearest

_WITHIN = {"table": ("csv", "tsv", "jsonl", "parquet"), "lines": ("text",)}  # formats that may be named for these
_LAST_BYTE = "\u0123"  # 0x81, as byte-level BPE spells it
_HAN = ("Hans", "Hant")
_LANGUAGE_FIELDS = ("language", "lang")
_SCRIPT_FROM = 20_000  # characters of a document that tell its script
_MOST_IDS = 1 << 20  # of a file that are looked through for one that stands twice
_REPEATED = "alignment ids that stood in the file before: the later document stands alone"


@dataclasses.dataclass
class MultilingualOptions(TextOptions):
    """What text is read, how it is spelled, and how its languages are told, aligned and balanced."""

    lowercase: bool = False
    """Lower-case the text. Off, as in cased multilingual BERT: languages differ in what case tells."""

    language: str | None = None
    """The language of all documents, such as "de" or "zh-Hant"; null: told from each document or its file."""

    language_field: str | None = None
    """The field or column that holds a document's language tag, else "language" does; null: "language" or "lang"."""

    unknown: Literal["keep", "skip"] = "keep"
    """What becomes of a document whose language is not told: kept as "und", or skipped. Counted either way."""

    columns: dict[str, str | int] = dataclasses.field(default_factory=dict)
    """The columns of a parallel table by language: {en: 0, de: 1}, or names. Numbers alone, from 0: the table has no
    header. Empty: a table is parallel where its header is language tags, or where it has a field "translation"."""

    align: Literal["none", "line", "section"] = "none"
    """What files that differ only in the language have in common: their line numbers (one document a line), or
    the order of their headings (one document a section). Another number of lines or sections is an error."""

    alignment: list[str] = dataclasses.field(default_factory=list)
    """Fields whose values together are the alignment id of a document, such as [document, paragraph]."""

    group_by: Literal["language", "script"] = "language"
    """What sampling is smoothed over and figures are given by: the language, or the language and its script
    ("sr-Cyrl" and "sr-Latn", "zh-Hans" and "zh-Hant")."""

    smoothing: float = 0.7
    """The power that a group's share is raised to in sampling: 1 leaves the shares, 0 makes them equal.
    0.7 as in multilingual BERT; XLM-R took 0.3."""


class Multilingual(Text):
    """Text in many languages.

    Each document's metadata "language" is the shortest ISO 639 code of its language, or "und", from the
    first of: the option ``language``, a field of the record (``language_field``), the HTML attribute
    ``lang``, the file's name (``eng.html``, ``news.de.txt``), its folder's name (``de/news.txt``). "script"
    is the ISO 15924 code of its script, "tag" the whole BCP 47 tag where it says more, and "alignment" is
    equal for translations of one another. Accents and case are kept.
    """

    name: ClassVar[str] = "multilingual"
    Options: ClassVar[type] = MultilingualOptions
    formats: ClassVar[Mapping[str, str]] = {
        **Text.formats,
        ".conllu": "CoNLL-U: sentences as # text has them; a parallel_id aligns them",
        ".bio": "words and their tags, a word a line, as in WikiANN: read as sentences",
    }
    version: ClassVar[str] = "2"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        options = self.options
        if not 0 <= options.smoothing <= 1:
            raise ConfigError(
                f"The option smoothing of the domain {self.name} is {options.smoothing}: give a power "
                "from 0 (every language alike) to 1 (as the data is)."
            )
        named = {} if options.language is None else {options.language: "language"}
        for tag, option in (named | dict.fromkeys(options.columns, "columns")).items():
            if (problem := read_tag(tag)[1]) or read_tag(tag)[0] is None:
                raise ConfigError(
                    f'The option {option} of the domain {self.name} names the language "{tag}", and there is no such '
                    f'language: {problem}. Give a tag of BCP 47 such as "de" or "zh-Hant"'
                    f"{', or null to tell it from the file' if option == 'language' else ''}."
                )
        if options.align != "none" and options.alignment:
            raise ConfigError(
                f'The options align ("{options.align}") and alignment ({", ".join(options.alignment)}) of the domain '
                f"{self.name} both say what makes documents translations of one another: give one of them."
            )

    @property
    def balance(self) -> Balance:
        """Sampling is smoothed over the language, or over the language and its script."""
        return Balance("language" if self.options.group_by == "language" else "variety", self.options.smoothing)

    def separates_words(self, group: str) -> bool:
        """Whether a language puts spaces between words: not Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan."""
        return has_spaces(usual_script(group))

    def token_kinds(self) -> list[str]:
        """The script of each entry's letters, by name; "no letters" for digits and marks, "special" for those."""
        vocabulary = self.vocabulary
        kinds = []
        for number in range(vocabulary.get_vocab_size()):
            text = vocabulary.decode([number], skip_special_tokens=True)
            if vocabulary.id_to_token(number) in SPECIAL_TOKENS:
                kinds.append("special")
            elif "\ufffd" in text:
                kinds.append("parts of a character")
            else:
                script = main_script(text)
                kinds.append(script_name(script) if script else "no letters")
        return kinds

    def begins_unit(self, token: str) -> bool:
        """Words are masked together; but in scripts that put no space between them, each token is by itself.

        There a run of letters is a phrase, which no context tells whole: Thai, Lao, Khmer, Burmese, hiragana.
        """
        decode = self.vocabulary.decoder.decode
        spelled = decode([token])
        if "\ufffd" in spelled:  # a character's first bytes, in byte-level BPE: with a last one they tell its script
            spelled = decode([token + _LAST_BYTE])
        return super().begins_unit(token) or any(script_of(letter) in PHRASES for letter in spelled)

    def reads(self, path: Path) -> bool:
        """Whether a file met in a folder holds text: by its ending (which may be a language) or by its content."""
        if self._kind(path) is not None or super().reads(path):
            return True
        code = without_compression(path).suffix.removeprefix(".")
        return 2 <= len(code) <= 3 and language_code(code) is not None and describe(read_head(path)) == "plain text"

    def records(self, path: Path, report: Report) -> Iterator[Record]:
        """The documents of a file before they are cut into sentences, with their language and alignment id."""
        alignment = _Alignment(self.options.alignment)
        for record in self._unlabelled(path, report):
            language = self._language(record, path, report)
            if language is None and self.options.unknown == "skip":
                report.skipped(record.source, "a document of unknown language")
                continue
            alignment.complete(record, report)
            text = "".join(block.text for block in record.blocks)[:_SCRIPT_FROM]
            record.metadata |= self._described(language, text, report)
            yield record
        alignment.check(path)

    def sentence_language(self, record: Record) -> str:
        """The record's own language."""
        return record.metadata["language"]

    def sample(self) -> Sample:
        """Names of countries, languages, currencies and scripts in many languages, from pycountry."""
        sample = multilingual_sample(self.canonical)

        def documents() -> Iterator[Document]:
            assert sample.documents is not None
            for document in sample.documents():
                language, _ = read_tag(document.metadata.pop("tag"))
                document.metadata |= self._described(language, " ".join(document.segments), Report())
                yield document

        version = f"{sample.version}-{self.version}"
        return dataclasses.replace(sample, documents=documents, version=version, tables=sample_tables(self))

    def _kind(self, path: Path) -> Kind | None:
        options = self.options
        kind = kind_of(path, read_head(path), options.columns, options.align == "line")
        return kind if options.format in ("auto", *_WITHIN.get(kind or "", ())) else None

    def _unlabelled(self, path: Path, report: Report) -> Iterator[Record]:
        """The documents of a file as its format gives them."""
        found = placed(path)
        rest = found.rest if found else unplaced(path)
        whole = self.options.sentence_per_line
        encoding = self.options.encoding
        match self._kind(path):
            case "conllu":
                yield from conllu_records(path, encoding, bool(self.options.alignment), report)
            case "words":
                yield from word_records(path, encoding, report)
            case "table":
                yield from parallel_rows(path, self.options.columns, rest, encoding, whole, report)
            case "lines":
                yield from aligned_lines(path, rest, encoding, whole, report)
            case _ if self.options.align == "section":
                mine = self._sections(path, rest, report)
                files = siblings(path, rest)
                other = files[(files.index(path) + 1) % len(files)]
                if len(mine) != (its := len(self._sections(other, rest, Report()))):
                    raise DataError(
                        f"{path} has {len(mine)} sections and {other} has {its}: their headings do not say what "
                        'belongs together. Mend them, or set align to "none" to read them as texts of their own.'
                    )
                yield from mine
            case _:
                yield from super().records(path, report)

    def _sections(self, path: Path, rest: str, report: Report) -> list[Record]:
        pages = list(super().records(path, report))
        return [part for page in pages for part in sections(page, rest if len(pages) == 1 else f"{rest}/{page.id}")]

    def _language(self, record: Record, path: Path, report: Report) -> Language | None:
        """The language of a record. If one is declared that is none, it is unknown: the file is not asked."""
        named = self.options.language_field
        fields = _LANGUAGE_FIELDS if named is None else (named, *_LANGUAGE_FIELDS[:1])
        declared = self.options.language or next(filter(None, map(record.metadata.get, fields)), None)
        found = placed(path)
        if not declared:
            if found is None:
                report.tally("documents of unknown language: nothing tells it", source=record.source)
            return found.language if found else None
        language, problem = read_tag(declared)
        if language is None:
            report.tally(f"documents of unknown language: {problem}", source=record.source, detail=f'"{declared}"')
            return None
        if problem:
            report.tally(f"{problem}: the part before it counts", source=record.source, detail=f'"{declared}"')
        if found and found.language.code == language.code and found.language.script and not language.script:
            return found.language  # cmn_hans.html says more than its lang="zh"
        return language

    def _described(self, language: Language | None, text: str, report: Report) -> dict[str, str]:
        """Metadata of a document: its language, script, and whole tag where that says more."""
        letters = main_script(text)
        said = language.script if language else ""
        usual = said or (usual_script(language.code) if language else "")
        script = letters or usual
        # Unicode does not tell simplified from traditional Chinese: a tag does, or nothing.
        if usual and is_written_in(usual, letters) and (said or usual not in _HAN):
            script = usual
        if language and usual and letters and not is_written_in(usual, letters):
            report.note("documents in another script than their language tag says, or than is usual for it")
        code = language.code if language else UNKNOWN
        metadata = {"language": code}
        if script:
            metadata["script"] = script
        if language and language.tag != code:
            metadata["tag"] = language.tag
        if self.options.group_by == "script":
            metadata["variety"] = f"{code}-{script}" if script else code
        return metadata


class _Alignment:
    """Sets alignment ids from fields, and takes one off that stood in the file before."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._seen: set[int] = set()
        self._lacking: list[str] | None = None
        self._found = False

    def complete(self, record: Record, report: Report) -> None:
        """Sets the id of a record that has all the fields, and tells the report of those that are not unique."""
        metadata = record.metadata
        if self.names:
            fields = {"id": record.id, **metadata}
            values = [fields[name] for name in self.names if name in fields]
            metadata.pop("alignment", None)
            if len(values) < len(self.names):
                report.note("documents without a field that the option alignment names")
                self._lacking = self._lacking or (sorted(fields) if metadata else None)
                return
            self._found = True
            metadata["alignment"] = "/".join(value.replace("/", "%2F") for value in values)
        if "alignment" not in metadata:
            return
        if len(self._seen) >= _MOST_IDS:
            report.note("documents whose alignment id was not compared with the file's first 1,048,576")
            return
        key = hash((metadata["alignment"], metadata.get("language")))
        if key in self._seen:
            report.tally(_REPEATED, source=record.source, detail=f'"{metadata.pop("alignment")}"')
        self._seen.add(key)

    def check(self, path: Path) -> None:
        """Raises DataError where the records of a file have fields, but none has all that are named."""
        if self._lacking and not self._found:
            wrong = next(name for name in self.names if name not in self._lacking)
            raise DataError(
                f'{path} has no field "{wrong}", which the option alignment names; its documents have '
                f"{', '.join(self._lacking)}.{nearest(wrong, self._lacking)}"
            )
