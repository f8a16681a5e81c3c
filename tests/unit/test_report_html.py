"""The file: whole, self-contained, and safe whatever the run holds."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_folder import ENVIRONMENT, MATRIX, TRACED, wide_folder, write_folder
from fake_runs import row
from hostile_folder import ATTACKS, hostile_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario
from harness.report.html import write_report

VOID = {"meta", "link", "br", "input", "img", "rect", "line"}


class Document(html.parser.HTMLParser):
    """Collects what a browser would make of a file; asserts that every tag is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} comes twice"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    @property
    def shown(self) -> str:
        return "".join(self.text)


def made(path: Path) -> tuple[str, Document]:
    text = write_report(path).read_text("utf-8")
    return text, Document(text)


def test_the_page_of_a_wide_run_is_whole(tmp_path: Path) -> None:
    text, document = made(wide_folder(tmp_path / "run"))
    ids = [attributes["id"] for _, attributes in document.tags if "id" in attributes]
    links = [str(attributes["href"]) for tag, attributes in document.tags if tag == "a"]
    assert len(ids) == len(set(ids))
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    parts = ("grid", "expectations", "speed", "errors", "dense", "stuck", "skipped", "probes", "numbers", "environment")
    assert [one for one in ids if one in parts] == list(parts), "in this order"
    assert (
        text.index("6 of 20 scenarios are unsafe") < text.index('id="grid"') < text.index("How to read a verdict</h2>")
    )


def test_who_keeps_warm_workers_waiting_is_named(tmp_path: Path) -> None:
    warm = {"role": "drafter", "warm_s": 2.0, "waited_s": {"strategy_lock": 1.5}, "waited_on_s": {}}
    write_folder(tmp_path, [row(Scenario(), 0, workers={"<b>": warm})])
    _, found = made(tmp_path)
    assert "<b> is busy 25 % of the time once all are warm: it waits 75 % of its time for the strategy's lock." in found.shown
    assert "Where the time of warm workers went" in found.shown


def test_what_starves_a_gpu_is_named(tmp_path: Path) -> None:
    warm = {"role": "drafter", "warm_s": 10.0, "waited_s": {}, "waited_on_s": {}, "cpu_s": 9.8}
    load = {"cuda:0": {"busy_mean": 0.3, "busy_most": 1.0, "busy_warm": 0.5, "samples_warm": 30, "samples": 50}}
    write_folder(tmp_path, [row(Scenario(devices="cuda:0"), 0, workers={"drafter-0": warm}, gpu_load=load)])
    _, found = made(tmp_path)
    assert "its GPU is busy 50 % of the time once all are warm: its thread ran 98 % of it, so it cannot launch" in found.shown


def test_rows_of_charts_that_are_not_shown_are_counted(tmp_path: Path) -> None:
    warm = {"role": "drafter", "warm_s": 2.0, "waited_s": {"strategy_lock": 1.5}, "waited_on_s": {}}
    scenarios = [Scenario(schedule=f"pct:1:{depth}") for depth in range(1, 62)]
    write_folder(tmp_path, [row(one, 0, workers={"d": warm}) for one in scenarios])
    _, found = made(tmp_path)
    assert found.shown.count("1 more row not shown.") == 2, "compiles by thread, and the time of warm workers"
    assert "41 more scenarios not shown." in found.shown


def test_what_scrolls_can_be_reached_with_the_keyboard(tmp_path: Path) -> None:
    _, document = made(wide_folder(tmp_path / "run"))
    scrolling = [attributes for tag, attributes in document.tags if tag == "pre" or attributes.get("class") == "scroll"]
    assert len(scrolling) > 10
    assert all(attributes.get("tabindex") == "0" for attributes in scrolling)


def test_nothing_outside_the_file_is_named(tmp_path: Path) -> None:
    text, document = made(wide_folder(tmp_path / "run"))
    for tag, attributes in document.tags:
        assert "src" not in attributes
        assert "style" not in attributes, "the policy forbids it"
        assert tag not in ("iframe", "object", "embed", "img", "form", "base")
        assert not any(name.startswith("on") for name in attributes)
    assert [attributes["href"] for tag, attributes in document.tags if tag == "link"] == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", text)


def test_only_its_own_script_and_style_may_run(tmp_path: Path) -> None:
    text, document = made(wide_folder(tmp_path / "run"))
    policy = next(a["content"] for _, a in document.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    for tag in ("script", "style"):
        [body] = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("attack", ATTACKS)
def test_text_of_a_run_is_shown_and_never_run(tmp_path: Path, attack: str) -> None:
    text, document = made(hostile_folder(tmp_path / "run", attack))
    _, harmless = made(hostile_folder(tmp_path / "harmless", "a harmless word"))
    # Commands stand in a span a word, and the attacks have more words than the harmless text.
    tags, expected = ([tag for tag, _ in found.tags if tag != "span"] for found in (document, harmless))
    assert tags == expected, "no text became markup"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    if attack.isprintable():
        assert document.shown.count(attack) > 40  # not 55 for each: quoted in a command, or cut, it looks otherwise


def test_megabytes_do_not_make_megabytes(tmp_path: Path) -> None:
    huge = '<"' * 500_000
    error = {
        **TRACED,
        "message": huge,
        "traceback": huge + "\nlast words",
        "worker": huge,
        "tracers": [{"stack": huge}],
    }
    rows = [row(Scenario(), n, "fx_error", errors=[{**error, "fingerprint": str(n)}], reason=huge) for n in range(3)]
    text, document = made(write_folder(tmp_path / "run", rows, matrix=None))
    assert len(text) < 300_000
    assert "characters left out" in document.shown
    assert "last words" in document.shown


def test_what_was_left_out_stands_at_the_head(tmp_path: Path) -> None:
    run = write_folder(tmp_path / "run", [row()], matrix=None)
    with open(run / "results.jsonl", "a") as file:
        file.write("garbage\n" + '{"trial": "cu')
    text, _ = made(run)
    for note in ("line 2: not a row of results", "line 3: cut in its middle", "matrix.toml is missing"):
        assert note in text
        assert text.index(note) < text.index('id="grid"')
    assert "Left out" not in made(wide_folder(tmp_path / "whole"))[0].split("<nav")[0]


def test_the_same_run_makes_the_same_file(tmp_path: Path) -> None:
    run = wide_folder(tmp_path / "run")
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first
    assert sorted(path.name for path in run.iterdir() if path.name.startswith(".")) == []


def test_the_file_can_go_elsewhere_and_an_old_one_survives_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_folder(tmp_path / "run", [row()])
    assert write_report(run, tmp_path / "there.html") == tmp_path / "there.html"
    assert not (run / "report.html").exists()
    (run / "report.html").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunFolderError, match=r"cannot write .*report\.html: No space left on device"):
        write_report(run)
    assert (run / "report.html").read_text() == "old"
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    run = write_folder(tmp_path / "run", [row()])
    with pytest.raises(RunFolderError, match="is a folder"):
        write_report(run, tmp_path)
    with pytest.raises(RunFolderError, match="No such file or directory"):
        write_report(run, tmp_path / "nowhere" / "x.html")


def test_the_template_engine_is_loaded_late() -> None:
    script = "import sys, harness.report.html, harness.commands.report\nassert 'jinja2' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
rows_of_anything = st.lists(
    st.builds(
        lambda base, changes: {**base, **changes},
        st.sampled_from([row(), row(None, 1, "fx_error", errors=[TRACED]), row(None, 2, "hang", reason="x")]),
        st.dictionaries(st.sampled_from(sorted({*row(), "problems", "oracles"})), json_values, max_size=4),
    ),
    max_size=4,
)


@given(
    rows=rows_of_anything, environment=st.dictionaries(st.sampled_from(sorted(ENVIRONMENT)), json_values, max_size=5)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_row_and_no_environment_breaks_the_page(
    tmp_path: Path, rows: list[dict[str, Any]], environment: dict[str, Any]
) -> None:
    run = write_folder(tmp_path / "run", rows, matrix=MATRIX, environment=environment)
    made(run)
