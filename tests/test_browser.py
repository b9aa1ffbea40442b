"""A real browser shows the hostile tables, and nothing in them runs, loads or moves."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hostile import PAYLOADS, make_hostile_episode

from litmuskit.audit import audit_log
from litmuskit.display import Table, safe_html
from litmuskit.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=2000"),
)
REPORT = """<script>window.addEventListener("load", () => setTimeout(() => {
  document.querySelectorAll("td, th, p, b").forEach((element) => element.dispatchEvent(new MouseEvent("mouseover")));
  const found = {
    pwned: window.lk_pwned ?? null,
    loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
    tags: [...new Set([...document.body.querySelectorAll("*")].map((element) => element.localName))].sort(),
    text: document.body.innerText,
  };
  document.body.replaceChildren(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(found)}));
}, 500));</script>"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="NO BROWSER: chromium is not installed, so the display was not tried in one"),
]


def visit(tmp_path: Path, body: str) -> dict:
    """What a page holds once its scripts, if any, have run."""
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><title>t</title>{REPORT}<body>{body}</body>", encoding="utf-8")
    command = [CHROMIUM, *SWITCHES, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"<pre>(.*)</pre>", done.stdout, re.DOTALL)
    assert found, done.stdout[-500:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("name", ["script", "img-onerror", "svg-onload", "details-ontoggle"])
def test_unescaped_text_would_run(tmp_path, name):
    """The trap works: what the next test finds absent is there when nobody escapes."""
    assert visit(tmp_path, f"<p>{PAYLOADS[name]}</p>")["pwned"] == 1


def test_hostile_tables_run_and_load_nothing(tmp_path):
    tables = [Table(columns=(text, "n"), rows=((text, 1),), caption=text, note=text) for text in PAYLOADS.values()]
    attributes = [f"<b title=\"{safe_html(text)}\" class='{safe_html(text)}'>x</b>" for text in PAYLOADS.values()]
    found = visit(tmp_path, "".join([*(table._repr_html_() for table in tables), *attributes]))
    assert found["pwned"] is None
    assert found["loaded"] == []
    assert set(found["tags"]) == {"div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td", "p", "b"}
    assert found["text"].count("evil.invalid") >= 4 * sum("evil.invalid" in text for text in PAYLOADS.values())


@pytest.mark.filterwarnings("ignore:only 0 clusters")  # none of them is counted, rightly
def test_a_report_of_hostile_records_runs_and_loads_nothing(tmp_path):
    """Its own policy forbids scripts; here the page is shown without it, so that the escaping alone must hold."""
    audit = audit_log([make_hostile_episode(text) for text in PAYLOADS.values()])
    page = write_report(audit, tmp_path / "audit.html").read_text(encoding="utf-8")
    body = re.sub(r"<meta http-equiv[^>]*>", "", page)
    found = visit(tmp_path, body)
    assert found["pwned"] is None
    assert found["loaded"] == []
    assert not set(found["tags"]) & {"script", "img", "a", "iframe", "svg", "object", "link", "base", "form"}
