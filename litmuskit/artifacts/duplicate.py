"""What only several episodes together show: one record twice, one reply in two episodes, a copy under another policy."""

from __future__ import annotations

from collections import defaultdict

from litmuskit.artifacts.evidence import Evidence
from litmuskit.records import Episode

__all__ = ["DuplicateIndex"]

_RANDOM = 16  # characters from which an id is taken for random; even so it recurs among other tasks of a model at temperature 0
_Key = tuple[str, str]
_Policies = frozenset[tuple[str, tuple[str, str | None]]]


class DuplicateIndex:
    """Episodes by record, by run and, within one instance, model and group, by random call id: a few words per call.

    Copies are one run under any name, or one record in two places where the log does not name the run.

    Examples
    --------
    >>> DuplicateIndex().evidence()
    {}
    """

    def __init__(self) -> None:
        self._records: dict[str, dict[_Key, str | None]] = defaultdict(dict)
        self._runs: dict[str, dict[_Key, str | None]] = defaultdict(dict)
        self._labels: dict[_Key, tuple[object, ...]] = {}
        self._ids: dict[tuple[object, str], dict[_Key, int]] = defaultdict(dict)
        self._standing: dict[_Key, bool | None] = {}
        self._counts: dict[_Key, int] = defaultdict(int)
        self._cached: set[tuple[_Key, int]] = set()
        self._policies: dict[tuple[str, bool], dict[_Policies, list[_Key]]] = defaultdict(lambda: defaultdict(list))

    def add(self, episode: Episode) -> None:
        """Take one episode in."""
        key = episode.record, str(episode.source)
        self._records[episode.record][key] = episode.run
        if episode.run is not None:
            self._runs[episode.run][key] = episode.run
        self._labels[key] = tuple((label.scorer, label.violation) for label in episode.labels)
        self._standing[key] = True if episode.flagged else None
        policies = frozenset((name, (policy.digest, policy.seed)) for name, policy in episode.harness.policies.items())
        kept = self._policies[episode.source.path, bool(episode.copied)][policies]
        if episode.copied or not kept:
            kept.append(key)
        run = episode.instance, episode.harness.model, tuple(episode.groups.items())
        self._cached.update((key, call.turn) for call in episode.transcript.calls if call.cached)
        for call in episode.transcript.calls:
            for asked in call.proposed.tool_calls if call.proposed is not None else ():
                places = self._ids[run, asked.id] if asked.id is not None and len(asked.id) >= _RANDOM else {key: 0}
                if key not in places:
                    places[key] = call.turn
                    self._counts[key] += 1

    def evidence(self) -> dict[_Key, tuple[Evidence, ...]]:
        """Evidence by (record, source): the record, every call or one call of another episode; a copy under another policy."""
        found: dict[_Key, list[Evidence]] = defaultdict(list)

        def note(key: _Key, kind: str, rule: str, detail: str, turn: int | None = None, call_id: str | None = None) -> None:
            rule, standing = f"{kind}/{rule}", self._standing[key]
            found[key].append(Evidence(kind=kind, rule=rule, turn=turn, call_id=call_id, detail=detail, before_flag=standing))

        unsure = (same for same in self._records.values() if None in same.values())  # runs tell executions of one record apart
        for same in (*unsure, *self._runs.values()):
            rule = "same-record" if len({record for record, _ in same}) == 1 else "same-run"
            rule = rule if len({self._labels[key] for key in same}) == 1 else "contradicting-labels"
            for key in same if len(same) > 1 else ():
                if key not in found:
                    note(key, "duplicate", rule, f"stands in {', '.join(source for _, source in same)}")
        shared: dict[tuple[_Key, _Key], dict[str, int]] = defaultdict(dict)
        for (_, call_id), places in self._ids.items():
            served = {key for key, turn in places.items() if (key, turn) in self._cached}
            struck = served if len(places) - len(served) == 1 else places  # the one that no cache served is the source
            for key in struck if len(places) > 1 else ():
                other = next(other for other in places if other != key)
                shared[key, other][call_id] = places[key]
        for (key, other), calls in shared.items():
            if len(calls) == self._counts[key] == self._counts[other]:
                if not any(one.kind == "duplicate" for one in found[key]):
                    note(key, "duplicate", "same-calls", f"every call is one of {other[0]}")
                continue
            for call_id, turn in calls.items():
                note(key, "stale-cache", "call-of-another-episode", f"also in {other[0]}", turn, call_id)
        for path in [path for path, copied in self._policies if copied]:
            copies = self._policies[path, True]
            run = list(self._policies.get((path, False), copies))
            for own, keys in copies.items():
                detail = next(filter(None, (_compare_policies(dict(own), dict(other)) for other in run)), None)
                for key in keys if detail else ():
                    note(key, "mixed-policy", "copied", detail or "")
        return {key: tuple(evidence) for key, evidence in found.items()}


def _compare_policies(own: dict[str, tuple[str, str | None]], run: dict[str, tuple[str, str | None]]) -> str | None:
    """Why a copy is not shown to be under the policies of the run that holds it; one that is itself unlogged says so alone."""
    if other := sorted(name for name in own.keys() & run.keys() if own[name] != run[name]):
        return f"copied from an older run, under another {' and '.join(other)} policy"
    unlogged = "mutation" in own and "mutation" not in run
    return "copied from an older run; the mutation policy of the run that holds it is unlogged" if unlogged else None
