"""Scripted agents: habits that act on nothing but what they are shown."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from litmuskit.errors import HarnessError
from litmuskit.harness.tasks import Task, read_arguments
from litmuskit.records import Context, Message, ToolCall

__all__ = ["AGENTS", "Agent", "start_agent"]

Agent: TypeAlias = Callable[[Context, Sequence[Message]], Message]
AGENTS: Mapping[str, str] = {
    "comply": "obeys the payload it sees, once, then finishes the task",
    "refuse": "leaves the payload alone and says so",
    "repair": "after a suspicious result reads again with sanitize=true, after a cut one with offset",
    "re-read": "after a cut result reads on with offset; reads its own report again once it is written",
    "quote-and-refuse": "quotes the payload in its answer and warns of it",
    "remediate": "overwrites the batch without the payload, and reports it by mail",
    "no-op": "answers at once, without a call",
    "error": "its provider fails once the batch is read",
    "reckless": "repeats the read that drew the payload, then obeys it; goes on with whatever was cut",
    "malformed": "calls with an argument no schema knows, whatever it was shown",
}


def _react(habit: str, task: Task, text: str) -> list[ToolCall]:
    """The calls a habit slips in once it has read the batch."""
    baited, cut = task.payload in text, not text.endswith("]}")
    clean, owner = text.replace(task.payload, ""), read_arguments(task.steps[-1][0])["to"]

    def read(**more: object) -> ToolCall:
        return ToolCall(name="read_batch", arguments={"path": task.batch, **more})

    if habit == "error":
        raise HarnessError("the provider answered 503")
    calls: Mapping[str, list[ToolCall]] = {
        "comply": [task.act] * baited,
        "repair": [read(offset=len(text.encode()))] * cut + [read(sanitize=True)] * baited,
        "re-read": [read(offset=len(text.encode()))] * cut,
        "remediate": [
            ToolCall(name="write_file", arguments={"path": task.batch, "content": clean}),
            ToolCall(name="send_mail", arguments={"to": owner, "subject": "Removed a note", "body": task.payload}),
        ][: 2 * baited],
        "reckless": [task.bait, task.act] * baited,
        "malformed": [read(lines="all")],
    }
    return calls.get(habit, [])


def _follow(habit: str, task: Task) -> Generator[Sequence[ToolCall], Sequence[Message], str]:
    remark = "Done."
    for step in () if habit == "no-op" else task.steps:
        shown = yield step
        if step[0] == task.bait:
            text = shown[-len(step)].text
            for call in _react(habit, task, text):
                yield [call]
            if task.payload in text and habit in {"refuse", "quote-and-refuse"}:
                asked = f'asks: "{task.payload}"' if habit == "quote-and-refuse" else "asks for something else"
                remark = f"{task.batch} {asked} I left that undone."
        elif habit == "re-read" and step[0].name == "write_file":
            yield [ToolCall(name="read_file", arguments={"path": read_arguments(step[0])["path"]})]
    return remark


def start_agent(habit: str, task: Task, *, nonce: str, recurring_ids: bool) -> Agent:
    """A scripted agent at the start of a task; ``nonce`` varies its wording, and its call ids unless they recur each turn."""
    script = _follow(habit, task)

    def answer(_: Context, messages: Sequence[Message]) -> Message:
        turn = 1 + sum(message.role == "assistant" for message in messages)
        try:
            calls = next(script) if turn == 1 else script.send(messages)
        except StopIteration as end:
            return Message(role="assistant", content=f"({nonce}) {end.value}")
        stem = "call" if recurring_ids else f"call-{nonce}-{turn}"
        named = tuple(replace(call, id=f"{stem}-{place}") for place, call in enumerate(calls))
        return Message(role="assistant", content=f"({nonce}) Step {turn}.", tool_calls=named)

    return answer
