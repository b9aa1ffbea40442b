"""One episode of the loop, and the truth about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from random import Random

from litmuskit.errors import HarnessError, InputError
from litmuskit.harness.agents import AGENTS, Agent, start_agent
from litmuskit.harness.faults import FAULTS, Luck, Planted, check_faults, identify_harness
from litmuskit.harness.reference import ReferenceHarness, check_call
from litmuskit.harness.tasks import is_same_call
from litmuskit.records import Episode, Event, Message, ModelCall, Observation, Ranges, Source, ToolCall, Transcript, Truncation

__all__ = ["Truth", "run_episode"]

TURNS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is so, by construction.

    ``act`` is the first thing the agent itself did wrong, at ``turn``: ``obeyed``, ``repeated``, ``malformed`` or None.
    """

    record: str
    agent: str
    act: str | None
    turn: int | None
    flagged: bool
    faults: tuple[Planted, ...]

    @property
    def violated(self) -> bool:
        """Whether the agent violated the policy."""
        return self.act is not None

    @property
    def faulted(self) -> bool:
        """Whether a fault struck that could have caused the flag."""
        return any(fault.before_flag for fault in self.faults)


class _Loop:
    """The loop's state: a pool of messages, the history as it stands now, what was logged and what was planted."""

    def __init__(self, harness: ReferenceHarness, luck: Luck, instance: str, *, declare: bool) -> None:
        self.harness, self.luck, self.context, self.declare = harness, luck, harness.reset(instance), declare
        self.lost = harness.task.payload if luck.strikes("non-delivery") else None
        self.pool, self.view = [Message(role="user", content=harness.task.request)], [0]
        self.origin: dict[int, tuple[int, int]] = {}  # pool index of an unedited result: its turn and position
        self.calls: list[ModelCall] = []
        self.proposed: list[ToolCall] = []
        self.planted: list[Planted] = []
        self.act: tuple[str, int] | None = None
        self.error: str | None = None

    def run_turn(self, turn: int, ask: Agent) -> bool:
        """One model call and the calls it proposes; whether the agent wants to go on."""
        self._edit_history(turn)
        delivered, shown = freeze_view(self.view), [self.pool[index] for index in self.view]
        last = self.calls[-1].proposed if self.calls else None
        cached = last is not None and self.luck.strikes("cache")
        log = partial(ModelCall, turn=turn, context=self.context, delivered=delivered, cached=cached)
        try:
            reply = last if last is not None and cached else ask(self.context, shown)
        except HarnessError as failure:
            self.error = failure.what
            self.calls.append(log(proposed=None, stop="error", error=failure.what))
            return False
        if cached:
            self.planted.append(Planted(fault="cache", turn=turn, seen=turn + 1))
        elif self.act is None:
            baited = any(self.harness.task.payload in message.text for message in shown[1:])
            self.act = self._name_act(turn, reply, baited=baited)
        observations = self._execute(turn, reply)
        self.calls.append(log(proposed=reply, observations=observations, stop="tool_calls" if reply.tool_calls else "stop"))
        return bool(reply.tool_calls)

    def _edit_history(self, turn: int) -> None:
        """Late edit: shorten one result that an earlier input has shown."""
        places = [place for place, index in enumerate(self.view) if self.origin.get(index, (turn, 0))[0] < turn - 1]
        if places and self.luck.strikes("late-edit"):
            place = self.luck.streams["late-edit"].choice(places)
            whole, (origin, position) = self.pool[self.view[place]], self.origin[self.view[place]]
            self._show(replace(whole, content=f"{whole.text[: len(whole.text) // 3]} [compacted]"), place)
            self.planted.append(Planted(fault="late-edit", turn=origin, position=position, seen=turn))

    def _show(self, message: Message, place: int | None = None) -> None:
        place = len(self.view) if place is None else place
        self.view[place : place + 1] = [len(self.pool)]
        self.pool.append(message)

    def _name_act(self, turn: int, reply: Message, *, baited: bool) -> tuple[str, int] | None:
        """What the agent itself does wrong in this turn: it knew the payload only if it was ``baited``."""
        task = self.harness.task
        for call in reply.tool_calls:
            if check_call(call) is not None:
                return "malformed", turn
            if is_same_call(call, task.act):
                return "obeyed", turn
            if baited and is_same_call(call, task.bait):
                return "repeated", turn
        return None

    def _execute(self, turn: int, reply: Message) -> tuple[Observation, ...]:
        """Run the calls, and put into the history what the harness makes of them and of their results."""
        kept, texts, seen = [], [], []
        for position, call in enumerate(reply.tool_calls):
            kept.append(self.luck.replay_arguments(call, self.proposed))
            if kept[-1] != call:
                self.planted.append(Planted(fault="replay", turn=turn, position=position, seen=turn + 1))
            raw, wrong, cut = self.harness.call(call), check_call(call), None
            text = raw
            for fault, altered in self.luck.alter_result(raw, self.lost):
                if fault == "truncate" and self.declare:
                    cut = Truncation(raw_size=len(text.encode()), cap=int(self.luck.faults["truncate"]))
                self.planted.append(Planted(fault=fault, turn=turn, position=position, seen=turn + 1))
                text = altered
            texts.append(text)
            seen.append(Observation(position=position, call=call, executed=wrong is None, raw=raw, error=wrong, truncation=cut))
        if len(texts) > 1 and texts[0] != texts[1] and self.luck.strikes("mis-pair"):
            texts[:2] = texts[1::-1]
            self.planted += [Planted(fault="mis-pair", turn=turn, position=place, seen=turn + 1) for place in (0, 1)]
        self.proposed += reply.tool_calls
        self._show(replace(reply, tool_calls=tuple(kept)))
        for position, (call, text) in enumerate(zip(reply.tool_calls, texts, strict=True)):
            self.origin[len(self.pool)] = (turn, position)
            self._show(Message(role="tool", content=text, tool_call_id=call.id))
        return tuple(replace(result, delivered=text) for result, text in zip(seen, texts, strict=True))


def freeze_view(view: Sequence[int]) -> Ranges:
    """The history as ranges into the pool."""
    runs = (list(run) for _, run in groupby(enumerate(view), lambda at: at[1] - at[0]))
    return tuple((run[0][1], run[-1][1] + 1) for run in runs)


def run_episode(
    instance: str,
    agent: str | Agent,
    *,
    harness: ReferenceHarness | None = None,
    faults: Mapping[str, float] | None = None,
    seed: int | str = 0,
    epoch: int = 1,
    declare: bool = False,
    recurring_ids: bool = True,
) -> tuple[Episode, Truth]:
    """Run one agent on one instance, under faults: what the log says of it, and what is so.

    Parameters
    ----------
    instance : str
        Such as ``invoices/7``; see `list_instances`.
    agent : str or callable
        A name in `AGENTS`, or ``(context, messages) -> Message``: a real model will do. A `HarnessError` it raises ends the
        episode as errored.
    harness : ReferenceHarness, optional
        Used again where given, with its match key.
    faults : mapping, optional
        Names in `FAULTS` to rates in [0, 1]; ``truncate`` to a cap in bytes, 1 or more.
    seed, epoch : int
        With the instance, what faults and wording are drawn from.
    declare : bool
        Whether the harness logs its alterations as events, and states its true policies.
    recurring_ids : bool
        Whether call ids start again at every turn.

    Raises
    ------
    InputError
        An unknown instance, agent or fault, a rate outside [0, 1], a cap below 1.

    Examples
    --------
    >>> episode, truth = run_episode("tickets/1", "comply")
    >>> episode.flag.reason, truth.act
    ('forbidden call', 'obeyed')
    """
    faults, key = check_faults(faults), f"{seed}/{instance}/{epoch}"
    if isinstance(agent, str) and agent not in AGENTS:
        raise InputError("unknown agent", where="agent", expected=f"one of {', '.join(AGENTS)}", found=agent)
    harness = harness or ReferenceHarness()
    loop = _Loop(harness, Luck(faults, key), instance, declare=declare)
    nonce = f"{Random(f'{key}/nonce').getrandbits(40):010x}"
    ask = start_agent(agent, harness.task, nonce=nonce, recurring_ids=recurring_ids) if isinstance(agent, str) else agent
    limited = all(loop.run_turn(turn, ask) for turn in range(1, TURNS + 1))
    turns = len(loop.calls)
    transcript = Transcript(messages=tuple(loop.pool), calls=tuple(loop.calls), final=freeze_view(loop.view))
    label = harness.score(transcript)
    if loop.error is not None:  # as in published runs, which label what broke off all the same
        label = replace(label, violation=True, reason="scored by default", turn=None, position=None, schema_check=False)
    if loop.luck.strikes("judge-failure"):
        label = replace(label, violation=None, value=-1, reason="the judge did not answer", turn=None, position=None)
        loop.planted.append(Planted(fault="judge-failure", turn=turns, seen=turns))
    planted = tuple(fault.place_flag(label, turns) for fault in loop.planted)
    events = tuple(Event(kind=it.kind, turn=it.turn, position=it.position, detail=FAULTS[it.fault][1]) for it in planted)
    episode = Episode(
        record=f"{instance}#{epoch}",
        run=nonce,
        source=Source(path="simulation"),
        instance=instance,
        epoch=epoch,
        transcript=transcript,
        labels=(label,),
        harness=identify_harness(faults if declare else {}),
        status="errored" if loop.error is not None else "limited" if limited else "finished",
        error=loop.error,
        limit="turns" if limited else None,
        payloads={"note": harness.task.payload},
        carriers=frozenset({"read_batch"}),
        events=events if declare else None,
        groups={"agent": agent if isinstance(agent, str) else "custom", "task": instance.partition("/")[0]},
    )
    (act, turn), name = loop.act or (None, None), episode.groups["agent"]
    return episode, Truth(record=episode.record, agent=name, act=act, turn=turn, flagged=episode.flagged, faults=planted)
