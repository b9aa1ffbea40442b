"""The working note's fingerprint class, for manifests made with the old recipe.

"How should an instance distinguish LITMUS adversarial harness contamination from a genuine tool-misuse policy violation"
(working note, 13 November 2026) hashes four parts one after the other. Nothing marks where one ends: the tail of a system
prompt can become the head of the tools, a user message the head of an observation. `StimulusFingerprint.digest` is
``litmuskit-fp/1``; `StimulusFingerprint.legacy_digest` is the old recipe, for comparison with old manifests only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from litmuskit.errors import UnfingerprintableError
from litmuskit.messages import parse_message
from litmuskit.records import Context, Message, ModelCall, Transcript
from litmuskit.stimulus import fingerprint

__all__ = ["StimulusFingerprint"]


@dataclass(frozen=True, slots=True)
class StimulusFingerprint:
    """A stimulus in four parts: system prompt, tool schemas, chat history, and the bytes of the last observation.

    Examples
    --------
    >>> note = StimulusFingerprint("s", [], [{"role": "user", "content": "hi"}], b"{}")
    >>> note.digest()[:12], note.legacy_digest()[:12]
    ('28cbe99d7b14', 'a2578d83dbc1')
    """

    system_prompt: str
    tool_schemas: list[dict[str, Any]]
    history: list[dict[str, Any]]
    observation_bytes: bytes

    def digest(self) -> str:
        """``litmuskit-fp/1`` stimulus digest (hex) of the history followed by the observation.

        The observation answers the last call of the history that has no reply.

        Raises
        ------
        UnfingerprintableError
            When the history is not chat messages, or a part has no canonical form.
        """
        if (kind := type(self.observation_bytes)) is not bytes:
            raise UnfingerprintableError("wrong type", where="observation_bytes", expected="bytes", found=kind.__name__)
        history = tuple(parse_message(message, f"$.history[{i}]") for i, message in enumerate(self.history))
        open_ids: list[str | None] = []
        for message in history:  # ids recur: a reply answers the latest open call of its id
            asked = [n for n, call_id in enumerate(open_ids) if message.role == "tool" and call_id == message.tool_call_id]
            if asked:
                del open_ids[asked[-1]]
            open_ids += [call.id for call in message.tool_calls]
        reply_to = open_ids[-1] if open_ids else "observation"
        observed = Message(role="tool", content=self.observation_bytes, tool_call_id=reply_to)
        messages = (*history, observed)
        context = Context(system=self.system_prompt, tools=tuple(self.tool_schemas))
        call = ModelCall(turn=1, context=context, delivered=((0, len(messages)),), proposed=None)
        return fingerprint(Transcript(messages=messages, calls=(call,))).stimulus[-1]

    def legacy_digest(self) -> str:
        """The note's digest (hex). Unsafe: different stimuli collide across the unframed parts; never match on it alone."""
        unframed = hashlib.sha256(self.system_prompt.encode())
        for part in (self.tool_schemas, self.history):
            unframed.update(json.dumps(part, sort_keys=True).encode())
        unframed.update(self.observation_bytes)
        return unframed.hexdigest()
