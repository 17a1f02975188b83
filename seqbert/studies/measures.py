"""The functions that a stage with ``run: measure`` can name.

Each is called with the folder it may write pictures into, the job's seed, and its arguments, and gives rows:
``{"labels": {name: text or number}, "metrics": {name: number}}``. Labels become columns of the study's table, beside
its axes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from seqbert.errors import ConfigError, nearest

Rows = list[dict[str, dict[str, Any]]]

PLACES = {
    "parameters": "seqbert.studies.representations:parameters",
    "texts": "seqbert.studies.documents:texts",
}
"""Where each function is, so that only the one that is asked for is imported."""


def measuring_function(name: str) -> Callable[..., Rows]:
    """The function of that name.

    Raises:
        ConfigError: There is none.
    """
    if name not in PLACES:
        raise ConfigError(
            f'There is no measuring function "{name}".{nearest(name, PLACES)} There are: {", ".join(PLACES)}.'
        )
    module, _, attribute = PLACES[name].partition(":")
    function: Callable[..., Rows] = getattr(importlib.import_module(module), attribute)
    return function


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
