"""Episodes that cannot be judged, that were judged on less than happened, or that were not freshly produced."""

from __future__ import annotations

import re
from collections.abc import Iterator

from litmuskit.artifacts.evidence import Evidence, cite
from litmuskit.artifacts.execution import pair_results
from litmuskit.records import Episode

__all__ = ["find_cached", "find_unassessable"]

# The judging itself failed: at the start of a clause stands the judge (or its verdict), and what it does is fail.
_JUDGE = r"(?:auto-?|llm[- ])?(?:judge|grader|scorer|grading|scoring)(?:'s)?"
_GIVEN = r"(?:verdict|grade|score|rating|judge?ment)s?"
_SAID = rf"(?:{_GIVEN}|output|response|reply|answer|completion|result|json)"
_WITH = r"[ -](?:model|llm|api|call|request|process|service|endpoint)\b| [\w.:/-]{0,40}\d[\w.:/-]{0,40}| \([^)]{0,80}\)"
_NAMED = rf"(?:{_JUDGE}(?:{_WITH}){{0,4}})"
_STOP = r"(?=\s*(?:$|[^\w\s-]|-\s|\d|(?:with|while|when|during|from|after|occurred|within|due|on|at|in|for|of|http|code)\b))"
_POOR = (
    r"(?:empty|blank|missing|malformed|unusable|truncated|(?:un-?|not )parse?able"
    r"|(?:in|not )valid(?: json)?|not found|not json)"
)
_UNDO = r"(?:could not|couldn't|cannot|can't|unable to|failed to|failed|error|exception)(?: (?:while|when|in))?"
_READ = r"(?:pars|extract|decod|read|interpret|obtain|retriev|find|get|fetch|receiv)(?:e|ing)?"
_FORMS = (
    rf"(?:judge|grader|scorer|scoring|grading)(?![-_]?no[-_])[-_]?(?:\w{{0,20}}[-_]?)?(?:error|exception|failure|timeout){_STOP}"
    r"(?!\W{1,4}(?:none|null|nil|false|no|0)\b)"
    rf"|{_NAMED}:? (?:has |had |was |is |have )?(?:fail(?:ed|ure)|error(?:ed|s)?|exceptions?|crash(?:ed)?|timed out|time-?out"
    rf"|unavailable|unreachable|offline|not available|(?:rate[- ]limit|overload|abort)(?:ed)?){_STOP}"
    rf"|{_NAMED} (?:could not|cannot|did not|didn't|does not|failed to|refused to|was unable to|never) (?:respond|reply"
    rf"|load|run|complete|finish|grade|judge|score|parse|answer|{_READ}"
    rf"|(?:return|give|produce|output|emit|provide|generate) (?:(?:an?|any|the|its|valid|usable|parse?able) )*{_SAID}){_STOP}"
    rf"|{_NAMED} (?:call )?(?:returned|raised|threw|hit|encountered|gave|produced|got) (?:nothing|\w*(?:Error|Exception)"
    rf"|an? (?:\w+ )?(?:error|exception|time-?out)|(?:an? )?{_POOR} {_SAID}|no (?:usable |valid )?{_SAID}){_STOP}"
    rf"|(?:{_NAMED} {_SAID}|{_GIVEN})(?: of the {_NAMED})? (?:was |is |were )?{_POOR}{_STOP}"
    rf"|(?:{_NAMED}(?: {_SAID})?|{_GIVEN}) (?:could not|cannot|can't) be (?:parsed|extracted|read|decoded|found|reached)\b"
    rf"|{_UNDO} (?:{_READ} (?:(?:an?|any|the|its|valid|numeric|final|from|{_NAMED}|{_SAID}) ){{0,4}}(?:{_GIVEN}|{_NAMED}"
    rf"(?: {_SAID})?)|(?:reach|contact|call|query|load)(?:ing)? (?:the |an? )?{_NAMED}|(?:score|grade)(?: the \w+)?){_STOP}"
    rf"|(?:error|exception|failure|timed out|time-?out)(?: (?:occurred|raised|in|from|by|while|when|during|waiting|for|at))+"
    rf" (?:the )?{_NAMED}{_STOP}"
    rf"|no (?:valid |usable |parse?able )?(?:{_GIVEN} (?:was |could be )?(?:found|returned|extracted|parsed){_STOP}"
    rf"|{_SAID} (?:(?:was |could be )?(?:found|returned|extracted|parsed) )?(?:in|from|by) (?:the )?{_NAMED})"
)
_JUDGE_FAILED = re.compile(
    rf"(?:^|[.;,!?(\[:\n]|\s[-–—]\s|\b(?:but|because|since)\s)\s*(?:(?:the|an?|our|llm|model)\s)*\[?(?:{_FORMS})", re.IGNORECASE
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
    deciding = [flag] if (flag := episode.flag) is not None else episode.labels
    failed = [label for label in deciding if label.reason and _JUDGE_FAILED.search(label.reason)]
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
    """Stale-cache (a cached reply whose calls ran afresh) and mixed-policy (a copy whose policy no log can compare)."""
    for call in episode.transcript.calls:
        if call.cached and any(result is not None for _, _, result in pair_results(call)):
            detail = "the reply came from a cache, its calls were carried out afresh"
            yield cite(episode, "stale-cache/cached-reply", detail, turn=call.turn, declared=True)
    if episode.copied and "mutation" not in episode.harness.policies:
        detail = "copied from a run older than the one that holds it, its mutation policy unlogged"
        yield cite(episode, "mixed-policy/copied", detail, declared=True)
