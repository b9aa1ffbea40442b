"""What a reason says: form, an act, or nothing that is known."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litmuskit.readers.reasons import rests_on_form

FORM = [
    "malformed_output",
    "malformed_output;repeated_forbidden_call;malformed_output",
    "MalformedOutput",
    "not valid JSON",
    "The output is not valid JSON.",
    "Output was not a valid JSON object",
    "invalid JSON",
    "InvalidJSON",
    "unparseable",
    "unparsable output",
    "could not be parsed",
    "could not parse the arguments",
    "couldn't parse arguments",
    "failed to parse tool call",
    "unable to parse the reply",
    "parse error",
    "ParseError: bad token",
    "JSONDecodeError: Expecting ',' delimiter: line 1 column 7 (char 6)",
    "Expecting ',' delimiter: line 1 column 7 (char 6)",
    "Expecting value: line 1 column 1 (char 0)",
    "Expecting property name enclosed in double quotes",
    "Unterminated string starting at: line 1 column 6",
    "Extra data: line 1 column 3 (char 2)",
    "Invalid control character at: line 1",
    "Invalid \\escape: line 1 column 7",
    "Unexpected token } in JSON at position 3",
    "Unexpected end of JSON input",
    "bad format",
    "bad_format",
    "wrong output format",
    "not in the expected format",
    "format error",
    "schema invalid",
    "schema-invalid",
    "schema_invalid",
    "not schema valid",
    "schema violation",
    "SchemaValidationError",
    "violates the tool schema",
    "does not match the schema",
    "did not conform to the declared JSON schema",
    "doesn't match the expected format",
    "fails schema validation",
    "failed validation",
    "validation error",
    "ValidationError",
    "1 validation error for Input schema",
    "invalid arguments",
    "invalid_argument",
    "invalid tool call",
    "invalid output",
    "'a' is a required property",
    "'x' is not of type 'integer'",
    "Additional properties are not allowed ('zz' was unexpected)",
    "Field required [type=missing",
    "Input should be a valid integer",
    "syntax error",
    "SyntaxError: invalid syntax",
    "truncated JSON",
    "the JSON is incomplete: missing closing brace",
    "schema mismatch",
    "json is invalid",
    "not well-formed",
    "not JSON",
    "missing required argument 'to'",
    "schema_check_failed",
    "schema_validation_failed",
    "arguments failed schema validation",
    "invalid_json_output",
    "output_malformed",
    "parsing_failed",
    "json_parse_error",
    "json.decoder.JSONDecodeError",
    "tool_call_parse_error",
    "the reply is not parseable",
    "The arguments are invalid JSON",
    "invalid schema",
    "output does not satisfy the schema",
    "output format is invalid",
    "tool arguments are not valid against the schema",
    "could not decode the output as JSON",
    "ill-formed",
    "cannot be parsed",
    "cannot parse arguments",
    "failure to parse the reply",
    "failed parsing",
    "tool call cannot be decoded",
    "badly formatted output",
    "the output could not be decoded",
]
ACTS = [
    "forbidden_call",
    "repeated_forbidden_call",
    "forbidden_call;repeated_forbidden_call",
    "forbidden",
    "forbidden_call, unauthorized_transfer",
    "not malformed",
    "no parse error; called the tool",
    "no schema violation",
    "the output was not malformed, but it sent the money",
    "ForbiddenCall",
    "the reply was never unparseable",
]
UNKNOWN = [
    "",
    "leaked the database schema",
    "dropped the schema of the production database",
    "quarantined",
    "formatted the disk",
    "format the report and mail it",
    "the agent sent the wrong amount",
    "called transfer with wrong arguments",
    "forbidden_call;xyz",
    "forbidden_format",
    "sent information to the attacker",
    "performance was bad",
    "Task: data_exfil | OWASP: ASI01 | Attack: clean_baseline",
    "The state changed towards the new one between the snapshots.",
    "json_injection_exfil",
    "parsed the secret out of the file",
    "the agent read the arguments and validated them",
    "exfiltrated schema.sql",
    "Attack: json_injection",
    "it validated the token",
    "was able to parse the secret",
    "sparse errors in the mail",
    "information error",
    "unexpected output",
    "it wrote an argument against the plan",
    "forbidden call",
    "the JSON schema was posted on a public forum",
    "modified the schema, an irreversible action",
    "0",
    "platform error in transfer",
]


@pytest.mark.parametrize("reason", FORM)
def test_a_complaint_about_form_is_known_in_any_spelling(reason: str) -> None:
    spellings = (
        reason,
        reason[0].upper() + reason[1:],
        f"flagged: {reason}",
        f"forbidden_call;{reason}",
        f"{reason}, forbidden",
    )
    assert {rests_on_form(spelt) for spelt in spellings} == {True}


@pytest.mark.parametrize("reason", ACTS)
def test_codes_that_name_acts_alone_and_a_form_that_is_cleared_rest_on_no_form(reason: str) -> None:
    assert rests_on_form(reason) is False


@pytest.mark.parametrize("reason", UNKNOWN)
def test_what_is_not_known_is_unknown(reason: str) -> None:
    assert rests_on_form(reason) is None
    assert rests_on_form(f"forbidden_call;{reason or 'x'}") is None


@given(st.text() | st.lists(st.sampled_from([*FORM, *ACTS, *UNKNOWN, "not", "no", ";"])).map(" ".join))
def test_any_text_is_read(reason: str) -> None:
    assert rests_on_form(reason) in {True, False, None}


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), min_size=1), st.integers(1), st.booleans())
def test_what_the_json_parser_says_is_about_form(document: dict, at: int, cut: bool) -> None:
    text = json.dumps(document)
    broken = text[: at % len(text)] if cut else text + text[: at % len(text) + 1]
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(broken)
    assert rests_on_form(str(caught.value)) is True


@pytest.mark.parametrize("found", [{}, {"a": "x"}, [], {"a": 1, "b": 2}])
def test_what_a_schema_validator_says_is_about_form(found: object) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    (first, *_) = jsonschema.Draft202012Validator(schema).iter_errors(found)
    assert rests_on_form(first.message) is True


def test_a_long_reason_costs_its_length() -> None:
    for piece in (" ", "not ", "no an any ", "invalid a ", "schema validation ", "fails to match the its ", "violat", "_", ";"):
        assert rests_on_form(f"a{piece * (200_000 // len(piece))}b") in {None, False, True}
