"""Every exception litmuskit raises, in one tree.

An error takes facts and words its own message: what is wrong, where (a path, a line, a JSON path, a record id),
what was expected, what was found, and what to do about it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AttributionError", "CanonicalizationError", "ContaminatedInstanceError", "HarnessError", "InputError", "InstanceError",
    "LitmusError", "LogFormatError", "ManifestError", "NotIdentifiedError", "OutOfScopeError", "StaleManifestError",
    "UnattributableViolationError", "UnfingerprintableError",
]  # fmt: skip


class LitmusError(Exception):
    """Base of every litmuskit error.

    Parameters
    ----------
    what : str
        What is wrong, in one clause.
    where : object, optional
        The place: a file and line, a JSON path, a record id, an argument's name.
    expected, found : object, optional
        What should have stood there and what did; ``found`` is shortened to 200 characters.
    remedy : str, optional
        What the reader can do.
    carrying : object, optional
        The result the error is about (a report, a verdict, raw limits); see the attribute of the same name.

    Examples
    --------
    >>> print(LogFormatError("label is not a boolean", where="run.json $.security", expected="true or false", found="yes"))
    run.json $.security: label is not a boolean; expected true or false, found 'yes'
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        expected: object = None,
        found: object = None,
        remedy: str | None = None,
        carrying: Any = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.found = found
        self.remedy = remedy
        self.carrying = carrying
        super().__init__(_escape(self._word()))

    def _word(self) -> str:
        place = f"{self.where}: " if self.where is not None else ""
        sides = [f"expected {self.expected}"] if self.expected is not None else []
        if self.found is not None:
            sides.append(f"found {_shorten(self.found)}")
        contrast = f"; {', '.join(sides)}" if sides else ""
        remedy = f". {self.remedy[:1].upper()}{self.remedy[1:]}" if self.remedy else ""
        return f"{place}{self.what}{contrast}{remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {name: getattr(self, name) for name in ("where", "expected", "found", "remedy", "carrying")}
        return partial(type(self), self.what, **facts), ()


def _escape(text: str) -> str:
    """A message reaches terminals and tracebacks: what a log put into a path or an id must not act there."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _shorten(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


class InstanceError(LitmusError):
    """A benchmark instance is at fault."""


class ContaminatedInstanceError(InstanceError):
    """An instance must not be scored; ``carrying`` is the whole `PreflightReport`."""


class AttributionError(LitmusError):
    """A violation cannot be laid at the agent's door."""


class UnattributableViolationError(AttributionError):
    """A flagged violation is not counted; ``carrying`` is the `Verdict`, or a tuple of record ids."""


class HarnessError(LitmusError):
    """The harness, not the agent, is at fault."""


class StaleManifestError(HarnessError):
    """The oracle was calibrated under another policy than the run's."""


class InputError(LitmusError, ValueError):
    """An argument, a file or a table does not say what it must."""


class CanonicalizationError(InputError):
    """A value has no RFC 8785 form."""


class UnfingerprintableError(CanonicalizationError):
    """A stimulus has no `litmuskit-fp/1` fingerprint."""


class LogFormatError(InputError):
    """A log cannot be read as what it claims to be."""


class ManifestError(InputError):
    """An oracle manifest is damaged, altered, contaminated or out of order."""


class OutOfScopeError(InputError):
    """A log holds no tool-calling episodes: litmuskit has nothing to say about it."""


class NotIdentifiedError(LitmusError):
    """A correction has no answer from these numbers; ``carrying`` holds the raw limits where there are any."""


def name_all(ids: Iterable[str], limit: int = 20) -> str:
    """Join record ids for a message; the count is never lost.

    Examples
    --------
    >>> name_all(["b", "a"])
    '2: a, b'
    """
    ordered = sorted(ids)
    shown = ", ".join(ordered[:limit])
    more = f", and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return f"{len(ordered)}: {shown}{more}"
