"""A model of a run, ready to be asked: weights, tokenizer, and the domain that reads its sequences."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from seqbert import config as config_tree
from seqbert.data.packing import PackedBatch, pack
from seqbert.data.table import TableOptions, find_tables, read_examples
from seqbert.domain import SPECIAL_TOKENS, Domain, Example, Report
from seqbert.errors import ConfigError, DataError
from seqbert.models.encoder import EncoderOutput
from seqbert.models.hub_tokenizer import read_json
from seqbert.models.model import Model
from seqbert.training.device import Device, RunConfig
from seqbert.training.finetune_config import FinetuneConfig
from seqbert.training.parallel import ALONE, World
from seqbert.training.run_folder import RunFolder, TrainedModel
from seqbert.training.trained_model import load_model

SHORTEST = 8
"""Least ``max_length``: two texts of a pair with their special tokens must fit, with something to be seen."""

CPU = Device(torch.device("cpu"), bf16=False, micro_tokens=4096)


@dataclasses.dataclass(slots=True)
class Trained:
    """A trained model with its domain.

    Attributes:
        model: The model, in evaluation mode, on its device.
        domain: The plugin, with the run's options and tokenizer.
        device: Where it computes.
        max_length: Most tokens of the sequences that it was trained on, special tokens included.
        tables: How labelled files are read: as in the run's fine-tuning, if it had one, but without labels.
        task: The task for which they are read.
        run: What the user called it.
    """

    model: Model
    domain: Domain
    device: Device
    max_length: int
    tables: TableOptions
    task: str
    run: str

    @classmethod
    def of_run(cls, run: str | Path, domain: str | None = None, device: Device = CPU) -> Trained:
        """Loads the model of a run, or of one of its domains.

        Raises:
            CheckpointError: if there is no model, or it is unclear which domain is meant.
        """
        loaded = load_model(run, domain, device)
        tables, task = _tables_of(run)
        length = _trained_length(loaded.found, loaded.model)
        return cls(loaded.model, loaded.domain, device, length, tables, task, str(run))

    @classmethod
    def on(
        cls, run: str | Path | Trained, domain: str | None, device: str, precision: str, world: World = ALONE
    ) -> Trained:
        """The model of a run on the device of that name, in that precision; a loaded one as it is.

        Raises:
            CheckpointError: if there is no model, or it is unclear which domain is meant.
            ConfigError: if the device is not there, or the precision is none.
        """
        if isinstance(run, Trained):
            return run
        place = config_tree.load(RunConfig, {"device": device, "precision": precision})
        return cls.of_run(run, domain, Device.of(place, world, trains=False))

    @property
    def heads(self) -> nn.ModuleDict:
        """The heads of the domain's vocabulary."""
        return cast(nn.ModuleDict, self.model.heads[self.domain.name])

    def token_ids(self, *tokens: str) -> list[int]:
        """Ids of tokens as the vocabulary spells them."""
        return [cast(int, self.domain.vocabulary.token_to_id(token)) for token in tokens]

    def window(self, max_length: int | None) -> int:
        """Most tokens of a sequence: as in training, or ``max_length``, which may be longer if the encoder takes it.

        Raises:
            ConfigError: if it is longer than the encoder can take, or too short.
        """
        longest = self.model.config.max_position_embeddings
        if max_length is None:
            return self.max_length
        if not SHORTEST <= max_length <= longest:
            raise ConfigError(
                f"max_length is {max_length}, and for this model it is from {SHORTEST} to {longest}; it was trained on "
                f"sequences of up to {self.max_length} tokens."
            )
        return max_length

    def examples(self, data: str | Path | Sequence[str], options: Sequence[str], report: Report) -> Iterator[Example]:
        """Yields the records of tables, and of any files that the domain reads, as they come.

        Args:
            data: Files, folders or globs.
            options: What is particular about these files: ``["--columns.sequence", "seq"]``.
            report: Is told what became of each record.

        Raises:
            DataError: if a file cannot be read, or has no record that can be used.
            ConfigError: if there is no such option.
        """
        settings = config_tree.load(TableOptions, None, list(options), base=self.tables)
        entries = [str(data)] if isinstance(data, str | Path) else list(data)
        files = find_tables(entries, domain=self.domain)
        return read_examples(files, self.task, settings, self.domain, report, labelled=False)

    def sequence(self, ids: np.ndarray) -> PackedBatch:
        """One sequence between [CLS] and [SEP] as a batch.

        Raises:
            DataError: if it is longer than the encoder can take.
        """
        begin, end = self.token_ids(*SPECIAL_TOKENS[2:4])
        limit = self.model.config.max_position_embeddings - 2
        if len(ids) > limit:
            raise DataError(f"The sequence has {len(ids)} tokens, and this model takes {limit} at most.")
        return pack(self.domain.name, [np.concatenate([[begin], ids, [end]])])

    @torch.inference_mode()
    def hidden(self, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """Hidden states of a batch, ``[tokens, hidden_size]``.

        With ``rows``, those of these tokens alone, ``[rows, hidden_size]``: nothing that they do not need is computed.
        """
        rows = None if rows is None else rows.to(self.device.torch)
        with self.device.autocast():
            return cast(Tensor, self.model.encoder(batch.to(self.device.torch), rows=rows))

    @torch.inference_mode()
    def layers(self, batch: PackedBatch) -> list[Tensor]:
        """The embeddings' output and then each block's, ``[tokens, hidden_size]`` each."""
        with self.device.autocast():
            output = cast(EncoderOutput, self.model.encoder(batch.to(self.device.torch), layers=True))
        return cast("list[Tensor]", output.layers)


def _tables_of(run: str | Path) -> tuple[TableOptions, str]:
    """How files are read as in the run's fine-tuning, and for which task; labels and groups are not looked for.

    Where there was none they are read for a regression: what stands in the label's column is then never refused.
    """
    folder = RunFolder(Path(run))
    if not folder.task.is_file():
        return TableOptions(), "regression"
    config = config_tree.load(FinetuneConfig, folder.config)
    kept = {field.name: getattr(config.data, field.name) for field in dataclasses.fields(TableOptions)}
    columns = dataclasses.replace(config.data.columns, label=None, group=None, start=None, choices=None)
    kept |= {"columns": columns, "label_from": "column", "label_key": None, "label_pattern": None}
    return TableOptions(**kept), "tagging" if config.task.name == "tagging" else "regression"


def _trained_length(found: TrainedModel, model: Model) -> int:
    """Tokens of the longest sequences of training, which the tokenizer's settings name."""
    longest = model.config.max_position_embeddings
    path = found.folder / "tokenizer_config.json"
    named = read_json(path).get("model_max_length") if path.is_file() else None
    return min(longest, named) if isinstance(named, int) and named >= SHORTEST else longest
