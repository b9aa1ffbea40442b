"""Everything a person sees passes through here.

A transcript is hostile text: attackers and models wrote it. It reaches a notebook (HTML, where scripts run with the
user's token), a terminal (where escape sequences run), a spreadsheet (where formulas run) and a figure (where ``$`` starts
mathematics). `safe_text` makes the characters visible and harmless; the renderers below put it into each medium.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table", "Tabular", "csv_cell", "format_cell", "safe_html", "safe_text"]

CSS = (
    ".litmuskit table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".litmuskit caption{caption-side:top;text-align:left;font-weight:600;padding:.3em 0}"
    ".litmuskit tr th,.litmuskit tr td{border-bottom:1px solid #8888;padding:.2em .7em;vertical-align:top}"
    ".litmuskit tr td{unicode-bidi:isolate;white-space:pre-wrap;overflow-wrap:anywhere}"
    ".litmuskit table tr .text{text-align:left;min-width:7em}.litmuskit table tr .number{text-align:right}"
    ".litmuskit table tr td.number{white-space:nowrap}"
)

# Printable by category, invisible by nature: Unicode's Default_Ignorable_Code_Point, and the blanks.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_FORMULA = re.compile(r"(^|;)(?=[\s\"']*[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=')")


def _name(character: str) -> str:
    return f"\u27e8U+{ord(character):04X}\u27e9"


class _Pictures(dict[int, str]):
    """Code point to its visible form, worked out when first met (a table for `str.translate`)."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code < 0x20 or code == 0x7F:
            shown = "\u2421" if code == 0x7F else chr(0x2400 + code)
        else:
            shown = character if character.isprintable() and not _UNSEEN.match(character) else _name(character)
        if len(self) < 4096:
            self[code] = shown
        return shown


_PICTURES = _Pictures()
_LINES = _Pictures({ord("\n"): "\n", ord("\t"): "\t"})


@cache
def _find_floods() -> re.Pattern[str]:
    """Combining marks that open a line, or follow four others: they paint over their surroundings."""
    codes = [code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)) in {"Mn", "Mc", "Me"}]
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0])]
    marks = "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)
    return re.compile(f"(?:^|(?<=[{marks}]{{4}}))[{marks}]+", re.MULTILINE)


def safe_text(text: object, *, limit: int | None = None, newlines: bool = False) -> str:
    r"""Make a hostile string visible and inert as plain text.

    Controls become pictures, invisible and direction-changing characters are named, and so is every combining mark after the
    fourth on a letter. A cut made here is announced in words that no harness uses for its own. The result is printable, encodes
    to UTF-8, and passing it through again changes nothing.

    Parameters
    ----------
    text : object
        Anything; ``str`` is taken first.
    limit : int, optional
        Characters shown at most, from 0.
    newlines : bool
        Keep line feeds and tabs (for a terminal block or ``<pre>``).

    Examples
    --------
    >>> safe_text("ok\x1b[8m\u202egnp.exe")
    'ok␛[8m⟨U+202E⟩gnp.exe'
    >>> safe_text("abcdef", limit=3)
    'abc [display shortened: 3 of 6 characters shown]'
    """
    whole = text if isinstance(text, str) else str(text)
    shown = whole if limit is None else whole[:limit]
    if not shown.isprintable() or _UNSEEN.search(shown):
        shown = shown.translate(_LINES if newlines else _PICTURES)
    if not shown.isascii():
        shown = _find_floods().sub(lambda flood: "".join(map(_name, flood[0])), shown)
    if limit is not None and len(whole) > limit:
        shown += f" [display shortened: {limit:,} of {len(whole):,} characters shown]"
    return shown


def safe_html(text: object, *, limit: int | None = None, newlines: bool = False) -> str:
    """`safe_text`, escaped for HTML element content and quoted attributes.

    Examples
    --------
    >>> safe_html("<img src=x onerror=alert(1)>")
    '&lt;img src=x onerror=alert(1)&gt;'
    """
    return html.escape(safe_text(text, limit=limit, newlines=newlines), quote=True)


def csv_cell(value: object) -> object:
    """A cell no spreadsheet takes for a formula: text that starts like one gets a leading apostrophe.

    So does text after a semicolon, where many spreadsheets split. Numbers pass; absent values are empty (OWASP: CSV Injection).

    Examples
    --------
    >>> csv_cell("=HYPERLINK(1)"), csv_cell("a;=1+1"), csv_cell(-2), csv_cell("plain")
    ("'=HYPERLINK(1)", "a;'=1+1", -2, 'plain')
    """
    plain = _simplify(value)
    return _FORMULA.sub(r"\1'", safe_text(plain)) if isinstance(plain, str) else plain


def format_cell(value: object, *, limit: int | None = None) -> str:
    """One value as fixed-digit safe text; absent values are an en dash, never an empty cell or a zero.

    Examples
    --------
    >>> format_cell(0.1), format_cell(3), format_cell(None), format_cell(True)
    ('0.1000', '3', '–', 'yes')
    """
    plain = _simplify(value)
    if plain is None:
        return "\u2013"
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, float):
        return f"{plain:.4f}" if abs(plain) < 1e6 else f"{plain:.4g}"
    return f"{plain:,}" if isinstance(plain, int) else safe_text(plain, limit=limit)


def _simplify(value: object) -> str | bool | int | float | None:
    """Numbers of other libraries as Python's own, not-a-number as None; what is no number, or too long to print, as text."""
    kind = type(value).__name__
    if value is None or kind in {"NAType", "NaTType"}:
        return None
    if isinstance(value, str | bool) or kind in {"bool", "bool_"}:
        return value if isinstance(value, str) else bool(value)
    if isinstance(value, Integral):
        number = int(value)
        return number if number.bit_length() < 256 else f"integer of {number.bit_length():,} bits"
    if isinstance(value, Real):
        return None if math.isnan(value) else float(value)
    return str(value)


def _measure(text: str) -> int:
    """Columns that a text takes in a terminal."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Sequence[tuple[Any, ...]]):
    """Named columns and rows of plain values: what every result shows itself as.

    Examples
    --------
    >>> t = Table(columns=("rung", "rate"), rows=(("calibrated", 0.25),), caption="ladder")
    >>> print(t.to_text())
    ladder
    rung          rate
    ----------  ------
    calibrated  0.2500
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    caption: str = ""
    note: str = field(default="", repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __repr__(self) -> str:
        return f"Table({safe_text(self.caption)!r}, {len(self.rows)} rows x {len(self.columns)} columns)"

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas frame, values as they are."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.columns))

    def to_records(self) -> list[dict[str, Any]]:
        """The table as a list of dictionaries, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_text(self, *, limit: int = 120) -> str:
        """The table for a terminal, every cell through `safe_text`; ``limit`` is characters per cell."""
        head, *body = [[format_cell(cell, limit=limit) for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(map(_measure, column)) for column in zip(head, *body, strict=True)]
        numeric = self._find_numeric()

        def join(cells: Sequence[str]) -> str:
            pads = [" " * (width - _measure(cell)) for width, cell in zip(widths, cells, strict=True)]
            aligned = zip(numeric, pads, cells, strict=True)
            return "  ".join(pad + cell if right else cell + pad for right, pad, cell in aligned).rstrip()

        rule = "  ".join("-" * width for width in widths)
        lines = (safe_text(self.caption), join(head), rule, *map(join, body), safe_text(self.note))
        return "\n".join(line for line in lines if line)

    def to_csv(self) -> str:
        """The table as CSV that opens as text in a spreadsheet."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerows([csv_cell(cell) for cell in row] for row in (self.columns, *self.rows))
        return out.getvalue()

    def _find_numeric(self) -> list[bool]:
        kinds = [{type(_simplify(row[i])) for row in self.rows} for i in range(len(self.columns))]
        return [not found.isdisjoint({int, float}) for found in kinds]

    def _repr_html_(self) -> str:
        kinds = ["number" if numeric else "text" for numeric in self._find_numeric()]

        def mark(tag: str, cells: Sequence[Any]) -> str:
            shown = zip(kinds, (html.escape(format_cell(cell, limit=2000)) for cell in cells), strict=True)
            return "".join(f'<{tag} class="{kind}">{text}</{tag[:2]}>' for kind, text in shown)

        body = "".join(f"<tr>{mark('td', row)}</tr>" for row in self.rows)
        caption = f"<caption>{safe_html(self.caption)}</caption>" if self.caption else ""
        note = f"<p>{safe_html(self.note)}</p>" if self.note else ""
        head = mark('th scope="col"', self.columns)
        return (
            f'<div class="litmuskit tex2jax_ignore mathjax_ignore" dir="ltr"><style>{CSS}</style>'
            f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}</div>"
        )


class Tabular:
    """What a result inherits to show itself: it says its `Table`, the rest follows."""

    __slots__ = ()

    def to_table(self) -> Table:
        """The result as named columns and rows."""
        raise TypeError(f"{type(self).__name__} does not say its table")

    def to_frame(self) -> pd.DataFrame:
        """The result as a pandas frame."""
        return self.to_table().to_frame()

    def _repr_html_(self) -> str:
        return self.to_table()._repr_html_()
