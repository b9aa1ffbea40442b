"""Framing: how ``litmuskit-fp/1`` turns one part of a stimulus into 32 bytes (the layout stands in `litmuskit.stimulus`)."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Any

from litmuskit.canonical import canonicalize
from litmuskit.errors import CanonicalizationError, UnfingerprintableError
from litmuskit.transcript import Context, Message

__all__ = [
    "DIGEST_FRAME", "OPTIONS", "SPEC", "Aliases", "Surroundings", "canonical_part", "digest_arguments", "digest_message",
    "digest_observation", "digest_parts", "digest_tool", "frame_head", "split_text",
]  # fmt: skip

SPEC = "litmuskit-fp/1"
OPTIONS = ("tool_choice", "parallel_tool_calls", "response_format")
DIGEST_FRAME = (32).to_bytes(8, "big")
_length = Struct(">Q").pack


def _frame(part: bytes) -> bytes:
    return _length(len(part)) + part


@lru_cache(maxsize=1024)
def frame_head(tag: str, count: int) -> bytes:
    """What stands before the parts of D(tag; p1..count)."""
    return _frame(SPEC.encode()) + _frame(tag.encode()) + _length(count)


def digest_parts(tag: str, *parts: bytes) -> bytes:
    """D(tag; parts): SHA-256 over the framed parts (32 bytes)."""
    return sha256(frame_head(tag, len(parts)) + b"".join([_length(len(part)) + part for part in parts])).digest()


def split_text(text: str) -> tuple[bytes, bytes]:
    """T(s): how the text is encoded, and the encoded text."""
    try:
        return b"utf-8", text.encode()
    except UnicodeEncodeError:
        return b"utf-8-surrogatepass", text.encode("utf-8", "surrogatepass")


def canonical_part(value: Any, where: str) -> bytes:
    """J(x), failing closed: what has no canonical form has no fingerprint."""
    try:
        return canonicalize(value, where)
    except CanonicalizationError as error:
        raise UnfingerprintableError(error.what, where=error.where, expected=error.expected, found=error.found) from error


_tool_digests: dict[bytes, bytes] = {}


def digest_tool(schema: Any, where: str) -> bytes:
    """One tool's digest, remembered across records by content (never by identity: a list may change under its id)."""
    try:
        key = marshal.dumps(schema, 2)
    except ValueError:
        return digest_parts("tool", canonical_part(schema, where))
    found = _tool_digests.get(key)
    if found is None:
        found = digest_parts("tool", canonical_part(schema, where))
        if len(_tool_digests) > 10_000:
            _tool_digests.clear()
        _tool_digests[key] = found
    return found


def digest_observation(content: Any, where: str = "$.content") -> bytes:
    """The obs digest of exact delivered content: bytes, text, a list of blocks, or None for nothing at all."""
    if isinstance(content, str):
        form, text = split_text(content)
        return sha256(_OBS_TEXT[form] + _length(len(text)) + text).digest()
    if isinstance(content, bytes):
        return digest_parts("obs", b"bytes", content)
    if content is None:
        return digest_parts("obs")
    return digest_parts("obs", b"json", canonical_part(content, where))


def digest_arguments(arguments: Mapping[str, Any] | str, where: str = "$") -> bytes:
    """Digest of a call's arguments alone: the manifest's key for the observation that answers it."""
    return digest_parts("arguments", *_argument_parts(arguments, where))


def _argument_parts(arguments: Mapping[str, Any] | str, where: str) -> tuple[bytes, bytes]:
    if isinstance(arguments, str):
        return b"text", split_text(arguments)[1]
    return b"json", canonical_part(arguments, where)


@lru_cache(maxsize=1024)
def _frame_alias(number: int) -> bytes:
    return _frame(b"c%d" % number)


class Aliases(dict[str | int, bytes]):
    """Call ids become c0, c1... (framed) by first appearance; calls and replies without an id are linked in order."""

    __slots__ = ("_unanswered",)

    def __init__(self) -> None:
        super().__init__()
        self._unanswered: list[int] = []

    def __missing__(self, key: str | int) -> bytes:
        alias = self[key] = _frame_alias(len(self))
        return alias

    def open_call(self) -> bytes:
        """The alias of a call without an id."""
        self._unanswered.append(len(self))
        return self[len(self)]

    def close_call(self) -> bytes:
        """The alias of the first of those calls that no reply has answered."""
        return self[self._unanswered.pop(0) if self._unanswered else len(self)]


# Frames that stand in every message, made once: an agent's transcript is hashed at a few times the cost of SHA-256 alone.
_FORMS = {form: _frame(form) for form in (b"utf-8", b"utf-8-surrogatepass", b"bytes", b"json", b"text")}
_OBS_TEXT = {form: frame_head("obs", 2) + frame for form, frame in _FORMS.items()}
_REPLY = {count: frame_head("msg", count) + _frame(b"tool") + _frame(b"reply-to") for count in (5, 7)}
_OBS = _frame(b"obs") + DIGEST_FRAME
_CALL = _frame(b"call") + DIGEST_FRAME
_CALL_HEAD = frame_head("call", 4)


@lru_cache(maxsize=1024)
def _frame_role(count: int, role: str, form: bytes | None) -> bytes:
    """What stands before the content of a message of ``count`` parts: encoded text, or None for anything else."""
    head = frame_head("msg", count) + _frame(role.encode())
    return head if form is None else head + _frame(b"text") + _FORMS[form]


@lru_cache(maxsize=1024)
def _frame_name(name: str) -> bytes:
    return _frame(name.encode("utf-8", "surrogatepass"))


def digest_message(message: Message, aliases: Aliases) -> tuple[bytes, bytes | None]:
    """``(msg, obs)`` of one message; obs is None unless it is a tool's reply. Errors name the place in the message."""
    content, calls = message.content, message.tool_calls
    if message.role == "tool":
        obs = digest_observation(content)
        ident = message.tool_call_id
        framed = (aliases[ident] if ident is not None else aliases.close_call()) + _OBS + obs
        if message.error is None:
            return sha256(_REPLY[5] + framed).digest(), obs
        return sha256(_REPLY[7] + framed + _frame(b"error") + _frame(split_text(message.error)[1])).digest(), obs
    count = 1 + 2 * len(calls)
    if isinstance(content, str):
        form, text = split_text(content)
        frames = [_frame_role(count + 3, message.role, form), _length(len(text)), text]
    elif content is None:
        frames = [_frame_role(count, message.role, None)]
    else:
        form, part = (b"bytes", content) if isinstance(content, bytes) else (b"json", canonical_part(content, "$.content"))
        frames = [_frame_role(count + 2, message.role, None), _FORMS[form], _frame(part)]
    for index, call in enumerate(calls):
        form, part = _argument_parts(call.arguments, f"$.tool_calls[{index}].arguments")
        alias = aliases[call.id] if call.id is not None else aliases.open_call()
        framed = alias + _frame_name(call.name) + _FORMS[form] + _length(len(part)) + part
        frames += _CALL, sha256(_CALL_HEAD + framed).digest()
    return sha256(b"".join(frames)).digest(), None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Digests of what surrounds the messages."""

    system: bytes
    tool: tuple[bytes, ...]
    tools: bytes
    opts: bytes

    @classmethod
    def of(cls, context: Context, unlogged: frozenset[str]) -> Surroundings:
        system = context.system
        parts = () if system is None else split_text(system)
        tool = tuple(digest_tool(schema, f"$.tools[{i}]") for i, schema in enumerate(context.tools))
        options = {name: context.opts[name] for name in OPTIONS if context.opts.get(name) is not None}
        return cls(
            system=digest_parts("system/unlogged") if "system" in unlogged else digest_parts("system", *parts),
            tool=tool,
            tools=digest_parts("tools/unlogged") if "tools" in unlogged else digest_parts("tools", *tool),
            opts=digest_parts("opts/unlogged")
            if "opts" in unlogged
            else digest_parts("opts", canonical_part(options, "$.opts")),
        )

    def toolset(self) -> bytes:
        """The tools whatever their order, for diagnosis."""
        return digest_parts("toolset", *sorted(self.tool))

    def seed(self, tag: str) -> bytes:
        return digest_parts(tag, self.system, self.tools, self.opts)

    def stimulus_head(self) -> bytes:
        """What stands before the chain in a stimulus."""
        parts = (self.system, self.tools, self.opts)
        return frame_head("stimulus", 4) + b"".join(DIGEST_FRAME + part for part in parts) + DIGEST_FRAME
