"""Chat messages as plain mappings, read into records.

The shape is the one most providers log: ``role``, ``content`` (text, or a list of blocks; ``content_b64`` for bytes),
``tool_calls`` of ``{id, name, arguments}`` or ``{id, function: {name, arguments}}``, ``tool_call_id``, ``error``.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from litmuskit.errors import UnfingerprintableError
from litmuskit.records import Context, Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["parse_message", "parse_stimulus"]

_MESSAGE_KEYS = frozenset({"role", "content", "content_b64", "tool_calls", "tool_call_id", "error"})
_CONTENT = (str, bytes, list)
_ARGUMENTS = (dict, str)
_STIMULUS_KEYS = {"system": str, "tools": list, "opts": dict, "messages": list, "decode": dict}


def parse_stimulus(stimulus: Mapping[str, Any], dropped: set[str]) -> tuple[Context, tuple[Message, ...]]:
    """``{system, tools, opts, messages}`` as records; keys that are no part of a stimulus are added to ``dropped``."""
    parts = {name: stimulus.get(name) for name in _STIMULUS_KEYS}
    for name, kind in _STIMULUS_KEYS.items():
        if parts[name] is not None and not isinstance(parts[name], kind):
            found = type(parts[name]).__name__
            raise UnfingerprintableError("wrong type", where=f"$.{name}", expected=kind.__name__, found=found)
    dropped |= {str(key) for key in stimulus if key not in _STIMULUS_KEYS}
    tools, opts, decode = tuple(parts["tools"] or ()), parts["opts"] or {}, parts["decode"] or {}
    context = Context(system=parts["system"], tools=tools, opts=opts, decode=decode)
    return context, tuple(parse_message(m, f"$.messages[{i}]", dropped) for i, m in enumerate(parts["messages"] or ()))


def parse_message(message: Any, where: str, dropped: set[str] | None = None) -> Message:
    """A chat message as a record; keys that are no part of a stimulus are added to ``dropped``.

    Examples
    --------
    >>> parse_message({"role": "tool", "content": "x", "tool_call_id": "a", "ts": 3}, "$", seen := set()).tool_call_id, seen
    ('a', {'messages.ts'})
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise UnfingerprintableError("not a chat message", where=where, expected="a mapping with a role", found=message)
    get = message.get
    content = get("content")
    if "content_b64" in message:
        content = _decode_bytes(message["content_b64"], where)
    elif not (content is None or isinstance(content, _CONTENT)):
        raise UnfingerprintableError("wrong type", where=f"{where}.content", expected="text, bytes or blocks", found=content)
    reply_to, error, calls = get("tool_call_id"), get("error"), get("tool_calls") or ()
    for name, value in (("tool_call_id", reply_to), ("error", error)):
        if not (value is None or isinstance(value, str)):
            raise UnfingerprintableError("wrong type", where=f"{where}.{name}", expected="text", found=value)
    if dropped is not None and not message.keys() <= _MESSAGE_KEYS:
        dropped |= {f"messages.{key}" for key in message if key not in _MESSAGE_KEYS}
    if not isinstance(calls, (list, tuple)):
        raise UnfingerprintableError("wrong type", where=f"{where}.tool_calls", expected="a list", found=calls)
    parsed = tuple([_parse_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]) if calls else ()
    return Message(role=message["role"], content=content, tool_calls=parsed, tool_call_id=reply_to, error=error)


def _decode_bytes(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise UnfingerprintableError("not base64", where=f"{where}.content_b64", found=text) from None


def _parse_call(call: Any, where: str) -> ToolCall:
    inner = call.get("function", call) if isinstance(call, dict) else None
    if isinstance(inner, str):  # {"function": name, "arguments": ...}
        inner = {**call, "name": inner}
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise UnfingerprintableError("not a tool call", where=where, expected="a mapping with a name", found=call)
    call_id, arguments = call.get("id"), inner.get("arguments")
    if not (call_id is None or isinstance(call_id, str)):
        raise UnfingerprintableError("wrong type", where=f"{where}.id", expected="text", found=call_id)
    if not isinstance(arguments, _ARGUMENTS):
        raise UnfingerprintableError("wrong type", where=f"{where}.arguments", expected="an object or text", found=arguments)
    return ToolCall(name=inner["name"], arguments=arguments, id=call_id)
