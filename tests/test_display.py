"""Hostile text through every renderer: nothing executes, nothing hides, nothing counts as a formula."""

from __future__ import annotations

import csv
import io
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hostile import PAYLOADS, make_hostile_episode
from hypothesis import given
from hypothesis import strategies as st

from litmuskit.audit import Audit, audit_log
from litmuskit.display import Table, Tabular, csv_cell, format_cell, safe_html, safe_text
from litmuskit.errors import LogFormatError
from litmuskit.report import write_bundle, write_report

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)  # lone surrogates too
UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Unicode 15 DerivedCoreProperties, Default_Ignorable_Code_Point, written out by hand: the oracle.
IGNORABLE = {
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Tabular):
    text: str

    def to_table(self) -> Table:
        return make_table(self.text)


def make_table(text: str) -> Table:
    return Table(columns=(text, "n"), rows=((text, 1), (None, 2)), caption=text, note=text)


HTML_RENDERERS = {
    "element": lambda text: f"<div>{safe_html(text)}</div>",
    "attribute": lambda text: f'<div title="{safe_html(text)}"></div>',
    "attribute-single": lambda text: f"<div title='{safe_html(text)}'></div>",
    "block": lambda text: f"<pre>{safe_html(text, newlines=True)}</pre>",
    "table": lambda text: make_table(text)._repr_html_(),
    "result": lambda text: Shown(text=text)._repr_html_(),
}
TEXT_RENDERERS = {
    "safe_text": safe_text,
    "format_cell": format_cell,
    "to_text": lambda text: make_table(text).to_text(),
    "to_text-cut": lambda text: make_table(text).to_text(limit=5),
    "to_csv": lambda text: make_table(text).to_csv(),
    "repr": lambda text: repr(make_table(text)),
    **HTML_RENDERERS,
}


class Markup(HTMLParser):
    """Every tag and attribute that a page really holds."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_comment(self, data):
        self.tags.append("comment")


def is_hidden(character: str) -> bool:
    return unicodedata.category(character) in UNSAFE or ord(character) in IGNORABLE


@pytest.mark.parametrize("renderer", HTML_RENDERERS)
@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_adds_no_markup(name, renderer):
    render = HTML_RENDERERS[renderer]
    page, plain = Markup(render(PAYLOADS[name])), Markup(render("plain"))
    assert page.tags == plain.tags
    assert page.attributes == plain.attributes <= {"class", "dir", "scope", "title"}


@pytest.mark.parametrize("renderer", TEXT_RENDERERS)
@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_hides_nothing(name, renderer):
    shown = TEXT_RENDERERS[renderer](PAYLOADS[name])
    shown.encode("utf-8")
    assert not {c for c in shown if c not in "\n\t" and is_hidden(c)}


@given(ANY_TEXT)
def test_safe_text_is_printable_and_settled(text):
    shown = safe_text(text)
    shown.encode("utf-8")
    assert not {c for c in shown if is_hidden(c)}
    assert {c for c in shown if unicodedata.category(c) == "Zs"} <= {" "}
    assert safe_text(shown) == shown


@given(ANY_TEXT)
def test_safe_html_holds_no_element(text):
    page = Markup(safe_html(text))
    assert page.tags == []
    assert not set(safe_html(text)) & set("<>\"'")


@pytest.mark.parametrize(
    "text",
    ["100 %", "naïve café", "Ελληνικά", "हिन्दी में", "ภาษาไทยที่นี่", "שָׁלוֹם", "日本語テキスト", "emoji 🎉", "a\u0301"],
)
def test_ordinary_writing_is_left_alone(text):
    assert safe_text(text) == text


def test_every_ignorable_code_point_is_named():
    assert all(safe_text(chr(code)) == f"⟨U+{code:04X}⟩" for code in IGNORABLE)


def test_controls_become_pictures():
    assert safe_text("\x00\t\n\r\x1b\x7f\x85") == "␀␉␊␍␛␡⟨U+0085⟩"
    assert safe_text("a\n\tb\r", newlines=True) == "a\n\tb␍"


def test_a_flood_of_marks_is_named_after_the_fourth():
    assert safe_text("Z" + "\u0301" * 6) == "Z" + "\u0301" * 4 + "⟨U+0301⟩" * 2
    assert safe_text("\u0338<") == "⟨U+0338⟩<"
    assert safe_text("a\n\u0301", newlines=True) == "a\n⟨U+0301⟩"


def test_a_cut_is_announced_with_both_sizes():
    assert safe_text("x" * 4096, limit=812) == "x" * 812 + " [display shortened: 812 of 4,096 characters shown]"
    assert safe_text("abc", limit=3) == "abc"
    assert safe_text("abc", limit=0) == " [display shortened: 0 of 3 characters shown]"
    assert "2,000 of 9,999 characters" in Table(columns=("a",), rows=(("é" * 9999,),))._repr_html_()


FORMULA_STARTS = set("=+-@＝＋－＠")


def split_as_spreadsheet(text: str, delimiter: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text), delimiter=delimiter) for cell in row]


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("name", PAYLOADS)
def test_no_cell_opens_as_a_formula(name, delimiter):
    cells = split_as_spreadsheet(make_table(PAYLOADS[name]).to_csv(), delimiter)
    assert not [cell for cell in cells if cell.strip(" \t\"'")[:1] in FORMULA_STARTS and not cell.lstrip().startswith("'")]


@given(st.text("=+-@;,\"' \t\r\nax1", max_size=12), st.sampled_from(",;"))
def test_no_text_opens_as_a_formula(text, delimiter):
    cells = split_as_spreadsheet(make_table(text).to_csv(), delimiter)
    assert not [cell for cell in cells if cell.lstrip(' "')[:1] in FORMULA_STARTS]


@given(st.text("=+-@'ax1 ", max_size=12))
def test_csv_text_comes_back_less_its_apostrophe(text):
    cell = csv_cell(text)
    assert cell in (text, f"'{text}")
    assert not text.startswith("'") or cell == f"'{text}"


def test_numbers_stay_numbers_in_csv():
    table = Table(columns=("n",), rows=((-2,), (0.5,), (np.int64(-3),), (np.float64("nan"),), (None,), (True,)))
    assert table.to_csv().splitlines() == ['"n"', "-2", "0.5", "-3", '""', '""', "True"]


@pytest.mark.parametrize("absent", [None, np.nan, np.float32("nan"), pd.NA, pd.NaT])
def test_absent_is_a_dash(absent):
    assert format_cell(absent) == "–"
    assert csv_cell(absent) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.int64(12345), "12,345"),
        (np.float32(0.25), "0.2500"),
        (np.True_, "yes"),
        (np.bool_(False), "no"),
        (Fraction(1, 4), "0.2500"),
        (Decimal("0.25"), "0.25"),
        (float("inf"), "inf"),
        (1.5e9, "1.5e+09"),
        (b"\x1b", "b'\\x1b'"),
        (["\x1b"], "['\\x1b']"),
    ],
)
def test_values_of_any_library(value, shown):
    assert format_cell(value) == shown


def test_an_integer_too_long_to_print_says_its_size():
    assert format_cell(10**5000) == csv_cell(10**5000) == "integer of 16,610 bits"


def test_mathjax_is_told_to_look_away():
    page = make_table(PAYLOADS["mathjax"])._repr_html_()
    assert page.startswith('<div class="litmuskit tex2jax_ignore mathjax_ignore" dir="ltr">')


def test_columns_line_up_in_a_terminal():
    table = Table(columns=("名", "rate"), rows=(("日本", 0.5), ("a\u0301b", 10)))
    assert table.to_text().splitlines() == ["名      rate", "----  ------", "日本  0.5000", "a\u0301b        10"]


def test_empty_table_shows_its_head():
    table = Table(columns=("a", "b"), rows=())
    assert table.to_text() == "a  b\n-  -"
    assert table.to_csv() == '"a","b"\n'
    assert list(table.to_frame().columns) == ["a", "b"]
    assert (len(table), table.to_records()) == (0, [])


def test_a_result_shows_itself_as_its_table():
    shown = Shown(text="x")
    assert shown._repr_html_() == make_table("x")._repr_html_()
    pd.testing.assert_frame_equal(shown.to_frame(), make_table("x").to_frame())


def test_a_result_without_a_table_says_so():
    class Mute(Tabular):
        rows: ClassVar = ()

    with pytest.raises(TypeError, match="Mute does not say its table"):
        Mute().to_table()


@pytest.fixture(scope="module")
def hostile_audit() -> Audit:
    return audit_log([make_hostile_episode(text) for text in PAYLOADS.values()])


def list_results(audit: Audit) -> list[Tabular]:
    return [audit, audit.ladder(), audit.rates(by="suite"), audit.gate, *audit.verdicts]


def test_an_audit_of_hostile_records_adds_no_markup(hostile_audit):
    shown = [
        hostile_audit,
        hostile_audit.ladder(),
        hostile_audit.rates(by="suite"),
        hostile_audit.gate,
        *hostile_audit.verdicts,
    ]
    for result in shown:
        page = Markup(result._repr_html_())
        assert set(page.tags) <= {"div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
        assert page.attributes <= {"class", "dir", "scope"}


def test_an_audit_of_hostile_records_hides_nothing(hostile_audit):
    shown = [
        hostile_audit,
        hostile_audit.ladder(),
        hostile_audit.rates(by="suite"),
        hostile_audit.gate,
        *hostile_audit.verdicts,
    ]
    for result in shown:
        for text in (result.to_table().to_text(), result.to_table().to_csv(), result._repr_html_()):
            text.encode("utf-8")
            assert not {c for c in text if c != "\n" and is_hidden(c)}
        assert repr(result).isprintable()


@pytest.mark.filterwarnings("ignore:only 0 clusters")  # none of them is counted, rightly
def test_a_report_of_hostile_records_is_one_inert_page(hostile_audit, tmp_path):
    text = write_report(hostile_audit, tmp_path / "audit.html").read_text(encoding="utf-8")
    page = Markup(text)
    assert not set(page.tags) & {"script", "img", "a", "iframe", "svg", "object", "link", "base", "form", "comment"}
    assert page.attributes <= {"class", "dir", "scope", "lang", "charset", "http-equiv", "content"}
    assert "default-src 'none'" in text
    assert not {c for c in text if c != "\n" and is_hidden(c)}


@pytest.mark.filterwarnings("ignore:only 0 clusters")  # none of them is counted, rightly
def test_a_bundle_of_hostile_records_opens_without_formulas(hostile_audit, tmp_path):
    home = write_bundle(hostile_audit, tmp_path / "bundle")
    for name in ("verdicts.csv", "rates.csv"):
        cells = split_as_spreadsheet((home / name).read_text(encoding="utf-8"), ",")
        assert not [cell for cell in cells if cell.lstrip(' "')[:1] in FORMULA_STARTS and not is_number(cell)]
    assert (home / "methods.txt").read_text(encoding="utf-8").strip().isprintable()


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_errors_about_hostile_records_hide_nothing():
    """Terminals show messages: a path or a record id must not smuggle escape sequences into them."""
    for text in PAYLOADS.values():
        message = str(LogFormatError(text, where=text, expected=text, found=text, remedy=text))
        message.encode("utf-8")
        assert message.isprintable()
