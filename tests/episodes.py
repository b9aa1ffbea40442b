"""Small episodes for tests: one honest tool loop, altered where a test needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from litmuskit.records import (
    Context,
    Episode,
    Harness,
    Label,
    Message,
    ModelCall,
    Observation,
    Policy,
    Source,
    ToolCall,
    Transcript,
)

POLICY = Policy(name="none", version="1", digest="sha256:00", seed="7", deterministic=True)
SOURCE = {"type": "git", "commit": "abc", "dirty": False}
HARNESS = Harness(name="toy", version="1", source=SOURCE, policies={"mutation": POLICY, "truncation": POLICY})
READ = {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
CONTEXT = Context(system="Keep the books.", tools=(READ,), opts={})


def make_episode(record: str = "r1", *, observed: str = "{}", path: str = "a", flagged: bool = True, **changes: Any) -> Episode:
    """Read a file, then act; the second turn is flagged."""
    first = ToolCall(name="read", arguments={"path": path}, id="c1")
    second = ToolCall(name="read", arguments={"path": "b"}, id="c2")
    asked = Message(role="assistant", content="", tool_calls=(first,))
    told = Message(role="tool", content=observed, tool_call_id="c1")
    acted = Message(role="assistant", content="", tool_calls=(second,))
    answered = Message(role="tool", content="done", tool_call_id="c2")
    messages = (Message(role="user", content="Do it."), asked, told, acted, answered)
    calls = (
        ModelCall(turn=1, context=CONTEXT, delivered=((0, 1),), proposed=asked, observations=(observe(0, first, observed),)),
        ModelCall(turn=2, context=CONTEXT, delivered=((0, 3),), proposed=acted, observations=(observe(0, second, "done"),)),
    )
    label = Label(
        scorer="judge",
        violation=flagged,
        match_key="arguments+observation",
        turn=2 if flagged else None,
        position=0 if flagged else None,
        schema_check=False,
    )
    whole = Transcript(messages=messages, calls=calls, final=((0, 5),))
    fields: dict[str, Any] = {"instance": "i1", "run": record, "events": ()}
    fields |= {"labels": (label,), "transcript": whole, "harness": HARNESS, "source": Source(path="log"), **changes}
    return Episode(record=record, **fields)


def observe(position: int, call: ToolCall, text: str) -> Observation:
    return Observation(position=position, call=call, executed=True, raw=text, delivered=text)


def relabel(episode: Episode, **changes: Any) -> Episode:
    return replace(episode, labels=tuple(replace(label, **changes) for label in episode.labels))
