"""Inside Inspect, offline: mock model, real hooks, real log editing.

Run with ``pip install -e ".[inspect]"`` (0.3.210 or newer); without the extra these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai", reason='needs the extra: pip install -e ".[inspect]"')

RUN = r'''
import json, sys
from inspect_ai import Task, eval, eval_retry
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, mean, scorer
from inspect_ai.solver import generate, solver, system_message, use_tools
from inspect_ai.tool import tool

def said(output):
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output

def script(*turns):
    for turn in turns:
        if isinstance(turn, str):
            yield said(ModelOutput.from_content("mockllm/model", turn))
        else:
            yield said(ModelOutput.for_tool_call("mockllm/model", *turn))

def mock(*turns):
    return get_model("mockllm/model", custom_outputs=script(*turns))

@tool
def fetch():
    async def execute(url: str, options: dict | None = None):
        """Fetch a page from somewhere that is described here at such length that the description becomes an attachment.

        Args:
            url: where
            options: how
        """
        if url == "denied":
            raise PermissionError("no")
        if url == "image":
            return [ContentText(text="see"), ContentImage(image="data:image/png;base64," + "QUJD" * 40)]
        return {"spoof": "attachment://0123456789abcdef0123456789abcdef", "long": "line\n" * 90}.get(url, url)
    return execute

@scorer(metrics=[mean()])
def violation():
    async def score(state, target):
        return Score(value=1, explanation="forbidden call")
    return score

def finish(task, model, folder, **more):
    log = eval(task, model=model, log_dir=folder, display="none", **more)[0]
    path, error = log.location.removeprefix("file://"), log.error and log.error.message
    print(json.dumps({"status": log.status, "path": path, "error": error}))
'''


def run(script: str, folder: Path, **env: str) -> list[dict]:
    code = f"{RUN}\nFOLDER = {str(folder)!r}\n{script}"
    names = {"NO_COLOR": "1", "COVERAGE_PROCESS_START": "", **env}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **names}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert all(one.get("error") is None for one in found), found
    return found


FAULTY = """
@solver
def edits_late():
    async def solve(state, generate):
        state = await generate(state, tool_calls="single")
        state.messages[-1].content = "edited in place"
        state = await generate(state, tool_calls="single")
        return state
    return solve

TURNS = [("fetch", {"url": "a", "options": {"n": 1.5, "deep": [True, None]}}), ("fetch", {"url": "long"}),
         ("fetch", {"url": "spoof"}), ("fetch", {"url": "image"}), ("fetch", {"url": "denied"}),
         ("fetch", {"wrong": 1}), "done"]
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("recorded")
    script = FAULTY + (
        'task = Task(dataset=[Sample(id="s", input="go")], scorer=violation(), '
        'solver=[system_message("You are careful. " * 20), use_tools(fetch()), generate()])\n'
        "finish(task, mock(*TURNS), FOLDER)"
    )
    lines = folder / "fingerprints.jsonl"
    (found,) = run(script, folder, LITMUSKIT_FINGERPRINTS=str(lines), INSPECT_REQUIRED_HOOKS="litmuskit/stimulus_recorder")
    assert found["status"] == "success"
    return Path(found["path"]), lines


def test_live_post_hoc_and_api_fingerprints_are_equal(recorded: tuple[Path, Path]) -> None:
    from litmuskit.readers import read_log
    from litmuskit.stimulus import fingerprint, fingerprint_turns

    path, lines = recorded
    (episode,) = read_log(path, violation="violation=1")
    post_hoc = [turn.stimulus for turn in fingerprint_turns(episode.transcript)]
    assert len(post_hoc) == 7
    assert list(episode.live) == post_hoc
    assert [json.loads(line)["stimulus"] for line in lines.read_text().splitlines()] == post_hoc
    for call in episode.transcript.calls:
        messages = [
            {"role": m.role, "content": m.content, "tool_call_id": m.tool_call_id, "error": m.error}
            | (
                {"tool_calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in m.tool_calls]}
                if m.tool_calls
                else {}
            )
            for m in episode.transcript.delivered(call.turn)
        ]
        around = {"system": call.context.system, "tools": list(call.context.tools), "opts": dict(call.context.opts)}
        assert fingerprint({**around, "messages": messages}).stimulus[-1] == post_hoc[call.turn - 1]


def test_a_spoofed_attachment_is_literal_live_and_post_hoc(recorded: tuple[Path, Path]) -> None:
    from litmuskit.readers import read_log

    (episode,) = read_log(recorded[0], violation="violation=1")
    assert episode.transcript.delivered(4)[-1].text == "attachment://0123456789abcdef0123456789abcdef"
    assert episode.transcript.calls[0].context.tools[0]["description"].startswith("Fetch a page")


def test_a_late_edit_shows_against_the_live_record(tmp_path: Path) -> None:
    from litmuskit.artifacts import find_artifacts
    from litmuskit.readers import read_log
    from litmuskit.stimulus import fingerprint_turns

    script = FAULTY + (
        'task = Task(dataset=[Sample(id="s", input="go")], scorer=violation(), solver=[use_tools(fetch()), edits_late()])\n'
        "finish(task, mock(TURNS[0], TURNS[1], 'done'), FOLDER)"
    )
    (found,) = run(script, tmp_path)
    (episode,) = read_log(found["path"], violation="violation=1")
    assert [turn.stimulus for turn in fingerprint_turns(episode.transcript)] == list(episode.live)
    assert {one.kind for one in find_artifacts(episode)} & {"late-edit", "mutation"}


def test_an_unfingerprintable_stimulus_is_said_not_guessed(tmp_path: Path) -> None:
    from litmuskit.readers import read_log

    script = FAULTY + (
        'task = Task(dataset=[Sample(id="s", input="go")], scorer=violation(), solver=[use_tools(fetch()), generate()])\n'
        'finish(task, mock(("fetch", {"url": "a", "options": {"n": 2**60}}), "done"), FOLDER)'
    )
    (found,) = run(script, tmp_path)
    (episode,) = read_log(found["path"], violation="violation=1")
    assert episode.live[0] is not None
    assert episode.live[1] is None


def test_a_missing_required_hook_stops_the_run(tmp_path: Path) -> None:
    script = 'finish(Task(dataset=[Sample(input="go")], solver=generate()), mock("x"), FOLDER)'
    with pytest.raises(AssertionError, match="Required hook"):
        run(script, tmp_path, INSPECT_REQUIRED_HOOKS="litmuskit/no_such_hook")


REFERENCE = """
from litmuskit.harness.agents import start_agent
from litmuskit.harness.tasks import CONTEXT, build_task, list_instances
from litmuskit.records import Message
from litmuskit.inspect_hook import reference_books

def play(input, tools, tool_choice, config):
    # one scripted agent per request text; the mock model sees only messages
    request = next(m.text for m in input if m.role == "user")
    name = NAMES[request]
    if len(input) == 2:
        RUNNING[name] = start_agent(HABIT[name], build_task(name), nonce="n", recurring_ids=False)
    from litmuskit.records import ToolCall
    shown = [Message(role=m.role, content=m.text, tool_call_id=getattr(m, "tool_call_id", None)) for m in input[1:]]
    reply = RUNNING[name](CONTEXT, shown)
    from inspect_ai.tool import ToolCall as Call
    from inspect_ai.model import ChatMessageAssistant, ChatCompletionChoice
    calls = [Call(id=c.id, function=c.name, arguments=dict(c.arguments)) for c in reply.tool_calls]
    message = ChatMessageAssistant(content=reply.text, tool_calls=calls or None, source="generate")
    stop = "tool_calls" if calls else "stop"
    return said(ModelOutput(model="mockllm/model", choices=[ChatCompletionChoice(message=message, stop_reason=stop)]))

NAMES = {build_task(name).request: name for name in list_instances(6)}
HABIT = {name: ["refuse", "comply", "repair"][number % 3] for number, name in enumerate(list_instances(6))}
RUNNING = {}
model = get_model("mockllm/model", custom_outputs=play)
"""


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("books")
    script = REFERENCE + "for cap in (65536, 300):\n    finish(reference_books(instances=6, cap=cap), model, FOLDER)"
    whole, cut = run(script, folder)
    return {"whole": Path(whole["path"]), "cut": Path(cut["path"])}


def test_the_reference_harness_is_an_inspect_task(books: dict[str, Path]) -> None:
    from litmuskit.artifacts import find_artifacts
    from litmuskit.readers import read_log

    episodes = list(read_log(books["whole"], violation="reference=1"))
    flagged = {e.instance for e in episodes if e.flagged}
    assert flagged == {"tickets/0", "invoices/1"}
    assert {label.match_key for e in episodes for label in e.labels} == {"arguments+observation"}
    assert {e.harness.policies["truncation"].version.partition(" ")[0] for e in episodes} == {"65536"}
    assert not [one for e in episodes for one in find_artifacts(e)]
    assert all(e.live for e in episodes)


def test_verdicts_go_back_as_scores_and_invalidations(books: dict[str, Path], tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    from litmuskit.audit import audit_log
    from litmuskit.errors import InputError
    from litmuskit.inspect_hook import write_verdicts
    from litmuskit.readers import read_log

    audit = audit_log(read_log(books["cut"], violation="reference=1"))
    decisions = {v.record.partition("#")[2]: v.decision for v in audit.verdicts}
    assert "escalate" in decisions.values()
    out = write_verdicts(audit, books["cut"], tmp_path / "judged.eval")
    log = read_eval_log(str(out))
    assert log.invalidated
    for sample in log.samples:
        decision = decisions[f"{sample.id}#{sample.epoch}"]
        assert sample.scores["litmuskit"].value == (decision or "unflagged")
        assert (sample.invalidation is not None) == (decision in {"escalate", "not-assessable"})
        assert sample.invalidation is None or sample.invalidation.author == "litmuskit"
    again = list(read_log(out, violation="reference=1"))
    assert [label.scorer for e in again for label in e.labels] == ["reference"] * 6
    assert not any(e.edited or e.invalidated for e in again)
    assert {
        v.record.partition("#")[2]: v.decision for v in audit_log(read_log(out, violation="reference=1")).verdicts
    } == decisions
    everything = write_verdicts(audit, books["cut"], tmp_path / "all.eval", rerun=("escalate", "quarantine", "not-assessable"))
    lost = sum(sample.invalidation is not None for sample in read_eval_log(str(everything)).samples)
    assert lost == sum(decision in {"escalate", "quarantine", "not-assessable"} for decision in decisions.values())
    with pytest.raises(InputError, match="no verdict"):
        write_verdicts(audit, books["whole"], tmp_path / "other.eval")


@pytest.mark.parametrize("name", ["re#run!1.eval", "plain.json"])
def test_verdicts_find_their_samples_whatever_the_file_and_the_samples_are_called(tmp_path: Path, name: str) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log
    from test_readers_inspect_made import SIMPLE, write_eval

    from litmuskit.audit import audit_log
    from litmuskit.inspect_hook import write_verdicts
    from litmuskit.readers import read_log

    stamped = [{**event, "timestamp": "2026-11-30T10:00:01+00:00"} for event in SIMPLE["events"]]
    plain = {**SIMPLE, "events": stamped, "target": ""}
    failed = {**plain, "error": {"message": "lost", "traceback": "", "traceback_ansi": ""}}
    samples = [{**one, "id": ident, "epoch": n} for ident, one in (("a#1", failed), ("1#a", plain)) for n in (1, 2)]
    whole = read_eval_log(str(write_eval(tmp_path / "made.eval", *samples)))
    assert {sample.uuid for sample in whole.samples} == {None}
    write_eval_log(whole, str(tmp_path / name))
    audit = audit_log(read_log(tmp_path / name, violation="violation=1"))
    assert {(v.instance, v.epoch) for v in audit.verdicts if v.decision == "not-assessable"} == {("a#1", 1), ("a#1", 2)}
    written = read_eval_log(str(write_verdicts(audit, tmp_path / name)))
    assert {(sample.id, sample.epoch) for sample in written.samples if sample.invalidation} == {("a#1", 1), ("a#1", 2)}
    assert {sample.scores["litmuskit"].value for sample in written.samples if sample.error is None} == {"quarantine"}


def test_eval_retry_runs_exactly_the_invalidated_records_again(books: dict[str, Path], tmp_path: Path) -> None:
    from litmuskit.audit import audit_log
    from litmuskit.inspect_hook import write_verdicts
    from litmuskit.readers import read_log

    audit = audit_log(read_log(books["cut"], violation="reference=1"))
    lost = {v.instance for v in audit.verdicts if v.decision in {"escalate", "not-assessable"}}
    out = write_verdicts(audit, books["cut"], tmp_path / "judged.eval")
    script = REFERENCE + (
        f"log = read_eval_log({str(out)!r})\n"
        "import inspect_ai.model._providers.mockllm as provider\n"
        "first = provider.MockLLM.__init__\n"
        "def start(self, *args, **more):\n"
        "    more['custom_outputs'] = play\n"
        "    first(self, *args, **more)\n"
        "provider.MockLLM.__init__ = start\n"
        "log = eval_retry(log, log_dir=FOLDER, display='none')[0]\n"
        "print(json.dumps({'status': log.status, 'path': log.location.removeprefix('file://')}))"
    )
    (found,) = run(script, tmp_path)
    assert found["status"] == "success"
    again = list(read_log(found["path"], violation="reference=1"))
    assert {e.instance for e in again if not e.copied} == lost
    assert len(again) == 6
