"""Finds domains: the classes that installed packages announce as entry points of ``seqbert.domains``."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import metadata
from typing import Any

from seqbert import config
from seqbert.domain import Domain
from seqbert.errors import DomainError, nearest

GROUP = "seqbert.domains"
"""The entry-point group; a package announces ``NAME = "package.module:Class"`` under it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plugin:
    """A domain that a package announces; nothing is imported until :meth:`load`.

    Attributes:
        name: The domain's name in configs and on the command line.
        package: The distribution that announces it, as pip knows it.
        version: That distribution's version.
        value: Where the class is: ``package.module:Class``.
        rivals: Other distributions that claim the same name; such a domain cannot be loaded.
    """

    name: str
    package: str
    version: str
    value: str
    rivals: tuple[str, ...] = ()

    def load(self) -> type[Domain]:
        """The domain's class.

        Raises:
            DomainError: Two packages claim the name, the import fails, or what it gives is no usable domain.
        """
        if self.rivals:
            packages = " and ".join((self.package, *self.rivals))
            raise DomainError(
                f'The domain name "{self.name}" is claimed by the packages {packages}. Uninstall all but one.'
            )
        try:
            loaded = metadata.EntryPoint(self.name, self.value, GROUP).load()
        except Exception as error:  # a plugin may raise anything while it is imported
            raise self._broken(f"cannot be imported: {_one_line(error)}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, Domain)):
            raise self._broken("is not a subclass of seqbert.domain.Domain")
        if getattr(loaded, "name", None) != self.name:
            raise self._broken(f"calls itself {getattr(loaded, 'name', None)!r}; both names must be the same")
        if inspect.isabstract(loaded):
            raise self._broken(f"lacks the methods {', '.join(sorted(loaded.__abstractmethods__))}")
        if not (isinstance(loaded.Options, type) and dataclasses.is_dataclass(loaded.Options)):
            raise self._broken("has an Options that is not a dataclass")
        return loaded

    def _broken(self, reason: str) -> DomainError:
        return DomainError(
            f'The domain "{self.name}" of the package {self.package} {self.version} ({self.value}) {reason}. '
            f"Mend or uninstall that package."
        )


def plugins() -> dict[str, Plugin]:
    """The domains that installed packages announce, by name, in alphabetical order."""
    found: dict[str, list[Plugin]] = {}
    for point in metadata.entry_points(group=GROUP):  # gives each distribution once, the first on sys.path
        package, version = (point.dist.name, point.dist.version) if point.dist else ("unknown", "unknown")
        found.setdefault(point.name, []).append(Plugin(point.name, package, version, point.value))
    return {
        name: dataclasses.replace(first, rivals=tuple(rival.package for rival in rivals))
        for name, (first, *rivals) in sorted(found.items())
    }


def load(name: str) -> type[Domain]:
    """The class of a domain.

    Raises:
        DomainError: No package announces it, or :meth:`Plugin.load` fails.
    """
    known = plugins()
    if name not in known:
        raise DomainError(
            f'There is no domain "{name}".{nearest(name, known)} Installed: {", ".join(known) or "none"}. '
            "Others come in packages of their own: `pip install PACKAGE` into the environment that seqbert "
            "runs in, and `seqbert domains` shows what it brought."
        )
    return known[name].load()


def listing() -> list[dict[str, Any]]:
    """What ``seqbert domains`` shows of each domain, as plain data.

    Returns:
        A row a domain: ``name``, ``package`` and ``version``; then ``formats`` (file endings and what they
        are), ``symbol``, ``unit`` (with default options; None where some are required) and ``options`` (rows
        of :func:`seqbert.config.field_rows`), or ``error`` where the domain cannot be used.
    """
    return [_row(plugin) for plugin in plugins().values()]


def _row(plugin: Plugin) -> dict[str, Any]:
    row: dict[str, Any] = {"name": plugin.name, "package": plugin.package, "version": plugin.version}
    try:
        domain = plugin.load()
        options = config.field_rows(domain.Options)
        unit = None if any(option["required"] for option in options) else domain().unit
    except Exception as error:  # one broken plugin must not hide the others
        return row | {"error": str(error) if isinstance(error, DomainError) else _one_line(error)}
    return row | {"formats": dict(domain.formats), "symbol": domain.symbol, "unit": unit, "options": options}


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
