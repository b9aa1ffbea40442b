"""Records and JSON: the annotations of a record are its parser.

`encode_record` writes the fields that are not at their default; `parse_record` reads them back, exact in JSON type (true is
no integer, 1.0 no count), and refuses unknown and missing keys by name. Bytes are ``{"b64": ...}``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

from litmuskit.errors import InputError, LogFormatError

__all__ = ["encode_record", "parse_at", "parse_fields", "parse_record", "refuse"]

_JSON = {str: "text", int: "an integer", bool: "true or false", NoneType: "null", list: "a list", dict: "an object"}
_Options: TypeAlias = dict[Any, Callable[[Any], Any]] | None  # by JSON type; None: anything


def encode_record(value: Any) -> Any:
    """A record as plain JSON values; free fields pass as they are."""
    if is_dataclass(value):
        kind: Any = type(value)
        pairs = ((name, getattr(value, name), default) for name, default in _list_defaults(kind))
        return {name: encode_record(found) for name, found, default in pairs if found != default}
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, tuple | frozenset):
        return [encode_record(item) for item in (value if isinstance(value, tuple) else sorted(value))]
    if isinstance(value, Mapping):
        return {key: encode_record(item) if is_dataclass(item) else item for key, item in value.items()}
    return value


@cache
def _list_defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, f.default if f.default_factory is MISSING else f.default_factory()) for f in fields(kind))


def refuse(where: str, expected: str, found: object) -> NoReturn:
    """Say that a value does not fit the format."""
    raise LogFormatError("does not fit the format", where=where, expected=expected, found=found)


def parse_at(where: str, parse: Callable[..., Any], *arguments: Any) -> Any:
    """Parse one step further down; an error's path grows on its way up."""
    try:
        return parse(*arguments)
    except LogFormatError as error:
        path = f"{where}{error.where}"
        raise LogFormatError(error.what, where=path, expected=error.expected, found=error.found) from None


def parse_record(kind: Any, found: Any) -> Any:
    """A record from a JSON object."""
    if type(found) is kind:
        return found
    parts = parse_fields(kind, found)
    try:
        return kind(**parts)
    except InputError as error:
        raise LogFormatError(error.what, where="", expected=error.expected, found=error.found) from None


def parse_fields(kind: Any, found: Any, optional: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of a record from a JSON object; ``optional`` ones may be missing."""
    options, required = _shape(kind)
    if type(found) is not dict:
        refuse("", f"an object ({kind.__name__})", found)
    if not found.keys() <= options.keys():
        refuse("", f"no keys but {', '.join(options)}", sorted(found.keys() - options.keys()))
    if not required <= found.keys() | optional:
        refuse("", f"the keys {', '.join(sorted(required - optional))}", sorted(found))
    return {key: parse_at(f".{key}", _parse, options[key], value) for key, value in found.items()}


@cache
def _shape(kind: Any) -> tuple[dict[str, _Options], frozenset[str]]:
    required = (f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)
    return {name: _list_options(hint) for name, hint in get_type_hints(kind).items()}, frozenset(required)


def _list_options(hint: Any) -> _Options:
    """What reads a value of each JSON type that an annotation admits."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if origin in {Union, UnionType}:
        return {kind: read for option in args for kind, read in (_list_options(option) or {}).items()}
    if is_dataclass(hint):
        return {dict: partial(parse_record, hint), hint: _keep}
    if origin is Literal:
        return {str: partial(_choose, args)}
    if origin is Mapping:
        return {dict: partial(_parse_mapping, _list_options(args[1]))}
    if origin is frozenset or (origin is tuple and args[-1] is Ellipsis):
        return {list: partial(_parse_list, origin, _list_options(args[0]))}
    if origin is tuple:
        return {list: _parse_pair}
    return {dict: _parse_bytes, bytes: _keep} if hint is bytes else {origin or hint: _keep}


def _parse(options: _Options, found: Any) -> Any:
    if options is None:
        return found
    if (parse := options.get(type(found))) is None:
        refuse("", " or ".join(_JSON[kind] for kind in options if kind in _JSON), found)
    return parse(found)


def _keep(found: Any) -> Any:
    return found


def _choose(words: tuple[str, ...], found: str) -> str:
    return found if found in words else refuse("", f"one of {', '.join(words)}", found)


def _parse_mapping(options: _Options, found: dict[str, Any]) -> dict[str, Any]:
    return found if options is None else {key: parse_at(f".{key}", _parse, options, item) for key, item in found.items()}


def _parse_list(kind: Callable[[list[Any]], Any], options: _Options, found: list[Any]) -> Any:
    return kind([parse_at(f"[{i}]", _parse, options, item) for i, item in enumerate(found)])


def _parse_pair(found: list[Any]) -> tuple[int, int]:
    if len(found) != 2 or type(found[0]) is not int or type(found[1]) is not int:
        refuse("", "[start, stop]", found)
    return found[0], found[1]


def _parse_bytes(found: dict[str, Any]) -> bytes:
    if found.keys() != {"b64"}:
        refuse("", 'text, or bytes as {"b64": ...}', found)
    try:
        return base64.b64decode(found["b64"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise LogFormatError("not base64", where=".b64", found=found["b64"]) from None
