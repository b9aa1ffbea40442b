"""The what-if's logic, without a browser."""

from __future__ import annotations

import pytest

from litmuskit import rates
from litmuskit.errors import InputError
from litmuskit.widgets import InflationWhatIf, tabulate_inflation


@pytest.fixture
def view():
    return InflationWhatIf(episodes=1000, flagged=120, read=40, false=3)


def row(table, name):
    return next(cells[1:] for cells in table.rows if cells[0].startswith(name))


def test_table_holds_the_estimators_numbers():
    table = tabulate_inflation(1000, 120, 40, 3, 6, level=0.9)
    confirmed = rates.estimate_confirmed(120, 1000, 37, 40, level=0.9)
    assert row(table, "confirmed (headline)") == (confirmed.estimate, confirmed.lower, confirmed.upper)
    bounds = rates.bound_worst_case(114, 6, 1000, level=0.9)
    assert row(table, "worst case") == (None, bounds.lower, bounds.upper)
    assert row(table, "reported")[0] == 0.12
    assert "2 % rule: exceeds" in table.note


def test_sliders_move_the_numbers(view):
    seen = [view.view.value]
    for slider, value in ((view.false, 20), (view.quarantined, 9), (view.read, 60)):
        slider.value = value
        seen.append(view.view.value)
    assert len(set(seen)) == 4
    assert view.view.value == tabulate_inflation(1000, 120, 60, 20, 9)._repr_html_()


def test_false_never_exceeds_read(view):
    view.false.value = 30
    view.read.value = 10
    assert (view.false.max, view.false.value) == (10, 10)
    assert row(view.table, "inflation")[0] == "unbounded"
    view.read.value = 0
    assert row(view.table, "confirmed")[0] is None


def test_a_reader_without_a_kernel_sees_the_same_table(view):
    bundle = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert view.table._repr_html_() in bundle["text/html"]
    assert "0.1110" in bundle["text/plain"]
    assert view._repr_mimebundle_()["text/html"] == bundle["text/html"]


def test_there_is_no_output_widget(view):
    assert not any("Output" in type(child).__name__ for child in view.children)


def test_impossible_settings_are_refused():
    with pytest.raises(InputError):
        tabulate_inflation(100, 120, 0, 0, 0)
