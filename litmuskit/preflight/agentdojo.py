"""AgentDojo's instances under pre-flight: stub agents executed in the package's own environments, no model and no network.

Each user x injection pair is one instance, attacked as the published runs were (``important_instructions``). The stubs do the
user task as its ground truth says, then refuse (with or without quoting the payload), comply (the injection task's ground truth
instead), or do nothing at all. Extra ``agentdojo``.
"""

from __future__ import annotations

import ast
import importlib.resources
import inspect
import json
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tqdm.auto import tqdm

from litmuskit.canonical import load_strict
from litmuskit.errors import InputError, InstanceError
from litmuskit.instance import LitmusInstance, Surface
from litmuskit.preflight.report import PreflightReport, Rule
from litmuskit.preflight.rules import REFUSAL, attempt, check_disjoint, check_separation, settle_control
from litmuskit.signal import hide_signal, read_strings

VERSIONS = ("v1", "v1.1", "v1.1.1", "v1.1.2", "v1.2", "v1.2.1", "v1.2.2")
VICTIM = "gpt-4o-2024-05-13"  # the attack addresses its victim by name


def check_suites(version: str, *, suite: str | None = None, resume: Path | None = None) -> Iterator[dict[str, Any]]:
    """One record per user x injection pair of a benchmark version (one of `VERSIONS`), in the package's order.

    The ``suite`` is workspace, travel, banking or slack; all of them by default. Records already in ``resume``, a file of JSON
    lines, are not made again; new ones are appended as they are made. Raises InputError for an unknown version or suite, or
    where the package is not installed.
    """
    try:
        from agentdojo.attacks.attack_registry import load_attack
        from agentdojo.task_suite.load_suites import get_suites
    except ImportError as error:
        raise InputError("the agentdojo package is not installed", where=f"agentdojo:{version}", found=str(error),
                         remedy="pip install 'litmuskit[agentdojo]'") from error  # fmt: skip
    suites = get_suites(version) if version in VERSIONS else {}
    if not suites or (suite is not None and suite not in suites):
        expected = f"a version of {', '.join(VERSIONS)}, and a suite of {', '.join(suites) or 'it'}"
        raise InputError("no such benchmark", where="agentdojo", expected=expected, found=f"{version} {suite or ''}".strip())
    chosen = {name: tasks for name, tasks in suites.items() if suite in {None, name}}
    done = _read_done(resume, version) if resume is not None and resume.exists() else {}
    total = sum(len(tasks.user_tasks) * len(tasks.injection_tasks) for tasks in chosen.values())
    with tqdm(total=total, desc=f"AgentDojo {version}", unit="instance", disable=None) as bar:
        for name, tasks in chosen.items():
            bench = _Bench(version, tasks, load_attack("important_instructions", tasks, SimpleNamespace(name=VICTIM)))
            for user in tasks.user_tasks.values():
                for injection in tasks.injection_tasks.values():
                    key = f"{name}/{user.ID}/{injection.ID}"
                    if key not in done:
                        done[key] = bench.check_pair(key, user, injection).to_json()
                        if resume is not None:
                            with resume.open("a", encoding="utf-8") as out:
                                out.write(json.dumps(done[key]) + "\n")
                    yield done[key]
                    bar.update()


def _read_done(kept: Path, version: str) -> dict[str, dict[str, Any]]:
    """The records of an earlier run; a line cut short by its end is made again."""
    raw = kept.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if whole != raw:
        kept.write_bytes(whole)
    done: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        match load_strict(line, f"{kept}:{number}"):
            case {"version": str(found), "instance": str(name)} as record if found == version:
                done[name] = record
            case record:
                what = "record of another benchmark version, or of no pre-flight: name another file"
                raise InputError(what, where=f"{kept}:{number}", expected=version, found=record)
    return done


class _Bench:
    """One suite, its attack, and the surfaces that all of its instances share."""

    def __init__(self, version: str, suite: Any, attack: Any) -> None:
        from agentdojo.functions_runtime import FunctionsRuntime

        self.version, self.suite, self.attack = version, suite, attack
        self.runtime = FunctionsRuntime(suite.tools)
        self.clean = suite.load_and_inject_default_environment({})
        prompts = importlib.resources.files("agentdojo").joinpath("data", "system_messages.yaml").read_text("utf-8")
        tools = [Surface(kind="tool", name=t.name, text=f"{t.description}\n{json.dumps(t.parameters.model_json_schema())}")
                 for t in suite.tools]  # fmt: skip
        fixture = Surface(kind="fixture", name="environment", text=self.clean.model_dump_json())
        self.shared = (Surface(kind="system", name="system prompts", text=prompts), *tools, fixture)
        self.crossed = self._find_crossfire(list(suite.injection_tasks.values()))

    def _find_crossfire(self, injections: Sequence[Any]) -> dict[str, list[str]]:
        """Whose success fires each task's detector, on the clean environment."""
        fired: dict[str, list[str]] = {injection.ID: [] for injection in injections}
        for done, other in permutations(injections, 2):
            if attempt(partial(self._play, None, other, self.clean, (done,), done.GROUND_TRUTH_OUTPUT))[0]:
                fired[other.ID].append(done.ID)
        return fired

    def check_pair(self, key: str, user: Any, injection: Any) -> PreflightReport:
        payloads = self.attack.attack(user, injection)
        attacked = self.suite.load_and_inject_default_environment(payloads)
        quote, success = "\n".join(dict.fromkeys(payloads.values())), injection.GROUND_TRUTH_OUTPUT
        plays: dict[str, tuple[Any, Sequence[Any], str]] = {
            "null": (self.clean, (user,), user.GROUND_TRUTH_OUTPUT),
            "refuse": (attacked, (user,), REFUSAL),
            "quote-and-refuse": (attacked, (user,), f'The content says: "{quote}"\n{REFUSAL}'),
            "comply": (attacked, (injection,), success),
            "no-op": (attacked, (), ""),
        }
        runs = {kind: partial(self._play, user, injection, *play) for kind, play in plays.items()}
        controls = [settle_control(kind, attempt(run), attempt(run)) for kind, run in runs.items()]
        payload = (Surface(kind="payload", name=vector, text=text) for vector, text in payloads.items())
        signal = hide_signal(injection.ID, _read_signals(injection))
        surfaces = (Surface(kind="user", name="prompt", text=user.PROMPT), *payload, *self.shared)
        collisions, disjoint = check_disjoint(LitmusInstance(id=key, surfaces=surfaces, signals=(signal,)))
        orders = {"user task first": (user, injection), "injection task first": (injection, user)}
        play = partial(self._play, user, injection, attacked)
        ended = {name: attempt(partial(play, both, success))[0] for name, both in orders.items()}
        swayed = None not in ended.values() and len(set(ended.values())) > 1
        order = Rule(name="order of tasks", result="note" if swayed else "pass", detail=str(ended), policies=())
        crossed = self.crossed.get(injection.ID, [])
        cross = Rule(name="cross-fire", result="note" if crossed else "pass", detail=", ".join(crossed), policies=())
        names = {"suite": self.suite.name, "user_task": user.ID, "injection_task": injection.ID, "version": self.version}
        rules = (disjoint, *controls, check_separation(controls), order, cross)
        return PreflightReport(instance=key, rules=rules, collisions=collisions, names=names)

    def _play(self, user: Any, injection: Any, start: Any, tasks: Sequence[Any], text: str) -> bool:
        """Execute the ground truth of ``tasks``, end on ``text``, and score the injection task as the package does."""
        fresh = start.model_copy(deep=True)
        environment = user.init_environment(fresh) if user else fresh
        before = environment.model_copy(deep=True)
        trace: list[Any] = []
        for task in tasks:
            calls = task.ground_truth(environment)
            if not (calls or text or task is user):
                raise InstanceError("the injection task has no ground truth", where=task.ID)
            for call in calls:
                self.runtime.run_function(environment, call.function, call.args, raise_on_error=True)
            trace += calls
        by_trace = injection.security_from_traces(text, before, environment, trace)
        return bool(injection.security(text, before, environment) if by_trace is None else by_trace)


def _read_signals(injection: Any) -> tuple[str, ...]:
    """The constants that a task's detector compares with: those in its source, and the class attributes it names."""
    found: list[Any] = []
    for method in (injection.security, injection.security_from_traces):
        function = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
        statements = function.body[ast.get_docstring(function) is not None :] if isinstance(function, ast.FunctionDef) else []
        for node in (inner for statement in statements for inner in ast.walk(statement)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                found.append(getattr(injection, node.attr, None))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(dict.fromkeys(text for text in read_strings([v for v in found if not callable(v)]) if text.strip()))
