"""What numbers must satisfy before any arithmetic: whole, nested, inside their range, and named when they are not."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litmuskit.errors import InputError, NotIdentifiedError

MOST, SURE = 10**9, 1e-6


def require_number(name: str, value: object) -> float:
    """A finite number; text, booleans, NaN and infinities are not."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= sys.float_info.max:
        raise InputError("not a number", where=name, expected="a finite number", found=value)
    return number


def require_share(name: str, value: object, *, inside: bool = False) -> float:
    """A number in [0, 1], or strictly inside."""
    number = require_number(name, value)
    if not 0 <= number <= 1 or (inside and number in {0, 1}):
        raise InputError("out of range", where=name, expected="a number in " + ("(0, 1)" if inside else "[0, 1]"), found=value)
    return number


def require_level(level: object) -> float:
    """A confidence level strictly between 0 and 1, no nearer to either than quantiles can be computed for."""
    number = require_share("level", level, inside=True)
    if not 0.001 <= number <= 1 - SURE:
        raise InputError("too near 0 or 1", where="level", expected=f"0.001 to 1 - {SURE:g}", found=level)
    return number


def require_flag(name: str, value: object) -> bool:
    """True or False, or 1 or 0; a word is neither."""
    if not isinstance(value, int | np.bool_) or value not in {True, False}:
        raise InputError("not a flag", where=name, expected="True or False", found=value)
    return bool(value)


def require_choice(name: str, value: object, choices: Iterable[str], what: str) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(what, where=name, expected=" or ".join(choices), found=value)
    return value


def read_column(value: Any) -> NDArray[Any]:
    """An array of whatever was given, unconverted: of no dimension where a single number was meant."""
    return np.asarray(value, dtype=object)


def read_counts(name: str, value: Any) -> Any:
    """A count, or a column of them, each checked and made a whole number of Python, whose sums never overflow."""
    column = read_column(value)
    names = [f"{name}[{i}]" for i in range(column.size)] if column.ndim else [name]
    whole = [require_nested(**{place: v})[0] for place, v in zip(names, column.ravel(), strict=True)]
    return np.array(whole, dtype=object).reshape(column.shape) if column.ndim else whole[0]


def require_nested(**counts: object) -> tuple[int, ...]:
    """Whole counts, each at most the next: ``require_nested(true=37, adjudicated=40)``."""
    whole = [require_number(name, value) for name, value in counts.items()]
    for name, number in zip(counts, whole, strict=True):
        if not 0 <= number <= MOST or number % 1:
            raise InputError("not a count", where=name, expected=f"a whole number, 0 to {MOST}", found=counts[name])
    for (part, k), (other, n) in pairwise(zip(counts, whole, strict=True)):
        if k > n:
            raise InputError("a part exceeds its whole", where=part, expected=f"at most {other} = {n}", found=k)
    return tuple(int(number) for number in whole)


def require_clusters(**columns: Any) -> tuple[NDArray[np.float64], ...]:
    """Nested counts, one per cluster, in columns of one length; empty clusters are left out, and two at least remain."""
    read = [read_column(column) for column in columns.values()]
    if len({column.shape for column in read}) != 1 or not read[0].ndim:
        raise InputError("columns differ in length", where=", ".join(columns), expected="one count per cluster in each")
    rows = enumerate(zip(*read, strict=True))
    checked = [require_nested(**{f"{name}[{i}]": v for name, v in zip(columns, row, strict=True)}) for i, row in rows]
    held = [row for row in checked if row[-1] > 0]
    if len(held) < 2:
        what, where = "the spread between clusters is unknown", ", ".join(columns)
        raise NotIdentifiedError(what, where=where, expected="at least 2 clusters", found=len(held))
    return tuple(np.array(held, dtype=float).T)
