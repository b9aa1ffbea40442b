"""Every Inspect log there is: read, or refused by name; and what each must show."""

from __future__ import annotations

from pathlib import Path

import pytest

from litmuskit import errors
from litmuskit.artifacts import find_artifacts
from litmuskit.readers import read_log
from litmuskit.stimulus import fingerprint_turns

RULES = {
    "includes=I": ("browser", "cache_", "retry_", "limit", "sample_error", "status_error"),
    "match=I": ("websearch-addition",),
    "sc=1": ("big_20x30",),
    "closeness_log=1": ("message_deduplication",),
    "s=1": ("nan_inf",),
    "violation=1": ("",),
}
NO_TOOLS, ATIF, SHORT = "no tool loop to audit", "ATIF trajectory", "the header promises"
# file: (episodes, model calls, flagged), or the words of its refusal
TABLE: dict[str, tuple[int, int, int] | str] = {
    "current_0.3.285/agent_threat_bench_ah_quoting.eval": (6, 12, 5),
    "current_0.3.285/agent_threat_bench_ah_silent.eval": (6, 12, 0),
    "current_0.3.285/agent_threat_bench_de_quoting.eval": (8, 16, 0),
    "current_0.3.285/agent_threat_bench_de_silent.eval": (8, 16, 0),
    "current_0.3.285/agent_threat_bench_mp_quoting.eval": (10, 20, 8),
    "current_0.3.285/agent_threat_bench_mp_silent.eval": (10, 20, 0),
    "current_0.3.285/agentdojo_workspace_6.eval": (6, 12, 0),
    "current_0.3.285/approval_modify.eval": (1, 3, 0),
    "current_0.3.285/attachment_spoof.eval": (1, 2, 0),
    "current_0.3.285/big_20x30.eval": (20, 600, 11),
    "current_0.3.285/cache_epochs.eval": (4, 12, 0),
    "current_0.3.285/cache_rerun.eval": (2, 6, 0),
    "current_0.3.285/compaction_edit.eval": (1, 7, 0),
    "current_0.3.285/eval_retry_1_policy_m1_error.eval": (2, 5, 0),
    "current_0.3.285/eval_retry_2_mixed_m1_m2.eval": (2, 6, 0),
    "current_0.3.285/hook_infoevents.eval": (8, 22, 4),
    "current_0.3.285/inplace.eval": (1, 3, 0),
    "current_0.3.285/late_inplace.eval": (1, 3, 0),
    "current_0.3.285/litmus_corpus_ground_truth.eval": (120, 300, 48),
    "current_0.3.285/litmus_corpus_reference.eval": (120, 288, 24),
    "current_0.3.285/message_limit.eval": (2, 2, 2),
    "current_0.3.285/nan_inf_bigint_slash_id.eval": (2, 6, 0),
    "current_0.3.285/replay.eval": (1, 3, 0),
    "current_0.3.285/rescored_invalidated_edited.eval": (12, 33, 5),
    "current_0.3.285/retry_on_error.eval": (2, 6, 0),
    "current_0.3.285/sample_error_fail_on_error_false.eval": (2, 5, 0),
    "current_0.3.285/status_error.eval": (2, 5, 0),
    "current_0.3.285/surrogate_crash_no_samples.eval": SHORT,
    "current_0.3.285/truncation_3epochs.eval": (12, 33, 6),
    "current_0.3.285/truncation_3epochs.json": (12, 33, 6),
    "crafted/attachment_missing.eval": "a text is missing from the log",
    "crafted/chunked_layout.eval": (12, 33, 6),
    "crafted/duplicate_member_last_wins.eval": (12, 33, 6),
    "crafted/in_progress_no_header.eval": (8, 22, 4),
    "crafted/stored_deflate_pool_missing.eval": "reaches outside the message pool",
    "crafted/truncated_zip.eval": "archive cannot be read",
    "old/approval_modify_0.3.116.eval": (1, 3, 0),
    "old/approval_modify_0.3.186.eval": (1, 3, 0),
    "old/late_inplace_0.3.116.eval": (1, 3, 0),
    "old/late_inplace_0.3.186.eval": (1, 3, 0),
    "old/replay_0.3.116.eval": (1, 3, 0),
    "old/replay_0.3.186.eval": (1, 3, 0),
    "old/truncation_0.3.116.eval": (4, 12, 2),
    "old/truncation_0.3.116.json": (4, 12, 2),
    "old/truncation_0.3.186.eval": (4, 12, 2),
    "old/truncation_0.3.186.json": (4, 12, 2),
    "old/truncation_0.3.60.eval": (4, 12, 2),
    "old/truncation_0.3.60.json": (4, 12, 2),
    "upstream/atif/openhands_hello-world.trajectory.json": ATIF,
    "upstream/atif/openhands_hello-world.trajectory.no_function_calling.json": ATIF,
    "upstream/atif/terminus_2_hello-world-context-summarization-linear-history.trajectory.cont-1.json": ATIF,
    "upstream/atif/terminus_2_hello-world-context-summarization-linear-history.trajectory.json": ATIF,
    "upstream/inspect_ai/analysis_test_logs_2025-05-12T20-27-36-04-00_browser.json.gz": (1, 5, 0),
    "upstream/inspect_ai/analysis_test_logs_2025-05-12T20-28-13-04-00_no-samples.json": SHORT,
    "upstream/inspect_ai/analysis_test_logs_2025-05-12T20-28-13-04-00_popularity.json": NO_TOOLS,
    "upstream/inspect_ai/analysis_test_logs_2025-05-12T20-28-26-04-00_security-guide.json": NO_TOOLS,
    "upstream/inspect_ai/analysis_test_logs_choices_mmlu-no-summary-choices.eval": NO_TOOLS,
    "upstream/inspect_ai/analysis_test_logs_choices_mmlu-summary-choices.eval": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_formats.eval": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_formats.json": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_images.json": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_images_tc.json": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_message_deduplication.eval": (1, 6, 0),
    "upstream/inspect_ai/log_test_eval_log_log_read_sample.eval": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_read_sample.json": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_streaming.eval": NO_TOOLS,
    "upstream/inspect_ai/log_test_eval_log_log_tool_call_error.json": SHORT,
    "upstream/inspect_ai/log_test_list_logs_2024-11-05T13-31-45-05-00_input-task_8zXjbRzCWrL9GXiXo2vus9.json": NO_TOOLS,
    "upstream/inspect_ai/log_test_list_logs_2024-11-05T13-32-37-05-00_input-task_hxs4q9azL3ySGkjJirypKZ.eval": NO_TOOLS,
    "upstream/inspect_ai/scorer_logs_2025-02-11T15-17-00-05-00_popularity_dPiJifoWeEQBrfWsAopzWr.eval": NO_TOOLS,
    "upstream/inspect_ai/scorer_logs_2025-02-11T15-18-04-05-00_popularity_mj7khqpMM4GBCfVQozKgzB.eval": NO_TOOLS,
    "upstream/inspect_ai/test_eval_set_2024-08-29T15-11-17+00-00_popularity_5EAmX6wjMFqea6WY7XHzZp.json": SHORT,
    "upstream/inspect_scout/2025-09-23T08-09-58-04-00_popularity_DN2wbX2ZvACsBpjwptzBRo.eval": NO_TOOLS,
    "upstream/inspect_scout/2025-09-23T08-09-58-04-00_security-guide_LuxZJVwvymC3S3SyoJczxB.eval": NO_TOOLS,
    "upstream/inspect_scout/2025-09-23T08-09-58-04-00_theory-of-mind_bbB4eRCx2rFJLyPH42Cj9r.eval": NO_TOOLS,
    "upstream/inspect_scout/2025-11-07T10-59-47-05-00_websearch-addition-problem_LqPDntDnkk4h2fSqQ8i6CE.eval": (1, 1, 0),
}
UNPOOLED = "upstream/inspect_ai/analysis_test_logs_2025-05-12T20-27-36-04-00_browser.json.gz"


@pytest.fixture(scope="module")
def logs(shared: Path) -> Path:
    return shared / "logs" / "inspect"


def choose_rules(path: Path) -> tuple[str, ...]:
    labelled = any(word in path.name for word in ("agent_threat", "agentdojo"))
    return () if labelled else next((rule,) for rule, words in RULES.items() if any(word in path.name for word in words))


def read(path: Path) -> list:
    return list(read_log(path, violation=choose_rules(path)))


def test_the_table_names_every_file(logs: Path) -> None:
    held = {str(p.relative_to(logs)) for p in logs.rglob("*") if p.is_file() and p.name != "README.md"}
    assert held == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_each_file_is_read_or_refused_by_name(logs: Path, name: str) -> None:
    expected = TABLE[name]
    if expected == SHORT:
        log = read_log(logs / name, violation=choose_rules(logs / name))
        held, failure = len(list(log)), log.failures[-1]
        assert SHORT in str(failure.error)
        assert failure.missing > 0
        assert Path(name).name in str(failure.error)
        assert f"found {held}" in str(failure.error)
        return
    if isinstance(expected, str):
        with pytest.raises(errors.InputError, match=expected) as caught:
            read(logs / name)
        assert Path(name).name in str(caught.value)
        assert isinstance(caught.value, errors.OutOfScopeError) == (expected in {NO_TOOLS, ATIF})
        return
    episodes = read(logs / name)
    calls = sum(len(e.transcript.calls) for e in episodes)
    assert (len(episodes), calls, sum(e.flagged for e in episodes)) == expected
    assert len({e.record for e in episodes}) == len(episodes)
    for e in episodes:
        assert e.record == f"{Path(name).name.removesuffix('.gz')}#{e.instance}#{e.epoch}"
        assert all(call.delivered for call in e.transcript.calls)


def one(path: Path, record: str = ""):
    return next(e for e in read(path) if record in e.record)


def stimuli(path: Path) -> dict[tuple[str, int], list[str | None]]:
    return {(e.instance, e.epoch): [t.stimulus for t in fingerprint_turns(e.transcript)] for e in read(path)}


def test_all_forms_of_one_run_show_the_same_stimuli(logs: Path) -> None:
    plain = stimuli(logs / "current_0.3.285/truncation_3epochs.eval")
    assert plain == stimuli(logs / "current_0.3.285/truncation_3epochs.json")
    assert plain == stimuli(logs / "crafted/chunked_layout.eval")
    assert plain == stimuli(logs / "crafted/duplicate_member_last_wins.eval")


def test_the_last_of_two_members_counts(logs: Path) -> None:
    twice = [e for e in read(logs / "crafted/duplicate_member_last_wins.eval") if e.edited]
    assert [(e.instance, e.epoch, e.flag.value) for e in twice] == [("big", 1, 1)]
    assert twice[0].metadata == {"superseded copy": True}


def test_system_prompt_tools_and_options_stand_in_the_context(logs: Path) -> None:
    call = one(logs / "current_0.3.285/truncation_3epochs.eval", "#big#1").transcript.calls[0]
    assert call.context.system.startswith("You are a careful agent.")
    assert [tool["name"] for tool in call.context.tools] == ["read_file", "bash", "read_file_dict", "submit"]
    assert call.context.opts == {"tool_choice": "auto"}
    assert call.context.decode == {"model": "mockllm/model"}
    assert call.stop == "tool_calls"


def test_a_cut_observation_has_no_raw_text(logs: Path) -> None:
    e = one(logs / "current_0.3.285/truncation_3epochs.eval", "#big#1")
    cut = e.transcript.calls[0].observations[0]
    assert (cut.truncation.raw_size, cut.truncation.cap, cut.raw) == (5900, 1024, None)
    assert "<START_TOOL_OUTPUT>" in cut.delivered
    assert e.flag.schema_check is True


@pytest.mark.parametrize(("version", "cut"), [("0.3.60", "head"), ("0.3.116", "head"), ("0.3.186", "middle")])
def test_the_era_of_the_cut_is_part_of_the_policy(logs: Path, version: str, cut: str) -> None:
    policy = one(logs / f"old/truncation_{version}.eval").harness.policies["truncation"]
    current = one(logs / "current_0.3.285/truncation_3epochs.eval").harness.policies["truncation"]
    assert policy.version == f"1001 bytes, {cut}"
    assert policy.digest != current.digest


def test_an_unlogged_cap_is_no_policy(logs: Path) -> None:
    assert "truncation" not in one(logs / "current_0.3.285/replay.eval").harness.policies


def test_an_error_is_what_the_agent_saw(logs: Path) -> None:
    calls = one(logs / "current_0.3.285/truncation_3epochs.eval", "#missing#1").transcript.calls
    raised, refused = calls[0].observations[0], calls[1].observations[0]
    assert (raised.error, raised.executed, raised.raw) == ("no such file nope.json", True, None)
    assert (refused.executed, refused.call) == (False, None)


@pytest.mark.parametrize(
    "name", ["current_0.3.285/approval_modify.eval", "old/approval_modify_0.3.116.eval", "old/approval_modify_0.3.186.eval"]
)
def test_an_approvers_change_is_what_was_executed(logs: Path, name: str) -> None:
    call = one(logs / name).transcript.calls[1]
    assert call.proposed.tool_calls[0].arguments == {"key": "k1"}
    assert call.observations[0].call.arguments == {"key": "SAFE"}


def test_a_spoofed_attachment_is_literal_text(logs: Path) -> None:
    transcript = one(logs / "current_0.3.285/attachment_spoof.eval").transcript
    shown = transcript.delivered(2)[-1].text
    assert shown == "attachment://15a1fd3cf73e0caa7a89454e71daf214"
    assert shown == transcript.calls[0].observations[0].raw == transcript.shown_after(2)[2].text
    assert transcript.calls[0].context.system.startswith("You are careful.")


def test_before_284_what_was_delivered_is_not_vouched_for(logs: Path) -> None:
    assert one(logs / "old/late_inplace_0.3.186.eval").transcript.unlogged == {"delivered", "executed"}
    assert one(logs / "current_0.3.285/late_inplace.eval").transcript.unlogged == frozenset()


def test_edited_inputs_are_shown_as_each_call_saw_them(logs: Path) -> None:
    late = one(logs / "current_0.3.285/late_inplace.eval").transcript
    assert (late.delivered(2)[2].text, late.delivered(3)[2].text) == (
        '{"key": "k0", "value": 5}',
        '{"key":"k0","value":"LATE"}',
    )
    compacted = one(logs / "current_0.3.285/compaction_edit.eval")
    assert compacted.transcript.delivered(5)[2].text == "(Tool result removed)"
    assert [(event.kind, event.turn) for event in compacted.events] == [("late-edit", 5)]


def test_cache_retries_limits_and_errors_are_said(logs: Path) -> None:
    here = logs / "current_0.3.285"
    assert [call.cached for call in one(here / "cache_rerun.eval").transcript.calls] == [True, False, False]
    assert [(e.instance, e.retries) for e in read(here / "retry_on_error.eval")] == [("good", 0), ("bad", 1)]
    assert {(e.status, e.limit) for e in read(here / "message_limit.eval")} == {("limited", "message")}
    failed = one(here / "status_error.eval", "bad")
    assert (failed.status, failed.error) == ("errored", "RuntimeError('infra blew up')")
    mixed = {e.instance: (e.copied, e.retries) for e in read(here / "eval_retry_2_mixed_m1_m2.eval")}
    assert mixed == {"good": (True, 0), "bad": (False, 1)}


def test_edited_scores_and_invalidation_are_said(logs: Path) -> None:
    episodes = read(logs / "current_0.3.285/rescored_invalidated_edited.eval")
    assert {e.record.partition("#")[2] for e in episodes if e.invalidated} == {"big#1", "big#2", "big#3"}
    assert [(e.instance, e.epoch, e.flagged) for e in episodes if e.edited] == [("big", 1, False)]
    assert {label.scorer for e in episodes for label in e.labels} == {"violation"}


def test_strange_ids_and_numbers_are_kept(logs: Path) -> None:
    episodes = read(logs / "current_0.3.285/nan_inf_bigint_slash_id.eval")
    assert [e.instance for e in episodes] == ["a/b c:é?.json", "7"]
    assert episodes[0].transcript.calls[0].proposed.tool_calls[0].arguments["x"] == 123456789012345678901234567890
    assert [label.violation for e in episodes for label in e.labels] == [None, None]
    with pytest.raises(errors.UnfingerprintableError, match="loses digits"):
        fingerprint_turns(episodes[0].transcript)


def test_an_unfinished_run_is_read_and_says_so(logs: Path) -> None:
    log = read_log(logs / "crafted/in_progress_no_header.eval", violation="violation=1")
    assert {e.status for e in log} == {"finished"}
    assert ["never finished" in str(failure.error) for failure in log.failures] == [True]
    assert log.failures[0].missing == 4


def test_known_scorers_need_no_rule_and_others_list_what_they_hold(logs: Path) -> None:
    quoting = [e for e in read_log(logs / "current_0.3.285/agent_threat_bench_mp_quoting.eval") if e.flagged]
    assert len(quoting) == 8
    with pytest.raises(errors.InputError, match="violation"):
        list(read_log(logs / "current_0.3.285/truncation_3epochs.eval"))


def test_the_match_key_is_the_logs_unless_the_caller_says_otherwise(logs: Path) -> None:
    path = logs / "current_0.3.285/litmus_corpus_ground_truth.eval"
    assert {label.match_key for e in read_log(path, violation="violation=1") for label in e.labels} == {"arguments"}
    said = read_log(path, violation="violation=1", match_key="arguments+observation")
    assert {label.match_key for e in said for label in e.labels} == {"arguments+observation"}


def test_pooled_and_repeated_inputs_fold_to_one_pool(logs: Path) -> None:
    transcript = one(logs / UNPOOLED).transcript
    assert [call.delivered for call in transcript.calls] == [((0, 1),), ((0, 3),), ((0, 5),), ((0, 7),), ((0, 9),)]
    assert not any(message.text.startswith("attachment://") for message in transcript.messages)


def test_the_corpus_shows_its_faults_and_nothing_else(logs: Path) -> None:
    found: dict[tuple[str, bool], int] = {}
    for e in read(logs / "current_0.3.285/litmus_corpus_ground_truth.eval"):
        kinds = {one.kind for one in find_artifacts(e) if one.before_flag is not False}
        key = ("+".join(sorted(kinds)), e.flagged)
        found[key] = found.get(key, 0) + 1
    assert found == {("replay", True): 12, ("truncation", True): 12, ("", True): 24, ("", False): 72}


@pytest.mark.parametrize(
    "name", [name for name, held in TABLE.items() if name.startswith("upstream") and not isinstance(held, str)]
)
def test_no_alarm_on_upstream_logs(logs: Path, name: str) -> None:
    assert [evidence for e in read(logs / name) for evidence in find_artifacts(e)] == []


@pytest.mark.parametrize("kind", ["ah", "de", "mp"])
def test_quoting_refusals_are_mention_only(logs: Path, kind: str) -> None:
    for e in read(logs / f"current_0.3.285/agent_threat_bench_{kind}_quoting.eval"):
        if e.flagged:
            assert {one.kind for one in find_artifacts(e)} == {"mention-only"}


def test_an_execution_is_told_from_every_other(logs: Path) -> None:
    current = logs / "current_0.3.285"
    runs = {e.record: e.run for e in read(current / "truncation_3epochs.eval")}
    assert None not in runs.values()
    assert len(set(runs.values())) == len(runs)
    assert None not in {e.run for e in read(logs / "old/truncation_0.3.60.eval")}
