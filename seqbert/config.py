"""Reads, overrides, checks and writes config trees.

One tree of dataclasses, the schema, is the YAML file, the command line and the Python call. Its fields are
scalars, paths, literals, lists, mappings and further dataclasses. What else a schema can say:

* ``X | None`` around a dataclass is a section that ``null`` switches off.
* ``AdamW | Muon`` is a section of one of several kinds, told apart by its key ``name``, which each of the
  dataclasses declares as a ``Literal``.
* A classmethod ``field_types(key, data)`` gives the types of fields that depend on the config itself, such as
  the options of a plugin. ``key`` is the last part of the section's path, ``data`` its values as far as they
  are given or have defaults. A field whose type turns out to be a dataclass may be left out or null: it is
  then built from the defaults of that dataclass.
* ``__post_init__`` checks ranges and raises ``ValueError`` or a :class:`~seqbert.errors.SeqbertError`, to
  which the place in the file is added. A message begins best with a field's name: "steps must be positive".

A key that is left out has the value that the Python constructor gives it. No unknown key is passed over.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import yaml

from seqbert.errors import ConfigError, SeqbertError, nearest

Schema = TypeVar("Schema")

_ABSENT = dataclasses.MISSING
_COMMAND_LINE = "command line"
_MAPPINGS = (dict, Mapping)
_LARGEST_FILE = 1 << 18  # bytes; what is larger is data, given by mistake
_MOST_VALUES = 200_000
_WORDS: dict[Any, str] = {
    Any: "any value",
    NoneType: "null",
    bool: "true or false",
    float: "number",
    int: "whole number",
    Path: "path",
    str: "text",
}


def load(
    schema: type[Schema],
    source: str | Path | Mapping[str, Any] | Schema | None = None,
    overrides: Sequence[str] = (),
    *,
    base: Schema | None = None,
) -> Schema:
    """Reads a config, lays the command line's values over it, and checks every key and value.

    Args:
        schema: The dataclass at the root; one without ``slots``, since notes become attributes of it.
        source: A file, the name of a shipped config (see :func:`find`), a mapping, or an instance of the
            schema that is to be checked. None: nothing but defaults.
        overrides: What the command line says: ``["--training.steps", "50", "--run.precision=fp32"]``. A value
            is read as its key's type asks for. Several values after one key are a list, and one value where a
            list is expected is a list of one. ``{...}`` takes the place of the whole section.
        base: Where keys that are given nowhere are taken from, in place of the schema's defaults.

    Returns:
        An instance of ``schema``. Top-level keys that begin with ``x_`` are the user's own notes: they become
        attributes of it, and :func:`dump` writes them back.

    Raises:
        SeqbertError: A file that is no config, a key that is unknown, missing or given twice, a value of the
            wrong type or out of range. The message names file, line and column, and the nearest key that
            exists. It is a :class:`~seqbert.errors.ConfigError`, unless the schema's own ``field_types`` or
            ``__post_init__`` raised another kind.
    """
    if source is None:
        root = _Node({})
    else:
        root = _read(find(source)) if isinstance(source, str | Path) else _from_python(to_dict(source))
    for key, value in _parse(overrides):
        _lay(root, key, value)
    notes = {key: _plain(root.value.pop(key)) for key in list(root.value) if key.startswith("x_")}
    default = copy.deepcopy(base)
    config: Schema = _Reader(schema, root).section(root, schema, "", default)
    for key, note in (_notes(default) | notes).items():
        object.__setattr__(config, key, note)  # also where the dataclass is frozen
    return config


def find(name: str | Path) -> Path:
    """The file of a config: ``name`` itself if that is a file, else the shipped config of that name.

    Raises:
        ConfigError: There is neither; the nearest shipped names are given.
    """
    path, shipped = Path(name), _shipped()
    if path.is_file():
        return path
    if str(name).removesuffix(".yaml") in shipped:
        return shipped[str(name).removesuffix(".yaml")]
    if path.is_dir():
        inside = f" Do you mean {path / 'config.yaml'}?" if (path / "config.yaml").is_file() else ""
        raise ConfigError(f"{path} is a folder, and a config is a YAML file.{inside}")
    names = f" The shipped configs are: {', '.join(shipped)}." if shipped else ""
    raise ConfigError(f'There is no config file "{name}".{nearest(str(name), shipped)}{names}')


def dump(config: Any) -> str:
    """The whole tree as YAML, in the order of declaration; :func:`load` reads an equal instance from it.

    The same config gives the same bytes.
    """
    return str(yaml.dump(to_dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def to_dict(config: Any) -> dict[str, Any]:
    """The whole tree as plain data that JSON and YAML can hold, the user's notes last."""
    tree: dict[str, Any] = _to_plain(config)
    notes: dict[str, Any] = _to_plain(_notes(config))
    return tree | notes


def difference(old: Any, new: Any) -> list[str]:
    """What differs between two configs, key by key: ``["training.steps: 100 -> 200"]``.

    Args:
        old: An instance of a schema, or a tree from :func:`to_dict`.
        new: The same. The user's notes are not compared.
    """
    before, after = (dict(_leaves(_to_plain(tree), "")) for tree in (old, new))
    return [
        f"{key}: {_shown(before.get(key, _ABSENT))} -> {_shown(after.get(key, _ABSENT))}"
        for key in before | after
        if before.get(key, _ABSENT) != after.get(key, _ABSENT)
    ]


def field_help(schema: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, on one line; fields without one are left out."""
    documented: dict[str, str] = {}
    for owner in filter(dataclasses.is_dataclass, reversed(schema.__mro__)):
        try:
            definition = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        except (OSError, TypeError, SyntaxError):  # no source text, as for a class typed into a prompt
            continue
        for field, below in itertools.pairwise(cast(ast.ClassDef, definition).body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    documented[name] = " ".join(text.split())
    return documented


def field_rows(schema: type, default: Any = None) -> list[dict[str, Any]]:
    """What there is to know of each field of a dataclass, for help and listings.

    Args:
        schema: The dataclass.
        default: An instance of it whose values are the defaults; None: those of the class.

    Returns:
        A row a field: ``name``, ``type`` in words, ``required``, ``default`` as plain data, and ``help``.
    """
    about, types, rows = field_help(schema), _types(schema), []
    for field in _fields(schema):
        value = _default(field, schema, default)
        row = {"name": field.name, "type": type_text(types[field.name]), "required": value is _ABSENT}
        plain = None if value is _ABSENT else _to_plain(value)
        rows.append({**row, "default": plain, "help": about.get(field.name, "")})
    return rows


def render_help(schema: type, width: int = 110) -> str:
    """Every key of a schema as the command line takes it, with its type, what it is for and its default."""
    return "\n".join(_help_section(schema, "", None, width)).strip("\n") + "\n"


def type_text(kind: Any) -> str:
    """A type in the words of messages and help.

    >>> type_text(float | str), type_text(list[int]), type_text(Literal["cls", "mean"] | None)
    ('number or text', 'list of whole number', 'cls|mean or null')
    """
    members, sections = _members(kind), _sections(kind)
    if len(members) > 1:
        tags = f" with name: {'|'.join(_variants(sections))}" if len(sections) > 1 else ""
        others = [type_text(member) for member in members if member not in sections]
        return " or ".join([f"section{tags}"] * bool(sections) + others)
    kind, origin, inner = members[0], _origin(members[0]), get_args(members[0])
    if sections:
        return "section"
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin is tuple and inner and Ellipsis not in inner:
        return f"list of {len(inner)}: {', '.join(map(type_text, inner))}"
    if origin in (list, tuple):
        return f"list of {type_text(inner[0])}" if inner else "list"
    if origin in _MAPPINGS:
        return f"mapping of names to {type_text(inner[1])}" if inner else "mapping"
    return _WORDS.get(kind, str(getattr(kind, "__name__", kind)))


# What was written: a tree of nodes that remember their place and spelling


@dataclasses.dataclass(slots=True)
class _Node:
    """A value as the user wrote it.

    Attributes:
        value: ``dict[str, _Node]``, ``list[_Node]``, or a scalar.
        where: ``file:line:column`` of its key, or where else it comes from; empty for a Python value.
        text: Its spelling, if it is not quoted: where text is expected, ``010`` and ``1e-3`` are text.
    """

    value: Any
    where: str = ""
    text: str | None = None

    def error(self, path: str, message: str, kind: type[SeqbertError] = ConfigError) -> SeqbertError:
        return kind(": ".join(part for part in (self.where, path, message) if part))


class _Loader(yaml.SafeLoader):
    """YAML without repeated keys and with the scalars of version 1.2: ``1e-3`` is a number, ``no`` a word."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (as PyYAML declares it)

    values = 0  # that were met so far, each as often as aliases repeat it

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _yaml_error("a key must be a word", key.start_mark)
            if key.value in lines:
                problem = f'the key "{key.value}" is given twice, first in line {lines[key.value]}'
                raise _yaml_error(problem, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        self.flatten_mapping(node)
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or :class:`_Loader` would read as something else; writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        rare_break = re.search("[\x85\u2028\u2029]", text)  # YAML reads it as a space unless it is escaped
        return self.represent_scalar("tag:yaml.org,2002:str", text, style='"' if rare_break else None)


_Dumper.add_representer(str, _Dumper.represent_text)

for _class in (_Loader, _Dumper):
    for _tag, _pattern in (
        ("null", r"~|null|Null|NULL|"),
        ("bool", r"true|True|TRUE|false|False|FALSE"),
        ("int", r"[-+]?(0|[1-9][0-9_]*)"),
        ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.inf"),
        ("merge", r"<<"),
    ):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^({_pattern})\Z"), None)


def _read(path: Path) -> _Node:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConfigError(f"{path} is larger than any config; it is probably a file of data.")
        root = _compose(path.read_bytes().decode("utf-8-sig"), str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, yaml.reader.ReaderError) as error:
        raise ConfigError(f"{path} is not text; a config is a YAML file in UTF-8.") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply to be a config.") from error
    except yaml.MarkedYAMLError as error:
        place = f"{path}{_place(error.problem_mark or error.context_mark)}"
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{place}: this YAML cannot be read: {reason}.") from error
    if root is None:
        raise ConfigError(f"{path} is empty; a config holds keys and values, such as `seed: 0`.")
    if not isinstance(root.value, dict):
        raise ConfigError(f"{path} is no config: it does not hold keys and values, such as `seed: 0`.")
    return root


def _compose(text: str, file: str = "") -> _Node | None:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _from_yaml(loader, node, file, node.start_mark, ())
    finally:
        loader.dispose()


def _from_yaml(loader: _Loader, node: yaml.Node, file: str, mark: Any, above: tuple[yaml.Node, ...]) -> _Node:
    if any(node is outer for outer in above):
        raise _yaml_error("an alias stands inside its own anchor", mark)
    loader.values += 1
    if loader.values > _MOST_VALUES:  # a few lines of aliases to aliases can stand for more than any memory holds
        raise _yaml_error(f"with what its aliases repeat it holds more than {_MOST_VALUES:,} values", mark)
    where, above = f"{file}{_place(mark)}" if file else _COMMAND_LINE, (*above, node)
    match node:
        case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
            pairs = ((key.value, item, key.start_mark) for key, item in node.value)
            return _Node({key: _from_yaml(loader, item, file, at, above) for key, item, at in pairs}, where)
        case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
            return _Node([_from_yaml(loader, item, file, item.start_mark, above) for item in node.value], where)
        case yaml.ScalarNode(tag=tag) if tag.rpartition(":")[2] in ("str", "null", "bool", "int", "float"):
            with contextlib.suppress(ValueError, KeyError):  # a tag that is given and does not suit the value
                return _Node(loader.construct_object(node), where, node.value if node.style is None else None)
    raise _yaml_error(f"the tag {node.tag} does not fit here", mark)


def _yaml_error(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _place(mark: Any) -> str:
    return f":{mark.line + 1}:{mark.column + 1}"


def _from_python(value: Any) -> _Node:
    if isinstance(value, dict):
        return _Node({key: _from_python(item) for key, item in value.items()})
    return _Node([_from_python(item) for item in value] if isinstance(value, list) else value)


# The command line


def _parse(arguments: Sequence[str]) -> Iterator[tuple[str, _Node]]:
    given: dict[str, list[str]] = {}
    values: list[str] | None = None
    for argument in arguments:
        if re.match(r"--[A-Za-z_]", argument):
            key, equals, value = argument[2:].partition("=")
            if key in given:
                raise ConfigError(f"{_COMMAND_LINE}: --{key} is given twice.")
            values = given[key] = [value] if equals else []
        elif values is None:
            raise ConfigError(f'{_COMMAND_LINE}: "{argument}" belongs to no key; write --key {argument}.')
        else:
            values.append(argument)
    for key, values in given.items():
        if not values:
            raise ConfigError(f"{_COMMAND_LINE}: --{key} needs a value.")
        nodes = [_parse_value(key, value) for value in values]
        yield key, nodes[0] if len(nodes) == 1 else _Node(nodes, _COMMAND_LINE)


def _parse_value(key: str, text: str) -> _Node:
    """A value as YAML, or the bare text where it is none, such as ``*.fasta``."""
    bare = _Node(text, _COMMAND_LINE, text)
    if text == "-":  # standard input, and not a list that holds nothing
        return bare
    try:
        node = _compose(text)
    except (yaml.YAMLError, RecursionError) as error:
        if text[:1] + text[-1:] not in ("[]", "{}"):
            return bare
        reason = getattr(error, "problem", None) or "it is nested too deeply"
        raise ConfigError(f"{_COMMAND_LINE}: --{key}: the YAML {text} cannot be read: {reason}.") from error
    if node is None:
        return _Node(None, _COMMAND_LINE)
    if isinstance(node.value, dict | list):
        return dataclasses.replace(node, text=text)
    cut = node.text is not None and node.text != text.strip()  # YAML takes what follows " #" for a comment
    return bare if cut else node


def _lay(root: _Node, key: str, value: _Node) -> None:
    *sections, last = key.split(".")
    here = root.value
    for name in sections:
        if name not in here or not isinstance(here[name].value, dict):
            here[name] = _Node({}, value.where)
        here = here[name].value
    here[last] = value


# From nodes to instances of the schema


class _Reader:
    """Turns the nodes of one config into instances of its schema."""

    def __init__(self, schema: type, root: _Node) -> None:
        self.schema, self.root = schema, root
        self.siblings: dict[str, list[str]] = {}

    def section(self, node: _Node, schema: type, path: str, default: Any) -> Any:
        """An instance of ``schema``; what ``node`` leaves out comes from ``default`` if that is one too."""
        fallback = {field.name: _default(field, schema, default) for field in _fields(schema)}
        for key, child in node.value.items():
            if key not in fallback:
                hint = self.hint(key, path, list(fallback))
                raise child.error("", f'there is no key "{_join(path, key)}".{hint}')
        types, varying = _types(schema), self.varying(node, schema, path, fallback)
        values, missing = {}, []
        for name, otherwise in fallback.items():
            child, kind = node.value.get(name), varying.get(name, types[name])
            if name in varying and dataclasses.is_dataclass(kind) and (child is None or child.value is None):
                child = _Node({}, node.where)
            if child is not None:
                values[name] = self.value(child, kind, _join(path, name), otherwise)
            elif otherwise is _ABSENT:
                missing.append(f'"{_join(path, name)}" ({type_text(kind)})')
            else:
                values[name] = otherwise
        if missing:
            raise node.error("", f"missing key{'s' * (len(missing) > 1)}: {', '.join(missing)}.")
        try:
            return schema(**values)
        except (ValueError, SeqbertError) as error:
            kind = type(error) if isinstance(error, SeqbertError) else ConfigError
            name = str(error).partition(" ")[0]
            if name in fallback:
                raise node.value.get(name, node).error("", _join(path, str(error)), kind) from error
            raise node.error(path, str(error), kind) from error

    def varying(self, node: _Node, schema: type, path: str, fallback: Mapping[str, Any]) -> Mapping[str, Any]:
        """The types of fields that depend on the config."""
        try:
            return _varying(node.value, schema, path, fallback)
        except SeqbertError as error:
            siblings = self.siblings.get(path, []) if node.where == _COMMAND_LINE else []
            others = f" This config has: {', '.join(siblings)}." if siblings else ""
            raise node.error(path, f"{error}{others}", type(error)) from error

    def value(self, node: _Node, kind: Any, path: str, default: Any) -> Any:
        """The value of one key, as its type asks for."""
        members = _members(kind)
        if Any in members:
            return _plain(node)
        if isinstance(node.value, dict):
            sections = _sections(kind)
            if sections:
                return self.section(node, self.variant(node, sections, path, default), path, default)
            for member in members:
                if _origin(member) in _MAPPINGS:
                    return self.mapping(node, member, path, default)
        lists = [member for member in members if _origin(member) in (list, tuple)]
        if isinstance(node.value, list) and lists:
            return self.items(node, lists[0], path)
        for member in sorted(members, key=lambda member: _rank(member, node.value)):
            scalar = _scalar(node, member)
            if scalar is not _ABSENT:
                return scalar
        if lists and node.value is not None:
            return self.items(_Node([node], node.where), lists[0], path)
        choices = [choice for member in members if _origin(member) is Literal for choice in get_args(member)]
        hint = nearest(_found(node), map(str, choices))
        raise node.error(path, f"expected {type_text(kind)}, found {_found(node)}.{hint}")

    def variant(self, node: _Node, sections: list[type], path: str, default: Any) -> type:
        """Which of several dataclasses a section is, by its ``name``."""
        if len(sections) == 1:
            return sections[0]
        named, tag = _variants(sections), node.value.get("name")
        if tag is None and type(default) in sections:
            return type(default)
        found = "nothing" if tag is None else str(tag.value)
        if found not in named:
            expected = f"expected {'|'.join(named)}, found {found}.{nearest(found, named)}"
            raise (tag or node).error(_join(path, "name"), expected)
        return named[found]

    def mapping(self, node: _Node, kind: Any, path: str, default: Any) -> dict[str, Any]:
        """A mapping with keys of the user's own; those of ``default`` stay."""
        values: dict[str, Any] = dict(default) if isinstance(default, Mapping) else {}
        names = [*values, *(key for key in node.value if key not in values)]
        for key, child in node.value.items():
            below = _join(path, key)
            self.siblings[below] = [name for name in names if name != key]
            values[key] = self.value(child, (get_args(kind) or (str, Any))[1], below, values.get(key, _ABSENT))
        return values

    def items(self, node: _Node, kind: Any, path: str) -> Any:
        """A list, or a tuple of any length or of a fixed one."""
        kinds = get_args(kind) or (Any, Ellipsis)
        if _origin(kind) is list or Ellipsis in kinds:
            kinds = kinds[:1] * len(node.value)
        if len(kinds) != len(node.value):
            raise node.error(path, f"expected {type_text(kind)}, found {len(node.value)} values.")
        items = enumerate(zip(node.value, kinds, strict=True))
        return _origin(kind)(self.value(item, inner, f"{path}[{i}]", _ABSENT) for i, (item, inner) in items)

    def hint(self, key: str, path: str, names: list[str]) -> str:
        """Where an unknown key belongs: in another section, under a similar name, or else what there is."""
        tree = list(_tree(self.schema, self.root, ""))
        elsewhere = [title or "the top level" for title, _, known in tree if key in known]
        if elsewhere:
            return f' "{key}" belongs under {" or ".join(elsewhere)}.'
        close = nearest(key, names)
        similar = [_join(other, name) for _, other, known in tree for name in known if nearest(key, [name])]
        if similar and not close:
            close = f' Did you mean "{similar[0]}"?'
        notes = "" if path else " A note of your own begins with x_."
        return close or f" The keys here are: {', '.join(names)}.{notes}"


def _scalar(node: _Node, kind: Any) -> Any:
    value = node.value
    text = value if isinstance(value, str) else node.text
    if _origin(kind) is Literal:
        for choice in get_args(kind):
            written = text if isinstance(choice, str) else value
            if written == choice and type(written) is type(choice):
                return choice
    elif kind in (str, Path):
        return _ABSENT if value is None or text is None else kind(text)
    elif kind in (bool, NoneType):
        return value if type(value) is kind else _ABSENT
    elif kind is int and (type(value) is int or (type(value) is float and value.is_integer())):
        return int(value)
    elif kind is float and type(value) in (int, float) and value == value:  # NaN differs from itself
        with contextlib.suppress(OverflowError):
            return float(value)
    return _ABSENT


def _rank(member: Any, value: Any) -> int:
    """The order in which the members of a union are tried: what fits closely before what takes anything."""
    if _origin(member) is Literal:
        return 0
    return 1 if member is type(value) else 3 if member in (str, Path) else 2


# The shape of a schema


def _members(kind: Any) -> list[Any]:
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [inner for member in get_args(kind) for inner in _members(member)]
    return [kind]


def _origin(kind: Any) -> Any:
    return get_origin(kind) or kind


def _sections(kind: Any) -> list[type]:
    return [cast(type, member) for member in _members(kind) if dataclasses.is_dataclass(member)]


def _variants(sections: Sequence[type]) -> dict[str, type]:
    """The dataclasses of a union by the values that their ``name`` may have."""
    return {str(tag): section for section in sections for tag in get_args(_types(section)["name"])}


def _types(schema: type) -> dict[str, Any]:
    return get_type_hints(schema, include_extras=True)


def _varying(given: Mapping[str, _Node], schema: Any, path: str, fallback: Mapping[str, Any]) -> Mapping[str, Any]:
    if not hasattr(schema, "field_types"):
        return {}
    data = {name: value for name, value in fallback.items() if value is not _ABSENT}
    data |= {name: _plain(child) for name, child in given.items()}
    types: Mapping[str, Any] = schema.field_types(path.rpartition(".")[2], data)
    return types


def _fields(schema: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(schema) if field.init]


def _default(field: dataclasses.Field[Any], schema: type, default: Any) -> Any:
    if type(default) is schema:
        return getattr(default, field.name)
    return field.default if field.default_factory is _ABSENT else field.default_factory()


def _below(kind: Any, path: str, node: _Node | None = None) -> Iterator[tuple[str, type, dict[str, _Node]]]:
    """The sections that a key may hold: path (NAME is a key of the user's own), dataclass, what is given."""
    given = node.value if node is not None and isinstance(node.value, dict) else {}
    for member in _members(kind):
        if dataclasses.is_dataclass(member):
            yield path, cast(type, member), given
        elif _origin(member) in _MAPPINGS and get_args(member):
            for key in given or ("NAME",):
                yield from _below(get_args(member)[1], _join(path, key), given.get(key))


def _tree(kind: Any, node: _Node | None, path: str) -> Iterator[tuple[str, str, list[str]]]:
    """Every section that a config may have, as far as its values tell: title, path and keys."""
    for here, schema, given in _below(kind, path, node):
        tag = f" with name: {'|'.join(_variants([schema]))}" if len(_sections(kind)) > 1 else ""
        types, fallback = (
            _types(schema),
            {field.name: _default(field, schema, None) for field in _fields(schema)},
        )
        yield here + tag, here, list(fallback)
        with contextlib.suppress(SeqbertError):
            types |= _varying(given, schema, here, fallback)
        for name in fallback:
            yield from _tree(types[name], given.get(name), _join(here, name))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shipped() -> dict[str, Path]:
    package = Path(__file__).parent
    for root in (package / "configs", package.parent / "configs"):  # in a wheel, in a checkout
        files = sorted(root.rglob("*.yaml"))
        if files:
            return {file.relative_to(root).with_suffix("").as_posix(): file for file in files}
    return {}


# Plain data, messages and help


def _plain(node: _Node) -> Any:
    if isinstance(node.value, dict):
        return {key: _plain(child) for key, child in node.value.items()}
    return [_plain(item) for item in node.value] if isinstance(node.value, list) else node.value


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _to_plain(getattr(value, field.name)) for field in _fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _notes(config: Any) -> dict[str, Any]:
    return {key: value for key, value in getattr(config, "__dict__", {}).items() if key.startswith("x_")}


def _leaves(tree: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, _join(path, key))
        elif path or not key.startswith("x_"):
            yield _join(path, key), value


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False, default=repr)


def _found(node: _Node) -> str:
    if isinstance(node.value, dict | list) and node.text is None:
        return "a section" if isinstance(node.value, dict) else "a list"
    text = " ".join((node.text or _shown(node.value)).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _help_section(schema: type, path: str, default: Any, width: int) -> Iterator[str]:
    types, nested = _types(schema), []
    for row, field in zip(field_rows(schema, default), _fields(schema), strict=True):
        key, kind, value = _join(path, field.name), types[field.name], _default(field, schema, default)
        if list(_below(kind, key)):
            nested.append((key, kind, value, row["help"]))
        else:
            ending = "Required." if row["required"] else f"Default: {_shown(row['default'])}."
            about = [row["help"], ending] if kind is not Any else [row["help"]]
            yield from _help_entry(f"  --{key} <{row['type']}>", " ".join(about).strip(), width)
    for key, kind, value, text in nested:
        null = " Can be null." * (NoneType in _members(kind)) + " Default: null." * (value is None)
        yield from ("", *textwrap.wrap(f"{key}: {text}{null}".removesuffix(": "), width))
        for here, section, _ in _below(kind, key):
            if len(_sections(kind)) > 1:
                chosen = " (the default)" if type(value) is section else ""
                yield from ("", f"{here} with name: {'|'.join(_variants([section]))}{chosen}")
            yield from _help_section(section, here, value, width)


def _help_entry(left: str, right: str, width: int, column: int = 44) -> Iterator[str]:
    lines = textwrap.wrap(right, width - column)
    if lines and len(left) < column - 1:
        left = left.ljust(column) + lines.pop(0)
    yield left
    yield from (" " * column + line for line in lines)
