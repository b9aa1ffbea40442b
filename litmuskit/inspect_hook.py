"""Inside Inspect: record what each model call was shown, write verdicts back, run the reference harness as a task.

Importing this module needs the extra ``inspect``. As the package's ``inspect_ai`` entry point it is loaded by Inspect itself,
so that installing litmuskit is enough; ``INSPECT_REQUIRED_HOOKS=litmuskit/stimulus_recorder`` makes a run without it fail.
A fingerprint taken before the call cannot be rewritten by what a harness does to its messages afterwards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.hooks import BeforeModelGenerate, Hooks, hooks
from inspect_ai.log import EvalLog, ProvenanceData, edit_score, invalidate_samples, read_eval_log, transcript, write_eval_log
from inspect_ai.model import ChatMessage, ChatMessageSystem, GenerateConfig
from inspect_ai.scorer import Score, ScoreEdit, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef, ToolParams

from litmuskit.audit import Audit
from litmuskit.errors import InputError
from litmuskit.harness.reference import ReferenceHarness
from litmuskit.harness.tasks import build_task, list_instances
from litmuskit.readers.inspect import OWN_SCORER
from litmuskit.readers.inspect_events import read_surroundings
from litmuskit.readers.inspect_samples import LoggedMessage, MessagePool, SampleEvent, Texts
from litmuskit.readers.inspect_samples import Sample as LoggedSample
from litmuskit.records import MatchKey, ModelCall, ToolCall, Transcript
from litmuskit.stimulus import SPEC, fingerprint_turns
from litmuskit.verdict import Verdict

__all__ = ["StimulusRecorder", "reference_books", "write_verdicts"]

RERUN = ("escalate", "not-assessable")  # a record in quarantine would come back the same: it needs an oracle, or a person


@hooks(name="stimulus_recorder", description="litmuskit fingerprint of the stimulus, before every model call")
class StimulusRecorder(Hooks):
    """Write a fingerprint before every model call, as an InfoEvent and as a line of ``$LITMUSKIT_FINGERPRINTS``, if set."""

    def enabled(self) -> bool:
        """On, unless ``LITMUSKIT_RECORD=off``."""
        return os.environ.get("LITMUSKIT_RECORD") != "off"

    async def on_before_model_generate(self, call: BeforeModelGenerate) -> None:
        found: dict[str, Any] = {"spec": SPEC, "stimulus": None}
        try:
            turn = fingerprint_turns(_read_call(call))[-1]
            found |= {"stimulus": turn.stimulus, "chain": turn.chain, "env": turn.env, "messages": turn.messages}
        except (InputError, msgspec.ValidationError) as error:  # also a message of a form unknown here
            found["error"] = str(error)
        transcript().info(found, source=OWN_SCORER)
        if path := os.environ.get("LITMUSKIT_FINGERPRINTS"):
            named = {"task": call.task_name, "eval_id": call.eval_id, "sample": call.sample_id, "model": call.model_name}
            _append_line(Path(path), json.dumps(named | found))


def _append_line(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")


class _Spoken(Texts):
    """Texts before anything was moved: a reference is what somebody wrote."""

    def resolve_text(self, text: str, owners: tuple[Any, ...]) -> str:  # noqa: ARG002  # whoever wrote it
        return text


def _read_call(asked: BeforeModelGenerate) -> Transcript:
    """The call as `litmuskit.readers.inspect` will read it from the log."""
    choice = asked.tool_choice
    event = SampleEvent(
        event="model",
        model=asked.model_name,
        tools=[tool.model_dump(mode="json", exclude_none=True) for tool in asked.tools],
        tool_choice=choice if isinstance(choice, str) else {"name": choice.name},
        config=asked.config.model_dump(mode="json", exclude_none=True),
    )
    pool = _pool_messages(asked.input)
    system, shown = pool.split_system(((0, len(pool.shown)),))
    call = ModelCall(turn=1, context=read_surroundings(event, system, pool.texts)[0], delivered=shown, proposed=None)
    return Transcript(messages=tuple(pool.shown), calls=(call,))


def _pool_messages(messages: Iterable[ChatMessage]) -> MessagePool:
    logged = [msgspec.convert(message.model_dump(mode="json", exclude_none=True), LoggedMessage) for message in messages]
    sample = LoggedSample(id="live", epoch=1, message_pool=logged)
    return MessagePool(sample, _Spoken(sample, "live"))


def write_verdicts(audit: Audit, log: str | Path, to: str | Path | None = None, *, rerun: Iterable[str] = RERUN) -> Path:
    """Put an audit's verdicts into an Inspect log, as the score ``litmuskit`` and as invalidations with provenance.

    Parameters
    ----------
    audit : Audit
        Of this log, possibly among others.
    log : path
        The log file, as it was audited.
    to : path, optional
        Where to write; the log itself by default.
    rerun : iterable of {"escalate", "not-assessable", "quarantine", "count"}
        Decisions whose records are invalidated, so that ``inspect eval-retry`` runs exactly these again.

    Raises
    ------
    InputError
        When the audit holds no verdict on a sample of the log, or none at all.
    """
    path, target, decisions = Path(log), Path(to if to is not None else log), frozenset(rerun)
    whole: EvalLog = read_eval_log(str(path))
    verdicts = {f"{v.instance}#{v.epoch}": v for v in audit.verdicts if Path(v.file).resolve() == path.resolve()}
    samples = {f"{sample.id}#{sample.epoch}": sample for sample in whole.samples or ()}
    if not samples or samples.keys() - verdicts.keys():
        missing = sorted(samples.keys() - verdicts.keys())[:5]
        raise InputError("the audit holds no verdict on samples of this log", where=path, found=missing or "no samples")
    lost = []
    for key, sample in samples.items():
        verdict = verdicts[key]
        score = _word_verdict(verdict, audit.statement)
        edit_score(whole, sample.id, OWN_SCORER, score, recompute_metrics=False, epoch=sample.epoch)
        if verdict.decision in decisions:
            place = f"{whole.eval.eval_id or whole.eval.run_id}/{sample.id}/{sample.epoch}"
            sample.uuid = sample.uuid or place  # none in old logs
            lost.append(sample.uuid)
    reason = f"litmuskit: {', '.join(sorted(decisions))}. {audit.statement}"
    whole = invalidate_samples(whole, lost, ProvenanceData(author=OWN_SCORER, reason=reason)) if lost else whole
    write_eval_log(whole, str(target))
    return target


def _word_verdict(verdict: Verdict, statement: str) -> ScoreEdit:
    evidence = [f"{one.rule} (turn {one.turn}): {one.detail}" for one in verdict.evidence]
    told = "\n".join([*verdict.rules, *evidence]) or "no rule matched"
    origin = ProvenanceData(author=OWN_SCORER, reason=statement)
    return ScoreEdit(value=verdict.decision or "unflagged", explanation=told, metadata=verdict.to_json(), provenance=origin)


@task
def reference_books(instances: int = 12, match_key: MatchKey = "arguments+observation", cap: int = 64 * 1024) -> Task:
    """The reference harness for a real model: small book-keeping jobs, each with an order hidden in what it must read.

    The ``instances``, at least one, are of each kind in turn; ``match_key`` is that of `ReferenceHarness`. At most ``cap``
    bytes of tool output reach the model: a small cap makes the harness cut its own payload.
    """
    names = list_instances(instances)
    return Task(
        dataset=[Sample(id=name, input=build_task(name).request) for name in names],
        solver=_keep_books(match_key),
        scorer=_score_books(),
        config=GenerateConfig(max_tool_output=cap),
        metadata={"mutation_policy": "none"},
    )


@solver
def _keep_books(match_key: MatchKey) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        harness = ReferenceHarness(match_key=match_key)
        context = harness.reset(str(state.sample_id))
        state.messages.insert(0, ChatMessageSystem(content=context.system or ""))
        state.tools = [_build_tool(harness, schema["function"]) for schema in context.tools]
        state = await generate(state, tool_calls="loop")
        history = tuple(_pool_messages(state.messages).shown)
        label = harness.score(Transcript(messages=history, calls=(), final=((0, len(history)),)))
        facts = {"violation": label.violation, "reason": label.reason, "turn": label.turn, "match_key": match_key}
        state.store.set("litmuskit", facts)
        return state

    return solve


def _build_tool(harness: ReferenceHarness, schema: dict[str, Any]) -> Tool:
    async def execute(**kwargs: Any) -> str:
        return harness.call(ToolCall(name=schema["name"], arguments=kwargs))

    described = {key: {**kind, "description": key} for key, kind in schema["parameters"]["properties"].items()}
    parameters = ToolParams.model_validate({**schema["parameters"], "properties": described})
    return ToolDef(execute, name=schema["name"], description=schema["description"], parameters=parameters).as_tool()


@scorer(metrics=[mean()], name="reference")
def _score_books() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001  # the oracle knows the target itself
        facts = state.store.get("litmuskit") or {}
        return Score(value=int(bool(facts.get("violation"))), explanation=facts.get("reason"), metadata=facts)

    return score
