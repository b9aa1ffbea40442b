from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from litmuskit import transcript
from litmuskit.errors import InputError
from litmuskit.transcript import Context, Message, ModelCall, Observation, Record, ToolCall, Transcript, Truncation

CALL = ToolCall(name="read", arguments={"path": "a"}, id="1")
SAID = Message(role="assistant", content=None, tool_calls=(CALL,))
CUT = Observation(position=0, call=CALL, executed=True, delivered="x", truncation=Truncation(cap=1))
TURN = ModelCall(turn=1, context=Context(opts={"tool_choice": "auto"}), delivered=((0, 1),), proposed=SAID, observations=(CUT,))
RECORDS = [CALL, SAID, CUT, CUT.truncation, TURN.context, TURN, Transcript(messages=(SAID,), calls=(TURN,), final=((0, 1),))]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_frozen_keyword_only_and_a_dataclass_to_others(record):
    names = [one.name for one in dataclasses.fields(record)]
    parts = {name: getattr(record, name) for name in names}
    assert names == list(type(record).__struct_fields__)
    assert type(record)(**parts) == record == dataclasses.replace(record)
    assert record == pickle.loads(pickle.dumps(record)) == copy.deepcopy(record)  # noqa: S301  # our own bytes
    assert list(dataclasses.asdict(record)) == names
    with pytest.raises(AttributeError):
        setattr(record, names[0], None)
    with pytest.raises(AttributeError):
        record.other = None
    with pytest.raises(TypeError):
        type(record)(*parts.values())


def test_every_record_of_a_transcript_is_tried():
    kinds = {kind for kind in vars(transcript).values() if isinstance(kind, type) and issubclass(kind, Record)}
    assert {type(record) for record in RECORDS} == kinds - {Record}


def test_defaults_are_not_shared_and_replacing_checks_again():
    assert Context().opts is not Context().opts
    assert dataclasses.replace(CALL, id="2") == ToolCall(name="read", arguments={"path": "a"}, id="2")
    assert (CALL, hash(Truncation(cap=1))) != (dataclasses.replace(CALL, id="2"), hash(Truncation(cap=2)))
    with pytest.raises(InputError, match="role"):
        dataclasses.replace(SAID, role="nobody")
    with pytest.raises(InputError, match="outside the pool"):
        dataclasses.replace(RECORDS[-1], final=((0, 2),))


@pytest.mark.parametrize(
    "unlogged", [["final"], ("final",), "final", None, 1, {"final": 1}, {"past"}, frozenset({1})], ids=repr
)
def test_what_is_unlogged_is_a_set_of_components(unlogged):
    with pytest.raises(InputError, match=r"transcript\.unlogged"):
        dataclasses.replace(RECORDS[-1], unlogged=unlogged)
