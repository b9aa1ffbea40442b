from __future__ import annotations

import json
import math
import re
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, example, given
from hypothesis import strategies as st

from litmuskit.canonical import LARGEST_INTEGER, canonicalize, is_same_json, load_lossless, load_strict
from litmuskit.errors import CanonicalizationError, LogFormatError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-LARGEST_INTEGER, LARGEST_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5)
    ),
    max_leaves=25,
)


@given(JSON)
def test_canonicalize_matches_rfc8785_reference(value: Any) -> None:
    assert canonicalize(value) == rfc8785.dumps(value)


def reverse_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(value)}
    return [reverse_keys(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_a_value_is_the_same_whatever_the_order_of_its_keys(value: Any) -> None:
    assert is_same_json(value, reverse_keys(json.loads(json.dumps(value))))


@given(JSON, JSON)
@example([1], [True])
@example({"a": {"b": 0}}, {"a": {"b": False}})
@example({"a": "x", "b": 1}, {"a": "x", "b": 1.0})
def test_values_are_the_same_only_if_their_texts_are(one: Any, other: Any) -> None:
    assert is_same_json(one, other) == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


@given(JSON)
def test_canonical_bytes_round_trip(value: Any) -> None:
    assume(not re.search(rb"[0-9]{16}", canonicalize(value)))  # 1e20 is written as an integer that strict JSON refuses
    once = canonicalize(value)
    assert canonicalize(load_strict(once)) == once


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_matches_the_reference(number: float) -> None:
    assert canonicalize([number]) == rfc8785.dumps([number])


def test_official_pairs(shared: Any) -> None:
    pairs = sorted((shared / "vectors/jcs/testdata/input").glob("*.json"))
    assert len(pairs) == 6
    for source in pairs:
        value = json.loads(source.read_bytes())
        expected = bytes.fromhex((shared / f"vectors/jcs/testdata/outhex/{source.stem}.txt").read_text())
        assert canonicalize(value) == expected, source.name


def test_es6_numbers(shared: Any) -> None:
    lines = (shared / "vectors/es6_numbers_10000.txt").read_text().split()
    assert len(lines) == 10_000
    for line in lines:
        bits, _, expected = line.partition(",")
        number = struct.unpack(">d", bytes.fromhex(bits.rjust(16, "0")))[0]
        if math.isfinite(number):
            assert canonicalize(number).decode() == expected, line


def test_v8_documents(shared: Any) -> None:
    lines = (shared / "vectors/fuzz_v8_5000.jsonl").read_bytes().decode().strip("\n").split("\n")
    assert len(lines) == 5_000
    for line in lines:
        pair = json.loads(line)
        assert canonicalize(json.loads(pair["in"])).decode() == pair["out"]


def test_strict_loader_refuses_the_negatives(shared: Any) -> None:
    cases = json.loads((shared / "vectors/jcs_negative.json").read_text())
    assert len(cases) == 19
    for case in cases:
        with pytest.raises(LogFormatError):
            load_strict(bytes.fromhex(case["hex"]), case["name"])


SPELLED = st.lists(
    st.sampled_from(
        ["a", "b", '\\"', "\\\\", "\\u0022", "\\u005c", "\\u0061", ":", ",", "\\ud83d\\ude00", "\\ud800", "u0022", "é"]
    ),
    max_size=4,
).map(lambda parts: f'"{"".join(parts)}"')
NUMBERS = st.sampled_from(
    [
        "0",
        "-0",
        "-0.0",
        "1e5",
        "1E400",
        "2e-400",
        "0.1",
        "9007199254740991",
        "9007199254740992",
        "-99999999999999999999",
        "1e22",
    ]
)
DOCUMENTS = st.recursive(
    SPELLED | NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.sampled_from(["null", "true", "NaN"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(SPELLED, st.sampled_from([":", " : "]), inner).map("".join), max_size=3).map(
            lambda pairs: f"{{{','.join(pairs)}}}"
        )
    ),
    max_leaves=8,
)


def refuse_equal_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def refuse(text: str) -> None:
    raise AssertionError(text)


def bound(number: float) -> float:
    assert math.isfinite(number) if isinstance(number, float) else abs(number) <= LARGEST_INTEGER
    return number


@example('{"\\u0022\\u0022":1,"a":1,"a":2}')  # as many quotation marks as without the lost key
@example('{"a" : "\\\\","a":1}')
@given(DOCUMENTS)
def test_strict_loader_reads_what_plain_python_does_or_refuses(text: str) -> None:
    hooks: dict[str, Any] = {"object_pairs_hook": refuse_equal_keys, "parse_constant": refuse}
    hooks |= {"parse_int": lambda digits: bound(int(digits)), "parse_float": lambda digits: bound(float(digits))}
    try:
        expected = json.loads(text, **hooks)
        json.dumps(expected, ensure_ascii=False).encode()
    except (AssertionError, UnicodeEncodeError):
        with pytest.raises(LogFormatError):
            load_strict(text.encode())
    else:
        assert repr(load_strict(text.encode())) == repr(expected)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"a":1,"a":2}', "$"),
        (b'{"x":[{"a":1,"\\u0061":2}]}', "$.x[0]"),
        (b'{"x":[0,NaN]}', "$.x[1]"),
        (b'{"x y":-Infinity}', '$["x y"]'),
        (b'{"n":{"m":9007199254740992}}', "$.n.m"),
        (b'{"n":-9007199254740993}', "$.n"),
        (b"[1e400]", "$[0]"),
        (b'{"s":["ok","\\ud800"]}', "$.s[1]"),
        (b"[" * 100_000, "f"),
        (b"[1] x", "f"),
        (b"\xef\xbb\xbf[]", "f"),
        (b'["\xff"]', "byte 2"),
        (b"", "f"),
    ],
)
def test_strict_loader_names_the_place(text: bytes, place: str) -> None:
    with pytest.raises(LogFormatError) as caught:
        load_strict(text, "f")
    assert place in str(caught.value)
    assert str(caught.value).startswith("f")


def test_lossless_loader_keeps_what_harnesses_write() -> None:
    value = load_lossless(b'{"n":123456789012345678901234567890,"x":Infinity,"s":"\\ud800"}')
    assert value == {"n": 123456789012345678901234567890, "x": math.inf, "s": "\ud800"}
    with pytest.raises(LogFormatError, match="duplicate key"):
        load_lossless(b'{"a":1,"a":1}')
    with pytest.raises(LogFormatError, match="too long"):
        load_lossless(b"[" + b"9" * 6000 + b"]")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({1: "x"}, "$"),
        ({"a": [float("nan")]}, "$.a[0]"),
        ({"a": {"b c": 2**53}}, '$.a["b c"]'),
        (["\ud83d"], "$[0]"),
        ({"\udc00": 1}, "$"),
        ([(1, 2)], "$[0]"),
        ({"a": b"x"}, "$.a"),
        ({None: 1}, "$"),
        ({True: 1}, "$"),
        (type("S", (str,), {})("x"), "$"),
    ],
)
def test_values_without_a_canonical_form_are_refused_with_their_path(value: Any, place: str) -> None:
    with pytest.raises(CanonicalizationError) as caught:
        canonicalize(value)
    assert caught.value.where == place


def test_deep_nesting_is_a_typed_error() -> None:
    value: Any = 0
    for _ in range(100_000):
        value = [value]
    with pytest.raises(CanonicalizationError, match="nested too deeply"):
        canonicalize(value)
