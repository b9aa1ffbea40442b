"""Many episodes under faults, beside the same instances without: what an audit can be held against."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError, name_all
from litmuskit.harness.agents import AGENTS
from litmuskit.harness.episode import Truth, run_episode
from litmuskit.harness.faults import check_faults, require_number
from litmuskit.harness.reference import ReferenceHarness
from litmuskit.harness.tasks import list_instances
from litmuskit.instance import LitmusInstance
from litmuskit.records import Episode, MatchKey

__all__ = ["Simulation", "run_log", "simulate_episodes", "write_simulation"]

REFERENCE = ("refuse", "comply", "quote-and-refuse", "no-op", "repair", "re-read", "remediate", "reckless")
CONTROLS = REFERENCE[:4]  # those whose right label is known in advance, under any key


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Tabular):
    """Episodes under faults, the truth of each, and a fault-free ``reference`` to calibrate an oracle on.

    ``controls`` maps records of the reference to the kind of control they are: the ``expected`` of `litmuskit.calibrate`.
    """

    episodes: tuple[Episode, ...]
    truth: tuple[Truth, ...]
    reference: tuple[Episode, ...]
    controls: Mapping[str, str]
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        flagged = sum(truth.flagged for truth in self.truth)
        violated = sum(truth.violated for truth in self.truth)
        return f"Simulation({len(self.episodes):,} episodes, {flagged:,} flagged, {violated:,} violated)"

    @property
    def instances(self) -> tuple[LitmusInstance, ...]:
        """The instances that were run, for their pre-flight: see `ReferenceHarness.describe`."""
        harness = ReferenceHarness(match_key=self.settings["match_key"])
        return tuple(harness.describe(name) for name in dict.fromkeys(episode.instance for episode in self.episodes))

    def to_table(self) -> Table:
        """Per agent: what was flagged, what was so, and what a fault struck before the flag."""
        rows = []
        for agent in dict.fromkeys(truth.agent for truth in self.truth):
            group = [truth for truth in self.truth if truth.agent == agent]
            flagged = [truth for truth in group if truth.flagged]
            counts = (len(group), len(flagged), sum(truth.violated for truth in group))
            rows.append((agent, *counts, sum(not t.violated for t in flagged), sum(t.faulted for t in flagged)))
        columns = ("agent", "episodes", "flagged", "violated", "flagged falsely", "fault before flag")
        caption = f"Simulated episodes, match key {self.settings['match_key']}"
        return Table(columns=columns, rows=tuple(sorted(rows)), caption=caption)

    def confusion(self, decisions: Any = None) -> Table:
        """Truth by decision, every episode once.

        Parameters
        ----------
        decisions : audit, iterable of verdicts or mapping of records to decisions, optional
            Without any, the harness's own labels: flagged or not.
        """
        if decisions is None:
            found = {truth.record: "flagged" if truth.flagged else None for truth in self.truth}
        elif isinstance(decisions, Mapping):
            found = dict(decisions)
        else:
            found = {verdict.record: verdict.decision for verdict in getattr(decisions, "verdicts", decisions)}
        if missing := sorted({truth.record for truth in self.truth} - set(found)):
            raise InputError("records without a decision", where="decisions", found=name_all(missing))
        columns = list(dict.fromkeys(found[truth.record] or "unflagged" for truth in self.truth))
        tally = Counter((_describe(truth), found[truth.record] or "unflagged") for truth in self.truth)
        rows = tuple((row, *(tally[row, column] for column in columns)) for row in sorted({row for row, _ in tally}))
        return Table(columns=("truth", *columns), rows=rows, caption=f"Truth by decision, {len(self.truth):,} episodes")


def _describe(truth: Truth) -> str:
    struck = "fault before the flag" if truth.faulted else "no fault before the flag" if truth.flagged else "not flagged"
    return f"{'violation' if truth.violated else 'no violation'}, {struck}"


def simulate_episodes(
    episodes: int = 1000,
    *,
    faults: Mapping[str, float] | None = None,
    agents: Mapping[str, float] | None = None,
    match_key: MatchKey = "arguments+observation",
    instances: int = 40,
    seed: int = 0,
    reference_faults: Mapping[str, float] | None = None,
    declare: bool = False,
    recurring_ids: bool = True,
) -> Simulation:
    """Run scripted agents through the harness, with faults and without.

    Parameters
    ----------
    episodes : int
        How many, 1 or more, over the ``instances`` in turn.
    faults : mapping, optional
        Names in `FAULTS` to rates in [0, 1]; ``truncate`` to a cap in bytes. None: a sound harness.
    agents : mapping, optional
        Names in `AGENTS` to shares in [0, 1], together at most 1; what is left refuses. None: equal shares of all.
    match_key : {"arguments+observation", "arguments", "state", "text"}
        What the grader compares: see `ReferenceHarness`.
    instances : int
        How many tasks, 1 or more.
    seed : int
        Of agents, faults and wording; what a file holds depends on the instance alone.
    reference_faults : mapping, optional
        Faults of the reference run: with the cap of the run, its oracle was *regenerated* against the cut results.
    declare, recurring_ids : bool
        As for `run_episode`.

    Returns
    -------
    Simulation
        The run, its reference and control runs, and the truth about every flag.

    Raises
    ------
    InputError
        An unknown name, a rate outside [0, 1], shares above 1, fewer than one episode or instance.

    Examples
    --------
    >>> simulate_episodes(40, faults={"replay": 1.0}, agents={"repair": 1.0}, match_key="arguments")
    Simulation(40 episodes, 40 flagged, 0 violated)
    """
    settings: dict[str, Any] = {"faults": faults, "match_key": match_key, "instances": instances}
    logging: dict[str, Any] = {"declare": declare, "recurring_ids": recurring_ids}
    pairs = run_log(episodes, agents=agents, seed=seed, **settings, **logging)
    run = partial(run_episode, harness=ReferenceHarness(match_key=match_key), seed=f"{seed}/reference", faults=reference_faults)
    reference = tuple(
        run(name, agent, epoch=epoch, declare=declare, recurring_ids=recurring_ids)[0]
        for name in list_instances(instances)[:episodes]
        for epoch, agent in enumerate(REFERENCE, 1)
    )
    return Simulation(
        episodes=tuple(episode for episode, _ in pairs),
        truth=tuple(truth for _, truth in pairs),
        reference=reference,
        controls={episode.record: agent for episode in reference if (agent := episode.groups["agent"]) in CONTROLS},
        settings={**settings, **logging, "agents": agents, "seed": seed},
    )


def run_log(
    episodes: int = 1000,
    *,
    faults: Mapping[str, float] | None = None,
    agents: Mapping[str, float] | None = None,
    match_key: MatchKey = "arguments+observation",
    instances: int = 40,
    seed: int = 0,
    declare: bool = False,
    recurring_ids: bool = True,
) -> list[tuple[Episode, Truth]]:
    """The episodes of `simulate_episodes` with the truth of each, without a reference."""
    for name, value in (("episodes", episodes), ("instances", instances)):
        if type(value) is not int or not 1 <= value <= 10**7:
            raise InputError("not a count", where=name, expected="int from 1 to 10,000,000", found=value)
    shares = _check_agents({name: 1 / len(AGENTS) for name in AGENTS} if agents is None else agents)
    names, faults, choose = list_instances(instances), check_faults(faults), Random(f"{seed}/agents")
    chosen = choose.choices([*shares], [*shares.values()], k=episodes)
    harness = ReferenceHarness(match_key=match_key)
    run = partial(run_episode, harness=harness, seed=seed, faults=faults, declare=declare, recurring_ids=recurring_ids)
    return [run(names[n % instances], agent, epoch=n // instances + 1) for n, agent in enumerate(chosen)]


def _check_agents(agents: Mapping[str, float]) -> dict[str, float]:
    for name, share in agents.items():
        if name not in AGENTS:
            raise InputError("unknown agent", where="agents", expected=f"one of {', '.join(AGENTS)}", found=name)
        require_number(share, f"agents.{name}", 0, 1)
    rest = 1 - sum(agents.values())
    if rest < -1e-9:
        raise InputError("shares of agents exceed 1", where="agents", found=sum(agents.values()))
    return {**agents, "refuse": agents.get("refuse", 0.0) + max(rest, 0.0)}


def write_simulation(simulation: Simulation, directory: str | Path) -> tuple[Path, Path, Path]:
    """Write ``log.jsonl``, ``reference.jsonl`` and ``truth.jsonl`` (a line per episode) into ``directory``; their paths."""
    from litmuskit.readers.jsonl import write_log

    home = Path(directory)
    home.mkdir(parents=True, exist_ok=True)
    paths = home / "log.jsonl", home / "reference.jsonl", home / "truth.jsonl"
    write_log(paths[0], simulation.episodes, simulation.episodes[0].harness)
    write_log(paths[1], simulation.reference, simulation.reference[0].harness)
    lines = (asdict(truth) | {"violated": truth.violated} for truth in simulation.truth)
    paths[2].write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return paths
