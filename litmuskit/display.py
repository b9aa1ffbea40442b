"""Everything a person sees passes through here.

A transcript is hostile text: attackers and models wrote it. It reaches a notebook (HTML, where scripts run with the
user's token), a terminal (where escape sequences run), a spreadsheet (where formulas run) and a figure (where ``$`` starts
mathematics). `safe_text` makes the characters visible and harmless; the renderers below put it into each medium.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any 

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table", "Tabular", "csv_cell", "format_cell", "safe_html", "safe_text"]

CSS = (
    ".litmuskit table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".litmuskit caption{caption-side:top;text-align:left;font-weight:600;padding:.3em 0}"
    ".litmuskit th,.litmuskit td{border-bottom:1px solid #8888;padding:.2em .7em;text-align:left;vertical-align:top}"
    ".litmuskit td.number{text-align:right}"
    ".litmuskit .text{unicode-bidi:isolate;direction:ltr;white-space:pre-wrap}"
)


@lru_cache(maxsize=4096)
def _show_character(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    category = unicodedata.category(character)
    invisible = category in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    selector = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or code in {0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0}
    spacing = category == "Zs" and character != " "
    return f"\u27e8U+{code:04X}\u27e9" if invisible or selector or spacing else character


def safe_text(text: object, *, limit: int | None = None, newlines: bool = False) -> str:
    r"""Make a hostile string visible and inert as plain text.

    Controls become pictures, invisible and direction-changing characters are named, and a cut made here is announced in
    words that no harness uses for its own.

    Parameters
    ----------
    text : object
        Anything; ``str`` is taken first.
    limit : int, optional
        Characters shown at most.
    newlines : bool
        Keep line feeds and tabs (for a terminal block or ``<pre>``).

    Returns
    -------
    str
        Printable text without surrogates, controls or invisible characters.

    Examples
    --------
    >>> safe_text("ok\x1b[8m\u202egnp.exe")
    'ok␛[8m⟨U+202E⟩gnp.exe'
    """
    whole = text if isinstance(text, str) else str(text)
    shown = whole if limit is None else whole[:limit]
    if not (shown.isascii() and shown.isprintable()):
        kept = "\n\t" if newlines else ""
        shown = "".join(c if (" " <= c < "\x7f" or c in kept) else _show_character(c) for c in shown)
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

    Numbers pass untouched. See OWASP, *CSV Injection*.

    Examples
    --------
    >>> csv_cell("=HYPERLINK(1)"), csv_cell(-2), csv_cell("plain")
    ("'=HYPERLINK(1)", -2, 'plain')
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    text = safe_text(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "'", "\u2409", "\u240d", "\uff1d", "\uff0b", "\uff0d", "\uff20"} else text


def format_cell(value: object) -> str:
    """One value as fixed-digit text; absent values are an en dash, never an empty cell or a zero.

    Examples
    --------
    >>> format_cell(0.1), format_cell(3), format_cell(None), format_cell(True)
    ('0.1000', '3', '–', 'yes')
    """
    if value is None or value != value:
        return "\u2013"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return safe_text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Sequence[tuple[Any, ...]]):
    """Named columns and rows of plain values: what every result shows itself as.

    Examples
    --------
    >>> t = Table(columns=("rung", "rate"), rows=(("calibrated", 0.25),), caption="ladder")
    >>> print(t.to_text())
    ladder
    rung        rate
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

    def to_text(self, *, limit: int = 60) -> str:
        """The table for a terminal, every cell through `safe_text`; ``limit`` is characters per cell."""
        body = [[safe_text(format_cell(cell), limit=limit) for cell in row] for row in self.rows]
        head = [safe_text(c) for c in self.columns]
        widths = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]
        numeric = [any(_is_number(r[i]) for r in self.rows) for i in range(len(head))]

        def line(cells: Sequence[str]) -> str:
            pairs = zip(cells, widths, numeric, strict=True)
            return "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in pairs).rstrip()

        rule = "  ".join("-" * w for w in widths)
        lines = [line(head), rule, *(line(r) for r in body)]
        return "\n".join([*([safe_text(self.caption)] if self.caption else []), *lines, *([safe_text(self.note)] if self.note else [])])

    def to_csv(self) -> str:
        """The table as CSV that opens as text in a spreadsheet."""
        import csv
        import io

        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([csv_cell(c) for c in self.columns])
        writer.writerows([[csv_cell(c) for c in row] for row in self.rows])
        return out.getvalue()

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{safe_html(c)}</th>' for c in self.columns)
        body = "".join(f"<tr>{''.join(_html_cell(c) for c in row)}</tr>" for row in self.rows)
        caption = f"<caption>{safe_html(self.caption)}</caption>" if self.caption else ""
        note = f"<p>{safe_html(self.note)}</p>" if self.note else ""
        return (
            f'<div class="litmuskit tex2jax_ignore mathjax_ignore"><style>{CSS}</style>'
            f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}</div>"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _html_cell(value: object) -> str:
    kind = "number" if _is_number(value) else "text"
    return f'<td class="{kind}">{safe_html(format_cell(value), limit=2000)}</td>'


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


