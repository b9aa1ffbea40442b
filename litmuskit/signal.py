"""What a scorer looks for: how, in which channel, and in which part of a transcript."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import regex

from litmuskit.errors import InputError
from litmuskit.records import Transcript

__all__ = ["Signal", "hide_signal", "limit_matching", "read_strings", "require_text", "require_word"]

MATCHERS = ("substring", "regex", "equality", "callable")
CHANNELS = ("text", "tool-name", "tool-argument", "path", "state")
SCOPES = ("agent-text", "arguments", "observations", "transcript", "judge-prompt")
REGEX_SECONDS, TOTAL_SECONDS = 1.0, 5.0  # of one search, and of all searches within `limit_matching`
_SYNTAX = regex.compile(r"(\\[^a-zA-Z0-9])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[^)]*?[:=!>]|\{[\d,]*\}", regex.DOTALL)
_LITERAL = regex.compile(r"(?:\\.|[^\\\[\](){}|.*+?^$])+", regex.DOTALL)
_left: ContextVar[float] = ContextVar("left", default=float("inf"))


def require_text(where: str, found: object) -> None:
    """Raise InputError unless ``found`` is text."""
    if not isinstance(found, str):
        raise InputError("not text", where=where, expected="text", found=found)


def require_word(where: str, allowed: Iterable[str], found: str) -> None:
    """Raise InputError unless ``found`` is one of the words ``allowed``."""
    if found not in allowed:
        raise InputError("unknown value", where=where, expected=f"one of {', '.join(allowed)}", found=found)


@contextmanager
def limit_matching() -> Iterator[None]:
    """Within, all regex searches together take `TOTAL_SECONDS` of processor time at most, then each raises TimeoutError."""
    token = _left.set(min(TOTAL_SECONDS, _left.get()))
    try:
        yield
    finally:
        _left.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One thing the scorer looks for: how (``matcher``), in which ``channel``, scanning which ``scope``.

    A callable matcher has a ``predicate`` on text, and ``literals`` to say which strings it looks for. What a regex matches is
    found within a second or not at all; see `limit_matching` for many searches. Raises InputError where the pattern is empty or
    does not compile, a predicate is missing, or a word is unknown.

    Examples
    --------
    >>> Signal(name="pay", pattern="US13", channel="tool-argument", scope="arguments").matches("to US13")
    True
    """

    name: str
    pattern: str = ""
    matcher: str = "substring"
    channel: str = "text"
    scope: str = "agent-text"
    ignore_case: bool = False
    predicate: Callable[[str], bool] | None = field(default=None, repr=False)
    literals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"signal {self.name!r}"
        require_text(where, self.pattern)
        for name, allowed in (("matcher", MATCHERS), ("channel", CHANNELS), ("scope", SCOPES)):
            require_word(f"{where} {name}", allowed, getattr(self, name))
        if (self.matcher == "callable") != (self.predicate is not None):
            raise InputError("a predicate goes with the callable matcher", where=where, found=self.matcher)
        if self.matcher != "callable" and not self.pattern.strip():
            raise InputError("empty pattern", where=where, expected="text to look for", found=self.pattern)
        if self.matcher == "regex":
            try:
                regex.compile(self.pattern)
            except regex.error as error:
                raise InputError(f"regex does not compile ({error})", where=where, found=self.pattern) from error

    @property
    def sought(self) -> tuple[str, ...]:
        """The strings it looks for: ``literals``, else the pattern, of a regex its literal runs."""
        if self.literals or self.matcher == "callable":
            return self.literals
        if self.matcher != "regex":
            return (self.pattern,)
        runs = (regex.sub(r"\\(.)", r"\1", run) for run in _LITERAL.findall(_SYNTAX.sub(lambda m: m[1] or "|", self.pattern)))
        return tuple(run for run in runs if len(run) > 2)

    def matches(self, text: str) -> bool:
        """Whether it fires on one scanned text; raises TimeoutError where a regex runs away."""
        if self.predicate is not None:
            return bool(self.predicate(text))
        if self.matcher == "regex":
            return self._search(text)
        pattern, text = (self.pattern.casefold(), text.casefold()) if self.ignore_case else (self.pattern, text)
        return pattern == text if self.matcher == "equality" else pattern in text

    def _search(self, text: str) -> bool:
        left, started = _left.get(), time.thread_time()
        if left <= 0:
            raise TimeoutError("the regex searches of this instance have used up their time")
        flags = regex.IGNORECASE if self.ignore_case else 0
        try:
            return regex.search(self.pattern, text, flags=flags, timeout=min(REGEX_SECONDS, left)) is not None
        finally:
            _left.set(left - (time.thread_time() - started))

    def scan(self, transcript: Transcript) -> bool | None:
        """Whether it fires on a transcript; None where a transcript cannot tell (state, judge prompt)."""
        if self.channel == "state" or self.scope == "judge-prompt":
            return None
        return any(self.matches(text) for text in self._read_scope(transcript))

    def _read_scope(self, transcript: Transcript) -> Iterator[str]:
        whole = self.scope == "transcript"
        said = [call.proposed for call in transcript.calls if call.proposed is not None]
        shown = [message for message in transcript.messages if message.role != "assistant"]
        if self.channel == "text" and self.scope != "arguments":
            yield from (message.text for message in said if whole or self.scope == "agent-text")
            yield from (message.text for message in shown if whole or (self.scope == "observations" and message.role == "tool"))
        if self.channel != "text" or whole or self.scope == "arguments":
            for call in (call for message in said for call in message.tool_calls):
                yield from (call.name,) if self.channel in {"text", "tool-name"} else ()
                yield from read_strings(call.arguments) if self.channel != "tool-name" else ()


def read_strings(value: Any) -> Iterator[str]:
    """Every leaf of a JSON value as text."""
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from read_strings(inner)
    elif value is not None:
        yield str(value)


def hide_signal(name: str, literals: tuple[str, ...] = ()) -> Signal:
    """The signal of a scorer that reads a state or is closed to view: no text fires it; ``literals``, if known, are sought."""
    return Signal(name=name, matcher="callable", channel="state", predicate=lambda _: False, literals=literals)
