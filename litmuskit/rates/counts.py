"""What numbers must satisfy before any arithmetic: whole, nested, inside their range, and named when they are not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litmuskit.errors import InputError, NotIdentifiedError


def require_number(name: str, value: object) -> float:
    """A finite number; text, booleans, NaN and infinities are not."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < np.inf:
        raise InputError("not a number", where=name, expected="a finite number", found=value)
    return number


def require_share(name: str, value: object, *, inside: bool = False) -> float:
    """A number in [0, 1], or strictly inside."""
    number = require_number(name, value)
    if not 0 <= number <= 1 or (inside and number in {0, 1}):
        raise InputError("out of range", where=name, expected="a number in " + ("(0, 1)" if inside else "[0, 1]"), found=value)
    return number


def require_level(level: object) -> float:
    """A confidence level, strictly between 0 and 1."""
    return require_share("level", level, inside=True)


def require_nested(**counts: object) -> tuple[int, ...]:
    """Whole counts, each at most the next: ``require_nested(true=37, adjudicated=40)``."""
    whole = [require_number(name, value) for name, value in counts.items()]
    for name, number in zip(counts, whole, strict=True):
        if number < 0 or number % 1:
            raise InputError("not a count", where=name, expected="a whole number, 0 or more", found=counts[name])
    for (part, k), (other, n) in pairwise(zip(counts, whole, strict=True)):
        if k > n:
            raise InputError("a part exceeds its whole", where=part, expected=f"at most {other} = {n}", found=k)
    return tuple(int(number) for number in whole)


def require_clusters(**columns: Any) -> tuple[NDArray[np.float64], ...]:
    """Nested counts, one per cluster, in columns of one length; empty clusters are left out, and two at least remain."""
    if len({np.shape(column) for column in columns.values()}) != 1:
        raise InputError("columns differ in length", where=", ".join(columns), expected="one count per cluster in each")
    rows = enumerate(zip(*columns.values(), strict=True))
    checked = [require_nested(**{f"{name}[{i}]": v for name, v in zip(columns, row, strict=True)}) for i, row in rows]
    held = [row for row in checked if row[-1] > 0]
    if len(held) < 2:
        raise NotIdentifiedError("the spread between clusters is unknown", expected="at least 2 clusters", found=len(held))
    return tuple(np.array(held, dtype=float).T)
