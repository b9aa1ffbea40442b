"""Stimulus fingerprints: the byte layout ``litmuskit-fp/1``.

What an agent was shown is hashed part by part, every part framed by its length, so that no byte can slide from one part
into the next (the end of a system prompt into the tools, a user message into an observation: the trust boundary)::

    F(b)           = u64be(len(b)) || b
    D(tag; p1..pk) = SHA-256( F("litmuskit-fp/1") || F(tag) || u64be(k) || F(p1) || ... || F(pk) )
    J(x)           = RFC 8785 bytes of x
    T(s)           = ("utf-8", utf8(s)), or ("utf-8-surrogatepass", ...) where s holds lone surrogates
    system         = D("system") when absent, else D("system"; T(s))
    tool           = D("tool"; J(schema));  tools = D("tools"; tool...);  toolset = D("toolset"; sorted tool...)
    opts           = D("opts"; J(opts))          of tool_choice, parallel_tool_calls, response_format, where set
    obs            = D("obs"; "bytes"; raw) | D("obs"; T(text)) | D("obs"; "json"; J(blocks)) | D("obs")
    call           = D("call"; alias; name; "text"|"json"; args)      ids become c0, c1... by first appearance
    msg            = D("msg"; "tool"; "reply-to"; alias; "obs"; obs [; "error"; utf8])
                   | D("msg"; role [; "text"; T(content) | "json"; J(content)] [; "call"; call]...)
    chain_0        = D("chain/0"; system; tools; opts);   chain_t = D("chain"; chain_{t-1}; msg_t)
    env_0          = D("env/0"; system; tools; opts);     env_t   = D("env"; env_{t-1}; obs or msg)
                                                          env_t   = D("env/agent"; env_{t-1}) after an assistant message
    stimulus_t     = D("stimulus"; system; tools; opts; chain_t)

``chain`` is the identity of the whole context; ``env`` leaves out the agent's own words, so that two runs whose harness did
the same have one env. A part the log does not hold is hashed under its own tag and equals nothing that was logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from litmuskit.display import Table, Tabular
from litmuskit.errors import InputError, UnfingerprintableError
from litmuskit.framing import (
    DIGEST_FRAME,
    OPTIONS,
    SPEC,
    Aliases,
    Surroundings,
    canonical_part,
    digest_message,
    digest_parts,
    frame_head,
)
from litmuskit.messages import parse_stimulus
from litmuskit.records import Context, Message, ModelCall, Ranges, Transcript
from litmuskit.transcript import Record, describe_fields

__all__ = ["SPEC", "Fingerprint", "TurnFingerprint", "digest_stimulus", "fingerprint", "fingerprint_turns"]


_CHAIN_HEAD, _ENV_HEAD = (frame_head(tag, 2) + DIGEST_FRAME for tag in ("chain", "env"))
_AGENT_HEAD = frame_head("env/agent", 1) + DIGEST_FRAME


class _Chain:
    """The running digests over one message list; ``extend`` costs O(1) per message."""

    __slots__ = ("aliases", "chain", "env", "head", "msg", "obs", "surroundings")

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings, self.head = surroundings, surroundings.stimulus_head()
        self.aliases = Aliases()
        self.msg: list[bytes] = []
        self.obs: list[bytes | None] = []
        self.chain = [surroundings.seed("chain/0")]
        self.env = [surroundings.seed("env/0")]

    def extend(self, messages: Iterable[Message]) -> None:
        chain, env, aliases = self.chain[-1], self.env[-1], self.aliases
        for message in messages:
            try:
                msg, obs = digest_message(message, aliases)
            except UnfingerprintableError as error:
                where = f"$.messages[{len(self.msg)}]{str(error.where).removeprefix('$')}"
                raise UnfingerprintableError(error.what, where=where, expected=error.expected, found=error.found) from error
            chain = sha256(_CHAIN_HEAD + chain + DIGEST_FRAME + msg).digest()
            if message.role == "assistant":
                env = sha256(_AGENT_HEAD + env).digest()
            else:
                env = sha256(_ENV_HEAD + env + DIGEST_FRAME + (obs or msg)).digest()
            self.msg.append(msg)
            self.obs.append(obs)
            self.chain.append(chain)
            self.env.append(env)

    def seal(self, length: int = -1) -> str:
        """The stimulus after a number of messages, by default all."""
        return sha256(self.head + self.chain[length]).hexdigest()


def _hexes(digests: Iterable[bytes]) -> list[str]:
    return [digest.hex() for digest in digests]


@dataclass(frozen=True, slots=True, kw_only=True, eq=True)
class Fingerprint(Tabular):
    """What an agent was shown, as hex SHA-256 digests.

    ``msg`` and ``obs`` have one entry per message (``obs`` None for other roles); ``chain``, ``env`` and ``stimulus`` have
    one more: index 0 is the state before any message. ``unlogged`` names the parts the log does not hold, ``dropped`` the
    keys that are no part of a stimulus (ids, usage, metadata).
    """

    system: str
    tool: list[str]
    tools: str
    toolset: str
    opts: str
    msg: list[str]
    obs: list[str | None]
    chain: list[str]
    env: list[str]
    stimulus: list[str]
    decode: str
    roles: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.stimulus[-1])

    def __repr__(self) -> str:
        missing = f", unlogged {', '.join(self.unlogged)}" if self.unlogged else ""
        return f"Fingerprint({SPEC} {self.stimulus[-1][:12]}, {len(self.tool)} tools, {len(self.msg)} messages{missing})"

    def to_table(self) -> Table:
        """One row per component, digests shortened to 16 hex digits."""
        rows = [("system", None, self.system), ("tools", len(self.tool), self.tools), ("opts", None, self.opts)]
        rows += [(role, i, digest) for i, (role, digest) in enumerate(zip(self.roles, self.msg, strict=True))]
        rows.append(("stimulus", len(self.msg), self.stimulus[-1]))
        shown = tuple((part, index, digest[:16]) for part, index, digest in rows)
        return Table(columns=("component", "index", "digest"), rows=shown, caption=f"{SPEC} fingerprint")

    def to_json(self) -> dict[str, Any]:
        """All digests under the names of the byte layout."""
        names = ("system", "tool", "tools", "toolset", "opts", "msg", "chain", "env", "stimulus", "decode")
        values = {name: getattr(self, name) for name in names}
        return {"spec": SPEC, **values, "unlogged": list(self.unlogged), "dropped": list(self.dropped)}


def _seal(
    chain: _Chain, messages: Sequence[Message], context: Context, unlogged: Iterable[str], dropped: Iterable[str]
) -> Fingerprint:
    around = chain.surroundings
    return Fingerprint(
        system=around.system.hex(),
        tool=_hexes(around.tool),
        tools=around.tools.hex(),
        toolset=around.toolset().hex(),
        opts=around.opts.hex(),
        msg=_hexes(chain.msg),
        obs=[None if obs is None else obs.hex() for obs in chain.obs],
        chain=_hexes(chain.chain),
        env=_hexes(chain.env),
        stimulus=[chain.seal(length) for length in range(len(chain.chain))],
        decode=digest_parts("decode", canonical_part(dict(context.decode), "$.decode")).hex(),
        roles=tuple(message.role for message in messages),
        unlogged=tuple(sorted(unlogged)),
        dropped=tuple(sorted(dropped)),
    )


def fingerprint(stimulus: Transcript | Mapping[str, Any], *, turn: int | None = None) -> Fingerprint:
    """Fingerprint what an agent was shown.

    Parameters
    ----------
    stimulus : Transcript or mapping
        A transcript, or ``{"system", "tools", "opts", "messages"}`` with chat messages (``role``, ``content`` or
        ``content_b64``, ``tool_calls`` of ``{id, name, arguments}``, ``tool_call_id``, ``error``).
    turn : int, optional
        Which model call of a transcript, from 1; the last by default.

    Raises
    ------
    UnfingerprintableError
        When a part has no canonical form, or the log does not hold what was delivered.

    Examples
    --------
    >>> fp = fingerprint({"system": "s", "tools": [], "opts": {}, "messages": [{"role": "user", "content": "hi"}]})
    >>> fp
    Fingerprint(litmuskit-fp/1 f13f12861379, 0 tools, 1 messages)
    """
    dropped: set[str] = set()
    unlogged: frozenset[str] = frozenset()
    if isinstance(stimulus, Transcript):
        number = len(stimulus.calls) if turn is None else turn
        if not 1 <= number <= len(stimulus.calls):
            raise InputError("no such model call", where="turn", expected=f"1..{len(stimulus.calls)}", found=turn)
        shown = stimulus.delivered(number)
        if shown is None:
            raise UnfingerprintableError("what was delivered is not logged", where=f"turn {number}")
        context, messages, unlogged = stimulus.calls[number - 1].context, shown, stimulus.unlogged & {"system", "tools", "opts"}
    elif isinstance(stimulus, Mapping):
        if turn is not None:
            raise InputError("a turn names a model call of a transcript", where="turn", found=turn)
        context, messages = parse_stimulus(stimulus, dropped)
    else:
        raise InputError(
            "nothing to fingerprint", where="$", expected="a Transcript or a mapping", found=type(stimulus).__name__
        )
    dropped |= {f"opts.{name}" for name in context.opts if name not in OPTIONS}
    chain = _Chain(Surroundings.of(context, unlogged))
    chain.extend(messages)
    return _seal(chain, messages, context, unlogged, dropped)


def digest_stimulus(transcript: Transcript, turn: int) -> str:
    """The stimulus digest (hex) of model call ``turn`` alone: the last of `fingerprint`'s.

    Raises
    ------
    UnfingerprintableError
        As `fingerprint`.
    """
    call = transcript.calls[turn - 1]
    shown = transcript.expand(call.delivered)
    if shown is None:
        raise UnfingerprintableError("what was delivered is not logged", where=f"turn {turn}")
    chain = _Chain(Surroundings.of(call.context, transcript.unlogged))
    chain.extend(shown)
    return chain.seal()


@describe_fields
class TurnFingerprint(Record, frozen=True, kw_only=True):
    """The identity of what one model call was shown: hex ``stimulus``, ``chain`` and ``env``; None where not logged."""

    turn: int
    stimulus: str | None
    chain: str | None
    env: str | None
    messages: int


def fingerprint_turns(transcript: Transcript) -> tuple[TurnFingerprint, ...]:
    """Fingerprint every model call in one pass: O(n) for a history that only grows.

    Where a later input differs from an earlier one (a late edit, a compaction), the chain is rebuilt from the first
    difference on, so that each turn's digest is of what *that* call was shown.

    Examples
    --------
    >>> hi, yes = Message(role="user", content="hi"), Message(role="assistant", content="yes")
    >>> from litmuskit.records import ModelCall
    >>> call = ModelCall(turn=1, context=Context(system="s"), delivered=((0, 1),), proposed=yes)
    >>> fingerprint_turns(Transcript(messages=(hi,), calls=(call,)))[0].stimulus[:12]
    'f13f12861379'
    """
    unlogged = transcript.unlogged & {"system", "tools", "opts"}
    turns: list[TurnFingerprint] = []
    chain: _Chain | None = None
    previous = ModelCall(turn=1, context=Context(), delivered=(), proposed=None)
    for call in transcript.calls:
        if call.delivered is None:
            turns.append(TurnFingerprint(turn=call.turn, stimulus=None, chain=None, env=None, messages=0))
            continue
        fresh = _added(previous.delivered or (), call.delivered)
        if chain is None or fresh is None or call.context is not previous.context:  # equality would take 1 for True
            around = Surroundings.of(call.context, unlogged)
            if chain is None or fresh is None or around != chain.surroundings:
                chain, fresh = _Chain(around), call.delivered
        chain.extend(transcript.expand(fresh) or ())
        previous = call
        last, env = chain.chain[-1].hex(), chain.env[-1].hex()
        turns.append(TurnFingerprint(turn=call.turn, stimulus=chain.seal(), chain=last, env=env, messages=len(chain.msg)))
    return tuple(turns)


def _added(before: Ranges, after: Ranges) -> Ranges | None:
    """What ``after`` shows beyond ``before``; None when ``before`` is no prefix of it."""
    if not before:
        return after
    last, (start, stop) = len(before) - 1, before[-1]
    if len(after) <= last or after[last][0] != start or after[last][1] < stop or before[:last] != after[:last]:
        return None
    return ((stop, after[last][1]), *after[last + 1 :])
