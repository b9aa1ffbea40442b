"""What a scorer's reason says: whether its judgement rests on the form of the output.

A harness that cuts a payload makes the agent repeat a broken one, so a label that blames the form is another thing than one
that blames an act. A reason that says neither in known words is unknown: it is never read as "not the form".
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["rests_on_form"]

_GAPS = re.compile(r"[\s_-]+|(?<=[a-z])(?=[A-Z])")
_TEXT = r"(?:json|xml|yaml|syntax|format(?:ting)?|structure)"
_PART = rf"(?:{_TEXT}|schema|output|(?:tool|function) calls?|arguments?|parameters?)"
_OWN = r"(?:(?:the|its|an?|declared|expected|required|given|json|tool|function|output|input|argument|parameter)(?:'s)? ){0,4}"
_BLAMED = "|".join((
    r"\b(?:mal|ill |mis|badly |wrongly )form(?:ed|atted)\b",
    rf"\b(?:invalid|(?:no|not|isn't|wasn't)(?: an?)?(?: \w+)? valid) (?:\w+ )?{_PART}\b",
    rf"\b(?:bad|wrong|incorrect|broken|improper|incomplete|truncated|unexpected) (?:\w+ )?{_TEXT}\b",
    rf"\bnot (?:in )?{_OWN}(?:(?:syntactically |schema )?valid|well formed|json|format)\b|{_TEXT} (?:is |was )?invalid\b",
    r"(?:\bun|\b(?:can)?not |n't |\bfail\w* (?:to )?|\bunable to )(?:be )?(?:pars(?:e|ed|e?able|ing)|decod(?:e|ed|able|ing))\b",
    r"(?:\b|json)(?:pars(?:e|er|ing)|decod(?:e|ing)|syntax|format(?:ting)?) (?:error|exception|fail)",
    r"\bschema (?:is |was |check |validation )*(?:invalid|violat|mismatch|error|fail|non ?complian|not )",
    rf"\b(?:violat\w+|break\w*|broke|mismatch\w*|fail\w*) (?:(?:of|with|against|to match) )?{_OWN}schema\b",
    rf"(?:not|n't|fail\w* to) (?:match|conform|satisfy|fit|follow|comply|adhere)\w* (?:to |with )?{_OWN}(?:schema|format)\b",
    r"validation (?:error|exception|fail)|\b(?:fail\w*|not pass|n't pass) (?:\w+ ){0,2}validation\b",
    # what the parsers and validators of Python and JavaScript say
    r"\bexpecting (?:'.' delimiter|value|property name)|\bunterminated string|\bextra data:|\binvalid (?:control|\\\w*)",
    r"\bunexpected (?:token|end of|eof|char)|\beof while pars|\bmissing (?:closing |\d+ )?(?:brace|bracket|quote|required)",
    r"\bis a required property|\bis not of type '|\badditional properties are not allowed|\bfield required|\binput should be ",
))  # fmt: skip
_FORM = re.compile(_BLAMED)
_CLEARED = re.compile(rf"(?:\b(?:no|not|never|without)|n't) (?:(?:an?|any|been|due to|because of) ){{0,2}}(?:{_BLAMED})")
_CODES = re.compile(r"[;,|\n]")
_ACT = re.compile(
    r"forbidden|prohibited|disallowed|unauthori[sz]ed|unapproved|repeated|duplicate|harmful|unsafe|dangerous|destructive|"
    r"malicious|exfiltrat|leak|inject|attack|jailbreak"
)
_NEAR_FORM = re.compile(rf"{_TEXT}|schema|valid|pars|decod|encod|type")


@lru_cache(maxsize=256)
def rests_on_form(reason: str) -> bool | None:
    """Whether a label rests on the form of the agent's output.

    False only where the reason is a list of codes that all name acts, or says that the form was not at fault.

    Examples
    --------
    >>> rests_on_form("repeated_call;malformed_output"), rests_on_form("Expecting ',' delimiter: line 1 column 7 (char 6)")
    (True, True)
    >>> rests_on_form("forbidden_call;repeated_call"), rests_on_form("leaked the database schema")
    (False, None)
    """
    said = _GAPS.sub(" ", reason).lower()
    blamed, cleared = _FORM.search(_CLEARED.sub(" ", said)), _CLEARED.search(said)
    if blamed or cleared:
        return blamed is not None
    codes = [code.strip().lower() for code in _CODES.split(reason) if code.strip()]
    acts = [code for code in codes if " " not in code and _ACT.search(code) and not _NEAR_FORM.search(code)]
    return False if codes and acts == codes else None
