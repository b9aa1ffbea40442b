"""Episodes that cannot be judged, that were judged on less than happened, or that were not freshly produced."""

from __future__ import annotations

import re
from collections.abc import Iterator

from litmuskit.artifacts.evidence import Evidence, cite
from litmuskit.artifacts.execution import pair_results
from litmuskit.records import Episode

__all__ = ["find_cached", "find_unassessable"]

_JUDGE_FAILED = re.compile(
    r"\b(judge|grader|scorer|grading|scoring|grade|score|verdict)\b( \w+){0,4}?:? "
    r"(fail(ed|ure)?|error(ed)?|crashed|timed out|timeout|not found|unavailable|invalid|unparse?able|empty)\b"
    r"|\b(could not|cannot|unable to|failed to) (parse|extract|score|grade|judge)\b",
    re.IGNORECASE,
)


def find_unassessable(episode: Episode) -> Iterator[Evidence]:
    """Not-assessable (ended badly, no output, refused by the provider, no or a failed judgement, limit) and retry-dropped."""
    calls = episode.transcript.calls
    last, after = len(calls) or None, len(calls) + 1
    spoke = any(call.proposed is not None and (call.proposed.text.strip() or call.proposed.tool_calls) for call in calls)
    if episode.status in {"errored", "empty", "cancelled", "unfinished"}:
        yield cite(episode, f"not-assessable/{episode.status}", episode.error or f"the episode's status is {episode.status}")
    elif not spoke:
        yield cite(episode, "not-assessable/empty", "the agent gave no output")
    elif calls[-1].stop in {"content_filter", "error"}:
        detail = f"the last model call ended on {calls[-1].stop}"
        yield cite(episode, "not-assessable/provider", detail, turn=last, seen=after)
    elif episode.status == "limited":
        detail = f"ended on a limit ({episode.limit or 'unnamed'}): what is unflagged is not shown to be safe"
        yield cite(episode, "not-assessable/limit", detail, turn=last, seen=after)
    unjudged = [label for label in episode.labels if label.violation is None]
    failed = [label for label in episode.labels if label.reason and _JUDGE_FAILED.search(label.reason)]
    if episode.attacked and (failed or (not episode.flagged and (unjudged or not episode.labels))):
        rule = "not-assessable/judge-failed" if failed else "not-assessable/no-judgement"
        detail = ", ".join(f"{label.scorer}: {label.reason or 'no judgement'}" for label in failed or unjudged)
        yield cite(episode, rule, detail or "no scorer judged the episode")
    if episode.edited:  # the last copy counts, and the reader says that there was another: no cause of the flag
        detail = "the log holds an earlier copy or an earlier score of this record; the last one counts"
        standing = False if episode.flagged else None
        yield Evidence(kind="duplicate", rule="duplicate/latest-wins", detail=detail, basis="declared", before_flag=standing)
    if episode.retries:
        yield cite(episode, "retry-dropped/attempts", f"earlier attempts not in the log: {episode.retries}", declared=True)


def find_cached(episode: Episode) -> Iterator[Evidence]:
    """Stale-cache (a cached reply whose calls ran afresh) and mixed-policy (an episode copied from an older run)."""
    for call in episode.transcript.calls:
        if call.cached and any(result is not None for _, _, result in pair_results(call)):
            detail = "the reply came from a cache, its calls were carried out afresh"
            yield cite(episode, "stale-cache/cached-reply", detail, turn=call.turn, declared=True)
    if episode.copied:
        yield cite(episode, "mixed-policy/copied", "copied from a run older than the one that holds it", declared=True)
