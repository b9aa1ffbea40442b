"""Canonical JSON (RFC 8785) and strict JSON.

A digest of JSON is only as good as the bytes it is taken over. `canonicalize` gives the bytes of RFC 8785 (JSON
Canonicalization Scheme, 2020) and refuses every value that has none; `load_strict` reads JSON as I-JSON (RFC 7493) and
refuses every text that two parsers could read differently. The reference is the package ``rfc8785``; orjson writes the
bytes only where a walk over the value has shown that the two agree.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import math
import re
from contextlib import suppress
from typing import Any

import msgspec
import orjson
import rfc8785

from litmuskit.errors import CanonicalizationError, LogFormatError

__all__ = ["canonicalize", "digest_json", "is_same_json", "load_lossless", "load_strict"]

LARGEST_INTEGER = 2**53 - 1
DEEPEST = 200  # both writers and the walk stay well inside the interpreter's stack
_SORT = orjson.OPT_SORT_KEYS
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def canonicalize(value: Any, where: str = "$") -> bytes:
    r"""RFC 8785 bytes of a JSON value.

    Parameters
    ----------
    value : None, bool, int, float, str, list or dict
        Exactly these types; keys are strings, integers within +-(2**53 - 1), floats finite, text without lone surrogates.
    where : str
        JSON path of ``value``, for the error.

    Raises
    ------
    CanonicalizationError
        Naming the JSON path of the first part that has no canonical form.

    References
    ----------
    .. [1] RFC 8785, JSON Canonicalization Scheme, sections 3.2.2.3 (numbers) and 3.2.3 (key order).

    Examples
    --------
    >>> canonicalize({"b": 1.0, "a": [1e21, -0.0]})
    b'{"a":[1e+21,0],"b":1}'
    """
    try:
        if _agree(value):
            return orjson.dumps(value, option=_SORT)
        _refuse(value, where, 0)
        return rfc8785.dumps(value)
    except RecursionError:
        raise CanonicalizationError("nested too deeply", where=where, expected=f"at most {DEEPEST} levels") from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, orjson.JSONEncodeError) as error:
        raise CanonicalizationError(f"has no RFC 8785 form ({error})", where=where) from error


def digest_json(value: Any, where: str = "$") -> str:
    """SHA-256 of the canonical bytes, as ``sha256:<hex>``.

    Examples
    --------
    >>> digest_json({})
    'sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'
    """
    return f"sha256:{hashlib.sha256(canonicalize(value, where)).hexdigest()}"


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two parsed values are one in JSON, where 1, 1.0 and true are three.

    Examples
    --------
    >>> {"a": 1} == {"a": True}, is_same_json({"a": 1}, {"a": True})
    (True, False)
    """
    if one != other:
        return False
    for part in one.values() if type(one) is dict else (one,):
        if type(part) is not str:
            break
    else:
        return True  # as most arguments are
    same = marshal.dumps(one, 2) == marshal.dumps(other, 2)  # but for the order of keys
    return same or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _agree(value: Any, depth: int = 0) -> bool:
    """Whether orjson with sorted keys writes exactly the RFC 8785 bytes of ``value``."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii()) or not _has_surrogate(value)
    if kind is dict and depth <= DEEPEST:
        for key, item in value.items():
            # below U+D800 the orders by UTF-16 unit and by code point are one
            if type(key) is not str or not (key.isascii() or max(key) < "\ud800"):
                return False
            if not (type(item) is str and item.isascii()) and not _agree(item, depth + 1):  # most arguments are plain text
                return False
        return True
    if kind is list and depth <= DEEPEST:
        return all(_agree(item, depth + 1) for item in value)
    if kind is int:
        return bool(-LARGEST_INTEGER <= value <= LARGEST_INTEGER)
    if kind is float:  # integral floats lose their point under RFC 8785; both print the shortest digits in this range
        return 1e-3 <= abs(value) < 1e15 and not value.is_integer()
    return kind is bool or value is None


def _refuse(value: Any, where: str, depth: int) -> None:
    """Raise for the first part of ``value`` that RFC 8785 or I-JSON excludes."""
    kind = type(value)
    if depth > DEEPEST:
        raise CanonicalizationError("nested too deeply", where=where, expected=f"at most {DEEPEST} levels")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise CanonicalizationError("key is not text", where=where, expected="str", found=key)
            if _has_surrogate(key):
                raise CanonicalizationError("key holds a lone surrogate", where=where, found=key)
            _refuse(item, _step(where, key), depth + 1)
    elif kind is list:
        for index, item in enumerate(value):
            _refuse(item, f"{where}[{index}]", depth + 1)
    elif kind is str:
        if _has_surrogate(value):
            raise CanonicalizationError("text holds a lone surrogate", where=where, found=value)
    elif kind is int:
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise CanonicalizationError("integer loses digits as a double", where=where, expected="|n| < 2**53", found=value)
    elif kind is float:
        if not math.isfinite(value):
            raise CanonicalizationError("number is not finite", where=where, found=value)
    elif value is not None and kind is not bool:
        raise CanonicalizationError("not a JSON value", where=where, expected="a JSON type", found=kind.__name__)


def _step(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key)}]"


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class _Suspect:
    """Stands in a parsed document where the text is not I-JSON; the walk that finds it knows the path."""

    def __init__(self, what: str, found: object) -> None:
        self.what, self.found = what, found


def _pairs(pairs: list[tuple[str, Any]]) -> Any:
    parsed = dict(pairs)
    if len(parsed) == len(pairs):
        return parsed
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _NotStrictError(_Suspect("duplicate key", key))
        seen.add(key)
    return parsed


class _NotStrictError(Exception):
    """Ends the fast parse; the slow one locates."""

    def __init__(self, suspect: _Suspect) -> None:
        self.suspect = suspect
        super().__init__(suspect.what)


def _integer(digits: str) -> int:
    if len(digits) > 15 and (len(digits) > 20 or abs(int(digits)) > LARGEST_INTEGER):
        raise _NotStrictError(_Suspect("integer loses digits as a double", digits[:40]))
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NotStrictError(_Suspect("number is not finite", digits[:40]))
    return number


def _constant(name: str) -> float:
    raise _NotStrictError(_Suspect("not JSON", name))


def _long_integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # longer than the interpreter converts: no stimulus needs it, and no digit may be dropped
        raise _NotStrictError(_Suspect("integer is too long", digits[:40])) from None


_STRICT = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant)
_LOSSLESS = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_long_integer)


def load_strict(document: bytes, where: str = "$") -> Any:
    """Parse one JSON document that every parser must read alike (RFC 7493).

    Parameters
    ----------
    document : bytes
        UTF-8 without a byte order mark.
    where : str
        File, or file and line; the JSON path is appended in errors.

    Raises
    ------
    LogFormatError
        For duplicate keys, NaN and infinities, integers beyond 2**53 - 1, overflowing floats, lone surrogates, invalid
        UTF-8, a byte order mark, trailing text or nesting beyond what can be parsed, with the JSON path.

    Examples
    --------
    >>> load_strict(b'{"a": {"b": 1, "b": 2}}', "log.json")
    Traceback (most recent call last):
    ...
    litmuskit.errors.LogFormatError: log.json $.a: duplicate key; found 'b'
    """
    with suppress(msgspec.MsgspecError, orjson.JSONEncodeError, RecursionError):  # what these refuse, the strict parser names
        parsed = msgspec.json.decode(document)
        again = orjson.dumps(parsed, option=orjson.OPT_STRICT_INTEGER)
        if again.count(b'"') == document.count(b'"') and b"u0022" not in document:  # no key was lost to an equal one
            return parsed
    parsed = _load(_STRICT, document, where)
    if _SURROGATE_ESCAPE.search(document):
        try:
            _refuse(parsed, "$", 0)
        except CanonicalizationError as error:
            raise LogFormatError(error.what, where=f"{where} {error.where}", found=error.found) from None
    return parsed


def load_lossless(document: bytes, where: str = "$") -> Any:
    """Parse one JSON document as a harness wrote it: NaN, infinities, long integers and lone surrogates pass.

    Nothing is lost (an integer keeps all its digits, up to the interpreter's limit) and duplicate keys are still refused.

    Raises
    ------
    LogFormatError
        As `load_strict`, for what is not readable in one way only.

    Examples
    --------
    >>> load_lossless(b'[NaN, 123456789012345678901234567890]')
    [nan, 123456789012345678901234567890]
    """
    return _load(_LOSSLESS, document, where)


def _load(decoder: json.JSONDecoder, document: bytes, where: str) -> Any:
    if document.startswith(b"\xef\xbb\xbf"):
        raise LogFormatError("starts with a byte order mark", where=where, expected="UTF-8 without one")
    try:
        return decoder.decode(document.decode())
    except UnicodeDecodeError as error:
        found = document[error.start : error.start + 8]
        raise LogFormatError("is not UTF-8", where=f"{where} byte {error.start}", expected="UTF-8", found=found) from None
    except RecursionError:
        raise LogFormatError("nested too deeply", where=where) from None
    except json.JSONDecodeError as error:
        place = f"{where} line {error.lineno} column {error.colno}"
        raise LogFormatError(f"is not JSON ({error.msg})", where=place, found=error.doc[error.pos : error.pos + 40]) from None
    except _NotStrictError as error:
        path = _locate(decoder, document)
        raise LogFormatError(error.suspect.what, where=f"{where} {path}", found=error.suspect.found) from None


def _locate(decoder: json.JSONDecoder, document: bytes) -> str:
    """JSON path of the first part that ``decoder`` refuses: parse again with stand-ins, then walk."""

    def catch(read: Any) -> Any:
        def read_or_mark(text: Any) -> Any:
            try:
                return read(text)
            except _NotStrictError as error:
                return error.suspect

        return read_or_mark

    marking = json.JSONDecoder(
        object_pairs_hook=catch(_pairs),
        parse_int=catch(decoder.parse_int),
        parse_float=catch(decoder.parse_float),
        parse_constant=catch(decoder.parse_constant),
    )
    stack: list[tuple[str, Any]] = [("$", marking.decode(document.decode()))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, _Suspect):
            return path
        if isinstance(value, dict):
            stack.extend((_step(path, key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            stack.extend((f"{path}[{i}]", v) for i, v in reversed(list(enumerate(value))))
    return "$"
