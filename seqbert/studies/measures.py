"""The functions that a stage with ``run: measure`` can name.

Each is called with the folder it may write pictures into, the job's seed, and its arguments, and gives rows:
``{"labels": {name: text or number}, "metrics": {name: number}}``. Labels become columns of the study's table, beside
its axes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from seqbert.errors import ConfigError, nearest

Rows = list[dict[str, dict[str, Any]]]

FUNCTIONS = ("parameters", "texts")
"""What there is."""


def measuring_function(name: str) -> Callable[..., Rows]:
    """The function of that name; only the module that it stands in is imported.

    Raises:
        ConfigError: There is none.
    """
    match name:
        case "parameters":
            from seqbert.studies.representations import parameters

            return parameters
        case "texts":
            from seqbert.studies.documents import texts

            return texts
    raise ConfigError(
        f'There is no measuring function "{name}".{nearest(name, FUNCTIONS)} There are: {", ".join(FUNCTIONS)}.'
    )


def check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """Makes sure that a function can be called with these arguments, before anything is run for it.

    Raises:
        ConfigError: One is unknown or missing.
    """
    parameters = list(inspect.signature(measuring_function(name)).parameters.values())[2:]
    known = [parameter.name for parameter in parameters]
    for argument in arguments:
        if argument not in known:
            raise ConfigError(
                f'The function "{name}" takes no "{argument}".{nearest(argument, known)} It takes: {", ".join(known)}.'
            )
    missing = [one.name for one in parameters if one.default is one.empty and one.name not in arguments]
    if missing:
        raise ConfigError(f'The function "{name}" also takes {", ".join(missing)}.')
