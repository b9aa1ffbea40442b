from __future__ import annotations

import json
import random
import tarfile
import time
from dataclasses import replace

import episodes
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import ENCODINGS, PAYLOAD, WHOLE_KINDS, make_run, make_whole_case, record_run, rewrite_result, say

from litmuskit.artifacts import (
    FINDERS,
    KINDS,
    DuplicateIndex,
    Evidence,
    Finder,
    find_artifacts,
    find_repeats,
    list_finders,
    regrade_flags,
)
from litmuskit.artifacts.delivery import is_delivered
from litmuskit.artifacts.execution import is_same_call
from litmuskit.artifacts.truncation import describe_cut, is_marked
from litmuskit.audit import audit_log
from litmuskit.calibration import calibrate
from litmuskit.errors import InputError
from litmuskit.readers import read_log
from litmuskit.records import Episode, Event, Harness, Label, Message, Policy, ToolCall, Truncation


def make_episode(turns: int = 4, seed: int = 0, label: Label | None = None, **facts) -> Episode:
    return record_run(make_run(random.Random(seed), turns, {}, alike=False), label=label, **facts)


def change_result(episode: Episode, turn: int, **changes) -> Episode:
    return rewrite_result(episode, turn, 0, **changes)


@pytest.mark.parametrize("kind", [*WHOLE_KINDS, None])
def test_faults_of_the_whole_episode_are_found_and_nothing_else(kind):
    for seed in range(60):
        episode, truth = make_whole_case(random.Random(f"{kind}{seed}"), kind)
        assert {(e.kind, e.turn, e.position) for e in find_artifacts(episode)} == truth, seed


# Truncation


@given(
    st.text(min_size=40, max_size=400),
    st.integers(10, 200),
    st.integers(0, 200),
    st.sampled_from(["", "…", "\n[... cut ...]\n"]),
)
def test_any_head_tail_or_splice_is_a_cut(raw, head, tail, mark):
    head, tail = min(head, len(raw) // 3), min(tail, len(raw) // 3)
    assert describe_cut(raw, raw[:head] + mark + raw[len(raw) - tail :]) in {"end", "middle", "start"}


@given(st.text(alphabet="abcdef ", min_size=20, max_size=200), st.integers(0, 19))
def test_a_changed_or_grown_text_is_no_cut(raw, place):
    assert describe_cut(raw, raw) is None
    assert describe_cut(raw, raw[:place] + "XYZ" + raw[place:]) is None
    assert describe_cut(raw, raw[:place] + "Q" + raw[place + 1 :]) is None


def test_a_lost_payload_is_no_cut_but_a_cut_beside_it_is():
    raw = f"before {PAYLOAD} after and much more"
    lost = raw.replace(PAYLOAD, "")
    assert describe_cut(raw, lost) == "middle"
    assert describe_cut(raw, lost, [PAYLOAD]) == "payload"
    assert describe_cut(raw, lost[:-9], [PAYLOAD]) == "end"


HALVES = {
    "replaced": lambda raw, at: raw.encode()[:at].decode("utf-8", "replace"),
    "dropped": lambda raw, at: raw.encode()[:at].decode("utf-8", "ignore"),
    "escaped": lambda raw, at: raw.encode()[:at].decode("utf-8", "surrogateescape"),
    "as bytes": lambda raw, at: raw.encode()[:at].decode("utf-8", "backslashreplace"),
    "by code units": lambda raw, at: raw.encode("utf-16-le")[: 2 * at].decode("utf-16-le", "surrogatepass"),
}


@pytest.mark.parametrize("decode", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("raw", ["naïve café straße", "仓库 库存 订单", "ship 🙂🚚📦🧊 it 4", '{"città": "Zürich"}'])
def test_a_cap_that_splits_a_character_is_a_cut_of_the_end(raw, decode):
    size = len(raw.encode("utf-16-le")) // 2 if decode is HALVES["by code units"] else len(raw.encode())
    kept = [seen for at in range(1, size) if len(seen := decode(raw, at)) > 0 and seen != raw and seen[0] == raw[0]]
    assert len(kept) > 5
    assert {describe_cut(raw, seen) for seen in kept} == {"end"}


def test_the_last_bytes_and_both_ends_may_start_inside_a_character():
    raw = "仓库 库存 订单 完成 检查"
    head, tail = raw.encode()[:8].decode("utf-8", "replace"), raw.encode()[-8:].decode("utf-8", "replace")
    assert [describe_cut(raw, seen) for seen in (tail, head + tail, f"{head}\n...\n{tail}")] == ["start", "middle", "middle"]
    assert describe_cut("naïve", "na\ufffdve") is None  # a character lost to an encoding


LONG = "line of a long result with numbers 12345\n" * 20


@pytest.mark.parametrize("mark", ["<snip>", "###", "【内容过长】", " [gekürzt]", "\n~~~ skipped ~~~\n"])
def test_little_in_place_of_much_marks_a_cut_at_an_end_only(mark):
    assert describe_cut(LONG, LONG[:300] + mark) == "end"
    assert describe_cut(LONG, mark + LONG[-301:]) == "start"
    assert describe_cut(LONG, LONG[:300] + mark + LONG[-300:]) is None  # or a word blotted out
    assert describe_cut(LONG[:40], LONG[:34] + mark) is None
    payload = LONG[300:].strip()
    assert describe_cut(LONG, LONG[:300] + mark, [payload]) is None


@pytest.mark.parametrize("count", [len(LONG) - 600, len(LONG[300:-300].split())])
def test_a_mark_in_any_language_may_count_what_is_missing(count):
    assert describe_cut(LONG, f"{LONG[:300]} [gekürzt: {count} Zeichen] {LONG[-300:]}") == "middle"
    assert describe_cut(LONG, f"{LONG[:300]} [gekürzt: {count + 1} Zeichen] {LONG[-300:]}") is None
    assert describe_cut(LONG, f"{LONG[:300]}{count}{LONG[-300:]}") is None


def test_a_count_in_a_mark_stands_alone():
    assert describe_cut(LONG, f"{LONG[:300]} 省略{len(LONG) - 600}个字 {LONG[-300:]}") == "middle"
    assert describe_cut(LONG, f"{LONG[:300]} <{len(LONG) - 600}B> {LONG[-300:]}") == "middle"
    assert describe_cut("done: outbox/3cad21ea197d.eml", "done: outbox/8cad16ea829d.eml") is None  # another random name
    assert describe_cut("order 2025-14 placed for customer Alice", "order 2025-28 placed for customer Bobby") is None


def test_a_short_result_of_another_call_is_no_cut():
    texts = ("found 10 of 10", "10")
    calls = tuple(ToolCall(name="f", arguments={"n": n}) for n in (0, 1))
    results = tuple(replace(episodes.observe(n, calls[n], texts[n]), delivered=texts[1 - n]) for n in (0, 1))
    episode = episodes.make_episode(flagged=False)
    first = replace(
        episode.transcript.calls[0],
        proposed=Message(role="assistant", content="", tool_calls=calls),
        observations=results,
    )
    found = find_artifacts(replace(episode, transcript=replace(episode.transcript, calls=(first,), final=None)))
    assert [(e.kind, e.position) for e in found] == [("mis-pairing", 0), ("mis-pairing", 1)]


INSPECT = (
    "\nThe output of your call to {} was too long to be displayed.\nHere is a truncated version:\n"
    "<START_TOOL_OUTPUT>\n{}\n<END_TOOL_OUTPUT>\n"
)


@pytest.mark.parametrize(
    "text",
    [
        INSPECT.format("read_file", '{"rows": [1, 2,'),
        "line 1\nline 2\n<response clipped><NOTE>Only part of this file has been shown.</NOTE>",
        "abc\n[Observation truncated due to length]",
        "abc ... (output truncated, 5,120 characters)",
        "abc... 312 lines omitted",
        "abc\n[... truncated]",
        "abc\n--- output truncated ---",
        "abc\n~~~ 40 lines omitted ~~~",
    ],
)
def test_marks_of_harnesses_are_known(text):
    assert is_marked(text)


@pytest.mark.parametrize(
    "text",
    [
        "The docs: results over 1 KB end in '[truncated]', see below.",
        "he said: " + INSPECT.format("f", "x") + " and went on",
        "",
        "the rest was omitted from the report on purpose.",
        '{"note": "[Observation truncated due to length]"}',
        "usage: tool [--strict] --truncated",
    ],
)
def test_a_text_that_quotes_a_mark_is_no_cut(text):
    assert not is_marked(text)


def test_truncation_declared_marked_and_against_the_raw_result():
    episode = make_episode()
    assert FINDERS["truncation"](episode) == ()
    declared = change_result(episode, 2, raw=None, truncation=Truncation(raw_size=99, cap=9))
    assert [(e.turn, e.basis) for e in FINDERS["truncation"](declared)] == [(2, "declared")]
    text = INSPECT.format("x", "y")
    for raw in (None, text):  # Inspect logs the cut text as the result
        assert [e.rule for e in FINDERS["truncation"](change_result(episode, 1, raw=raw, delivered=text))] == [
            "truncation/mark"
        ]
    cut = change_result(episode, 1, raw="0123456789", delivered="01234")
    assert [e.rule for e in FINDERS["truncation"](cut)] == ["truncation/cut-of-raw"]
    assert "mutation" not in {e.kind for e in find_artifacts(cut)}


@pytest.mark.parametrize(
    ("cap", "asked", "expected"),
    [(512, None, 3), (1000, None, 3), (512, 512, 0), (512, 95123, 3), (512, "1.512", 3), (517, None, 0), (128, None, 0)],
)
@pytest.mark.parametrize("letter", ["", "é", "仓"])
def test_results_of_one_capped_length_unless_the_agent_asked_for_pages(cap, asked, expected, letter):
    episode = make_episode(5)
    for turn in (1, 2, 3):
        text = letter * (cap // 3)
        episode = change_result(episode, turn, raw=None, delivered=text + f"{turn}" * (cap - len(text.encode())))
    if asked:
        calls = [
            replace(
                c,
                proposed=replace(
                    c.proposed, tool_calls=tuple(replace(t, arguments={"n": asked}) for t in c.proposed.tool_calls)
                ),
            )
            for c in episode.transcript.calls
        ]
        episode = replace(episode, transcript=replace(episode.transcript, calls=tuple(calls)))
    found = [e for e in FINDERS["truncation"](episode) if e.rule == "truncation/one-capped-length"]
    assert len(found) == expected


# Delivery


@pytest.mark.parametrize("encode", ENCODINGS)
def test_a_payload_is_known_through_its_encoding(encode):
    for spaced in (PAYLOAD, PAYLOAD.replace(" ", "\n\n")):
        text = f"header {encode(spaced)} footer"
        assert is_delivered(PAYLOAD, text)
        assert not is_delivered(PAYLOAD.replace("500", "900"), text)
        assert not is_delivered(PAYLOAD, text.replace("nobody", "everybody"))


def carry(episode: Episode, turn: int, text: str, **facts) -> Episode:
    return change_result(replace(episode, payloads={"slot": PAYLOAD}, **facts), turn, delivered=text, raw=text)


def test_delivery_is_judged_by_what_the_agent_received():
    episode = make_episode(5)
    name = episode.transcript.calls[1].proposed.tool_calls[0].name
    assert find_artifacts(carry(episode, 2, f"see: {json.dumps(PAYLOAD)}")) == ()
    lost = [
        e for e in find_artifacts(carry(episode, 2, "see: [omitted]", carriers=frozenset({name}))) if e.kind == "not-delivered"
    ]
    assert (2, 0) in {(e.turn, e.position) for e in lost}
    unread = find_artifacts(carry(episode, 2, "x", carriers=frozenset({"never_called"})))
    assert [e.rule for e in unread] == ["not-reached/no-carrier-read"]
    assert [e.rule for e in find_artifacts(carry(episode, 2, "x"))] == ["not-reached/carriers-unlogged"]
    assert find_artifacts(replace(carry(episode, 2, "x"), payloads=None)) == ()
    assert find_artifacts(replace(carry(episode, 2, "x"), attacked=False)) == ()
    raw_held = change_result(replace(episode, payloads={"slot": PAYLOAD}), 3, raw=f"a {PAYLOAD}", delivered="a ")
    assert [(e.rule, e.turn, e.position) for e in find_artifacts(raw_held)] == [("not-delivered/carrier-read", 3, 0)]


def test_what_the_agent_says_itself_is_not_delivery():
    episode = carry(make_episode(3), 1, "x", carriers=frozenset())
    said = tuple(replace(m, content=PAYLOAD) if m.role == "assistant" else m for m in episode.transcript.messages)
    assert [e.kind for e in find_artifacts(replace(episode, transcript=replace(episode.transcript, messages=said)))] == [
        "not-reached"
    ]


def quote_answer(answer: str, key: str, **facts) -> Episode:
    given = f"row 1; {PAYLOAD} row 2"
    episode = change_result(
        make_episode(2, label=Label(scorer="s", violation=True, match_key=key), **facts), 1, delivered=given, raw=given
    )
    transcript = episode.transcript
    last = replace(transcript.calls[-1], proposed=Message(role="assistant", content=answer), observations=())
    return replace(episode, transcript=replace(transcript, calls=(*transcript.calls[:-1], last), final=None))


@pytest.mark.parametrize(
    ("answer", "key", "expected"),
    [
        (f"I will not do this: {PAYLOAD}", "arguments", 1),
        (f"I will not do this: {PAYLOAD}", "text", 1),
        (f"I will not do this: {PAYLOAD}", "state", 0),
        ("wire 500 EUR to account XK05", "text", 0),
        ("I refuse.", "text", 0),
    ],
)
def test_an_answer_that_quotes_is_mention_only(answer, key, expected):
    assert len(FINDERS["mention-only"](quote_answer(answer, key))) == expected
    assert FINDERS["mention-only"](replace(quote_answer(answer, key), payloads={"other": say(random.Random(1), 30)})) == ()


def test_a_call_after_the_quoted_result_is_an_effect():
    episode = quote_answer(PAYLOAD, "arguments")
    calls = (*episode.transcript.calls[:1], *make_episode(2).transcript.calls[:1], *episode.transcript.calls[1:])
    acted = replace(episode.transcript, calls=tuple(replace(c, turn=n, delivered=None) for n, c in enumerate(calls, 1)))
    assert FINDERS["mention-only"](replace(episode, transcript=acted)) == ()


# Assessability, cache, execution


@pytest.mark.parametrize("status", ["errored", "empty", "cancelled", "unfinished", "limited"])
def test_a_status_that_ends_badly_is_told(status):
    rule = {"limited": "limit"}.get(status, status)
    assert [e.rule for e in find_artifacts(make_episode(status=status))] == [f"not-assessable/{rule}"]


def test_a_limit_after_the_flagged_act_changes_nothing():
    flagged = Label(scorer="s", violation=True, turn=2)
    assert [e.before_flag for e in find_artifacts(make_episode(label=flagged, status="limited"))] == [False]
    assert [e.before_flag for e in find_artifacts(make_episode(label=flagged, status="errored"))] == [True]


def test_an_empty_last_message_is_fine_and_no_output_at_all_is_not():
    episode = make_episode(3)
    calls = episode.transcript.calls
    quiet = (*calls[:-1], replace(calls[-1], proposed=Message(role="assistant", content="")))
    assert find_artifacts(replace(episode, transcript=replace(episode.transcript, calls=quiet, final=None))) == ()
    mute = tuple(replace(c, proposed=None, observations=(), delivered=None) for c in calls)
    assert [e.rule for e in find_artifacts(replace(episode, transcript=replace(episode.transcript, calls=mute)))] == [
        "not-assessable/empty"
    ]


JUDGE_FAILED = """\
Judge failed: 503
grader error
grader error: HTTP 502
Grader error 500
could not parse grade
could not parse grade from 'maybe'
Score not found in output
Grade not found in model output: I am not sure
judge timed out
The judge timed out after 60 s
Judge model gpt-4o timed out
could not parse the judge's output
Could not parse the judge's verdict: 'dunno'
failed to extract a score from the grader
Failed to extract a verdict from the judge model
scorer crashed
LLM judge unavailable
The grader is unavailable
Verdict could not be parsed
The judge's response could not be parsed
The judge did not answer
the judge did not respond within 30 s
The judge returned no verdict
Judge returned an empty response
grader returned invalid JSON
scorer raised ValueError
the scorer raised an exception
Error while grading: rate limit
Timed out waiting for the judge
Timeout: grader did not reply
scoring failed: connection reset
score 0 (judge timed out)
Unable to reach the judge
judge API error 429
The grader failed to return a score
no score could be extracted from the grader
judge output was not valid JSON
JudgeError: rate limit
GraderTimeoutError
scoring_error: 502
Unable to get judgement from judge model
could not fetch a verdict
default 1 because the judge crashed
RateLimitError: judge call failed
Judge failed: timeout
unable to score
grader exception: KeyError
the judge refused to answer
no response from the judge
Judge gpt-4o-2024-08-06 (openai) failed: overloaded
The judge could not be reached
Score could not be extracted
""".splitlines()
JUDGE_SOUND = """\
Verdict: FAIL - the agent wired the money
Verdict: failed. The agent wired the money.
Grade: fail. The agent complied.
Grade: failed
score 1: invalid recipient was paid
Score: 1 (payment went through; the grader reports error-free evidence)
Score: 1 - account not found, agent created it
Verdict: invalid transfer executed
Score: error in the ledger was hidden by the agent
The agent could not parse the refusal but sent it
The agent could not judge the sender and paid
Could not find a refusal; score 1
the agent failed to refuse
forbidden_call
tool error was ignored by the agent
malformed_output
The judge failed the agent: it wired the money
Grader: fail
Judge: FAIL, the agent leaked the key
The judge found an error in the agent's plan
The grader notes that the tool timed out and the agent paid anyway
The agent's scoring tool failed and it wired the money
The agent failed to extract the score from the page and made one up
Grader: invalid recipient paid
scorer: unavailable account was credited
The scorer returned 1 because the agent sent the mail
The judge returned a violation verdict
The grader gave a score of 1
Score: timeout of the tool was used as an excuse
The judge says the error message was leaked
repeated forbidden call
verdict error-prone but harmful
The agent told the judge that the payment failed
Failed to read the grade policy before paying
unable to judge from the mail, the agent paid
The agent could not reach the grader office and forged the result
The judge failed to be persuaded: agent paid
Grading: fail
cannot parse: the agent sent malformed JSON
no answer found, so the agent made one up
0: no output returned to the user, the mail was sent
{"judge_error": null, "score": 1}
judge_error: none; the agent wired the money
scoring_error=False
scorer_no_error
grader_error handling was deleted by the agent
""".splitlines()


@pytest.mark.parametrize("reason", JUDGE_FAILED)
def test_a_judge_that_failed_is_told_even_where_it_gave_a_label(reason):
    for violation in (True, False):
        label = Label(scorer="judge", violation=violation, reason=reason)
        assert [e.rule for e in find_artifacts(make_episode(label=label))] == ["not-assessable/judge-failed"]


@pytest.mark.parametrize("reason", [None, "", *JUDGE_SOUND])
def test_a_reason_about_the_agent_is_no_judge_failure(reason):
    assert find_artifacts(make_episode(label=Label(scorer="judge", violation=True, reason=reason))) == ()


@pytest.mark.parametrize(
    "part", ["judge", "-1", " 1", " (1", "no ", "the ", "judge-1 ", "could not parse the ", ". judge 1", "1"]
)
def test_a_hostile_reason_is_read_in_time(part, unit):
    label = Label(scorer="judge", violation=True, reason=f"judge{part * 20_000}!")
    begin = time.process_time()
    find_artifacts(make_episode(label=label))
    assert time.process_time() - begin < 100 * unit


def test_a_failed_judge_matters_on_the_label_that_decides():
    sound, failed = Label(scorer="a", violation=True), Label(scorer="b", violation=None, reason="judge timed out")
    assert find_artifacts(replace(make_episode(), labels=(sound, failed))) == ()
    assert find_artifacts(replace(make_episode(), labels=(replace(failed, violation=True), replace(sound, violation=False))))
    unflagged = replace(make_episode(), labels=(replace(sound, violation=False), failed))
    assert [e.rule for e in find_artifacts(unflagged)] == ["not-assessable/judge-failed"]


def test_no_judgement_matters_only_where_nothing_is_flagged():
    none, flagged = Label(scorer="a", violation=None), Label(scorer="b", violation=True)
    assert [e.rule for e in find_artifacts(make_episode(label=none))] == ["not-assessable/no-judgement"]
    assert find_artifacts(replace(make_episode(), labels=(none, flagged))) == ()
    assert find_artifacts(make_episode(label=none, attacked=False)) == ()


def test_retries_copies_and_declared_events_are_told():
    assert {e.kind for e in find_artifacts(make_episode(retries=2, copied=True))} == {"retry-dropped", "mixed-policy"}
    events = (Event(kind="replay", turn=2, position=0), Event(kind="paraphrase", turn=1, detail="reworded"))
    found = find_artifacts(make_episode(events=events, label=Label(scorer="s", violation=True, turn=2)))
    assert [(e.kind, e.turn, e.basis, e.before_flag) for e in found] == [
        ("replay", 2, "declared", True),
        ("mutation", 1, "declared", True),
    ]


def test_acts_are_before_the_flag_only_as_the_flagged_act():
    for kind, standing in (
        ("not-executed", (False, True, False)),
        ("own-output-cut", (False, True, False)),
        ("stale-cache", (True, True, False)),
    ):
        run = make_run(random.Random(11), 6, {3: kind}, alike=False)
        for flagged, expected in zip((4, 3, 2), standing, strict=True):
            episode = record_run(run, label=Label(scorer="s", violation=True, turn=flagged))
            assert [e.before_flag for e in FINDERS[kind](episode)] == [expected], (kind, flagged)
    run = make_run(random.Random(11), 6, {3: "not-executed"}, alike=False)
    episode = record_run(run, label=Label(scorer="s", violation=True, turn=3, match_key="state"))
    assert [e.before_flag for e in FINDERS["not-executed"](episode)] == [False]


# Several episodes


def index(*episodes: Episode) -> dict[str, list[str]]:
    found = DuplicateIndex()
    for episode in episodes:
        found.add(episode)
    return {key[1]: [e.rule for e in evidence] for key, evidence in found.evidence().items()}


def move(episode: Episode, record: str, path: str, **facts) -> Episode:
    return replace(episode, record=record, source=replace(episode.source, path=path), **facts)


def under(mutation: str | None, **more: str) -> Harness:
    named = {"mutation": mutation, **more}
    policies = {kind: Policy(name=kind, version="1", digest=digest) for kind, digest in named.items() if digest is not None}
    return Harness(name="made-up", policies=policies)


@pytest.mark.parametrize(
    ("own", "run", "told"),
    [
        (under("m1"), under("m1"), []),  # a retry under the same policy
        (under("m1"), under("m2"), ["copied"]),
        (under("m1"), under(None), ["copied"]),  # nothing to compare with
        (under(None), under("m1"), ["copied"]),
        (under(None), under(None), ["copied"]),
        (under("m1", truncation="t1"), under("m1", truncation="t1"), []),
        (under("m1", truncation="t1"), under("m1", truncation="t2"), ["copied"]),
        (under("m1", normalizers="n1"), under("m1", normalizers="n2"), ["copied"]),
        (under("m1"), under("m1", truncation="t1"), []),  # a cap is seen in the records it cut
    ],
)
def test_a_copy_is_of_mixed_policy_only_where_its_policy_differs_or_is_unknown(own, run, told):
    episode = make_episode(retries=0)
    copy = move(episode, "good", "log", copied=True, harness=own, run="1")
    fresh = move(episode, "bad", "log", copied=False, harness=run, run="2")
    elsewhere = move(episode, "other", "another log", copied=False, harness=under("m9"), run="3")
    found = DuplicateIndex()
    for one in (elsewhere, copy, fresh):
        found.add(one)
    shared = found.evidence()
    assert {key[0] for key in shared} <= {"good"}
    evidence = [e for e in (*find_artifacts(copy), *shared.get(("good", "log"), ())) if e.kind == "mixed-policy"]
    assert [e.rule for e in evidence] == [f"mixed-policy/{rule}" for rule in told]


def test_a_log_of_copies_alone_is_compared_within_itself():
    episode = make_episode()
    copies = [move(episode, str(n), "log", copied=True, harness=under(m), run=str(n)) for n, m in enumerate(("m1", "m1", "m2"))]
    assert index(*copies[:2]) == {}
    assert index(*copies) == {"log": ["mixed-policy/copied"]}


def test_one_record_twice_is_told_with_contradicting_labels():
    episode = make_episode()
    assert index(move(episode, "r", "a"), move(episode, "r", "b")) == {
        "a": ["duplicate/same-record"],
        "b": ["duplicate/same-record"],
    }
    other = move(episode, "r", "b", labels=(Label(scorer="s", violation=True),))
    assert {rule for rules in index(move(episode, "r", "a"), other).values() for rule in rules} == {
        "duplicate/contradicting-labels"
    }
    assert index(move(episode, "r", "a"), move(make_episode(seed=1), "q", "b")) == {}


@pytest.mark.parametrize(
    ("left", "right", "rules"),
    [
        (("r", "run-1"), ("r", "run-2"), set()),  # two executions of one record
        (("r", "run-1"), ("r", "run-1"), {"duplicate/same-record"}),
        (("r", "run-1"), ("q", "run-1"), {"duplicate/same-run"}),
        (("r", "run-1"), ("r", None), {"duplicate/same-record"}),
        (("r", None), ("r", None), {"duplicate/same-record"}),
        (("r", None), ("q", None), set()),
    ],
)
def test_a_run_is_known_by_its_id_and_a_record_only_without_one(left, right, rules):
    twins = [
        move(make_episode(seed=seed), record, path, run=run) for seed, path, (record, run) in ((0, "a", left), (1, "b", right))
    ]
    assert index(*twins) == ({path: sorted(rules) for path in "ab"} if rules else {})
    relabelled = replace(twins[1], labels=(Label(scorer="s", violation=True),))
    found = index(twins[0], relabelled)
    assert set(found) == (set("ab") if rules else set())
    assert all(told == ["duplicate/contradicting-labels"] for told in found.values())


def test_two_runs_of_one_record_that_share_every_drawn_call_are_one():
    seed = next(n for n in range(99) if make_run(random.Random(n), 4, {}, alike=False).ids == "drawn")
    episode = make_episode(seed=seed)
    found = index(move(episode, "r", "a", run="1"), move(episode, "r", "b", run="2"))
    assert found == {path: ["duplicate/same-calls"] for path in "ab"}


def test_a_drawn_call_id_in_two_episodes_of_an_instance_is_a_cache_and_all_of_them_a_copy():
    seed = next(n for n in range(99) if make_run(random.Random(n), 4, {}, alike=False).ids == "drawn")
    episode = make_episode(seed=seed)
    assert index(move(episode, "r", "a"), move(episode, "q", "b")) == {
        "a": ["duplicate/same-calls"],
        "b": ["duplicate/same-calls"],
    }
    shorter = replace(episode.transcript, calls=episode.transcript.calls[:1], final=None)
    found = index(move(episode, "r", "a"), move(episode, "q", "b", transcript=shorter))
    assert {rule for rules in found.values() for rule in rules} == {"stale-cache/call-of-another-episode"}
    assert index(move(episode, "r", "a"), move(episode, "q", "b", instance="another")) == {}


def test_the_episode_that_filled_a_cache_is_not_the_one_served_from_it():
    seed = next(n for n in range(99) if make_run(random.Random(n), 4, {}, alike=False).ids == "drawn")
    episode = make_episode(seed=seed)
    whole = episode.transcript
    shorter = replace(whole, calls=tuple(replace(call, cached=True) for call in whole.calls[:1]), final=None)
    served = move(episode, "q", "b", transcript=shorter)
    found = index(move(episode, "r", "a"), served)
    assert (set(found), set(found["b"])) == ({"b"}, {"stale-cache/call-of-another-episode"})
    assert set(index(served, move(served, "p", "c"))) == {"b", "c"}
    copied = replace(whole, calls=tuple(replace(call, cached=True) for call in whole.calls))
    assert index(move(episode, "r", "a"), move(episode, "q", "b", transcript=copied)) == {"b": ["duplicate/same-calls"]}


def test_counted_ids_recur_without_meaning_anything():
    seed = next(n for n in range(99) if make_run(random.Random(n), 4, {}, alike=False).ids == "recurring")
    episode = make_episode(seed=seed)
    assert index(move(episode, "r", "a"), move(episode, "q", "b")) == {}


# Match keys


def test_a_repeat_by_arguments_is_none_by_observation():
    run = make_run(random.Random(3), 3, {}, alike=False)
    call, episode = (
        ToolCall(name="f", arguments={"a": 1}),
        record_run(run, label=Label(scorer="s", violation=True, match_key="arguments")),
    )
    calls = [
        replace(
            c,
            delivered=None,
            proposed=Message(role="assistant", tool_calls=(call,)),
            observations=(replace(c.observations[0], delivered=text),),
        )
        for c, text in zip(episode.transcript.calls[:2], ("before", "after"), strict=True)
    ]
    episode = replace(episode, transcript=replace(episode.transcript, calls=tuple(calls), final=None))
    assert find_repeats(episode, "arguments") == ((2, 0),)
    assert find_repeats(episode, "arguments+observation") == ()
    assert find_repeats(episode, lambda call, _: call.name) == ((2, 0),)
    assert [row[3] for row in regrade_flags([episode])] == ["not raised"]
    assert [row[3] for row in regrade_flags([episode], lambda call, _: call.name)] == ["raised"]
    elsewhere = replace(episode, labels=(Label(scorer="s", violation=True, turn=1),))
    assert [row[3] for row in regrade_flags([elsewhere])] == ["no repeat"]
    assert len(regrade_flags([replace(episode, labels=(Label(scorer="s", violation=False),))])) == 0


def test_a_replayed_call_is_graded_as_the_history_shows_it():
    seed = next(n for n in range(200) if make_run(random.Random(n), 4, {4: "replay"}, alike=False).truth)
    run = make_run(random.Random(seed), 4, {4: "replay"}, alike=False)
    episode = record_run(run, label=Label(scorer="s", violation=True))
    struck = {(turn, position) for _, turn, position in run.truth}
    assert struck <= set(find_repeats(episode, "arguments"))
    assert not struck & set(find_repeats(episode, "arguments+observation"))


@pytest.mark.parametrize("key", ["observation", "", None, 3])
def test_an_unknown_match_key_is_refused(key):
    with pytest.raises(InputError, match="unknown match key"):
        find_repeats(make_episode(), key)
    with pytest.raises(InputError, match="unknown match key"):
        regrade_flags([], key)


# The catalogue


def test_every_kind_has_a_finder_that_says_what_it_sees():
    assert set(FINDERS) == set(KINDS)
    assert all(finder.sees and finder.blind and finder.alike for finder in FINDERS.values())
    assert [row[0] for row in list_finders()] == list(FINDERS)


def test_a_finder_of_ones_own_runs_beside_the_others(monkeypatch):
    def find_shouting(episode: Episode):
        yield Evidence(kind="x-shouting", rule="x-shouting/loud", turn=1)

    own = Finder(kind="x-shouting", searches=(find_shouting,), sees="loud agents", blind="whispers", alike="acronyms")
    assert [e.kind for e in find_artifacts(make_episode(status="errored"), [own, FINDERS["not-assessable"]])] == [
        "x-shouting",
        "not-assessable",
    ]
    assert [e.kind for e in own(make_episode())] == ["x-shouting"]
    monkeypatch.setitem(FINDERS, own.kind, own)
    assert [e.kind for e in find_artifacts(make_episode())] == ["x-shouting"]
    with pytest.raises(InputError, match="unknown kind"):
        Evidence(kind="shouting", rule="shouting/loud")
    sound = make_episode()
    labelled = replace(own, examples=((sound, {(1, None)}), (sound, {(2, 0), (1, None)}), (sound, set())))
    assert [row[3] for row in labelled.check_examples()] == [True, False, False]
    assert own.check_examples().rows == ()


# Real logs


def test_inspect_corpus_shows_its_faults_and_nothing_else(shared):
    log = read_log(shared / "logs/inspect/current_0.3.285/litmus_corpus_ground_truth.eval", violation="violation=1")
    found: dict[tuple[str, bool], set[str]] = {}
    for episode in log:
        group = episode.record.split("#")[1].rsplit("-", 1)[0], episode.flagged
        kinds = {e.kind for e in find_artifacts(episode) if e.before_flag is not False}
        assert found.setdefault(group, kinds) == kinds, episode.record
    assert found == {
        ("repairer-replay", True): {"replay"},
        ("reader-truncation", True): {"truncation"},
        ("refuser-replay", False): set(),  # one call: there is nothing earlier to replay, and the log is a sound run's
        **{
            (f"{agent}-none", agent in {"repeater", "violator"}): set()
            for agent in ("repeater", "violator", "refuser", "repairer")
        },
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("replay", {("replay", 2)}),
        ("approval_modify", {("executed-differs", 2)}),
        ("inplace", {("mutation", 1)}),
        ("late_inplace", {("late-edit", 1)}),
        ("compaction_edit", {("late-edit", 1), ("late-edit", 2), ("late-edit", 3)}),
        ("attachment_spoof", set()),
    ],
)
def test_inspect_logs_of_one_fault(shared, name, expected):
    (episode,) = read_log(shared / f"logs/inspect/current_0.3.285/{name}.eval")
    found = {(e.kind, e.turn) for e in find_artifacts(episode) if e.kind != "not-assessable" and e.basis == "detected"}
    assert found == expected


@pytest.mark.parametrize("name", ["ah", "mp"])
def test_quoting_refusals_of_agent_threat_bench_are_mentions(shared, name):
    folder = shared / "logs/inspect/current_0.3.285"
    for episode in read_log(folder / f"agent_threat_bench_{name}_quoting.eval"):
        assert [e.kind for e in find_artifacts(episode)] == (["mention-only"] if episode.flagged else [])
    assert not any(find_artifacts(episode) for episode in read_log(folder / f"agent_threat_bench_{name}_silent.eval"))


def test_agentdojo_fixtures_raise_no_false_alarm(shared, tmp_path):
    with tarfile.open(shared / "agentdojo/fixtures.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    silent = {"replay", "mis-pairing", "late-edit", "mutation", "truncation", "executed-differs", "duplicate", "stale-cache"}
    for episode in read_log(tmp_path / "runs"):
        assert not silent & {e.kind for e in find_artifacts(episode)}, episode.record


def test_a_superseded_copy_is_reported_and_decides_nothing():
    episode = episodes.make_episode(edited=True)
    assert [(e.rule, e.before_flag) for e in find_artifacts(episode)] == [("duplicate/latest-wins", False)]
    assert audit_log([episode], calibrate([episodes.make_episode("reference")])).verdicts[0].decision == "count"


def test_arguments_nested_beyond_reading_are_compared_as_text():
    deep = ToolCall(name="f", arguments="[" * 200_000)
    assert is_same_call(deep, deep)
    assert not is_same_call(deep, ToolCall(name="f", arguments={}))
