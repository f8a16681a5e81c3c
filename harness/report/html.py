"""One run folder → one HTML file that needs nothing else.

The file holds its style and its script, and forbids itself everything else: its content policy names the hashes of
these two and no address, so that no text of a run can be executed or fetch anything, even if it were written into the
page unescaped.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.files import write_whole
from harness.report.page import Page, build_page
from harness.report.rundata import read_run
from harness.report.text import visible
from harness.report.trialpage import TrialPage
from harness.report.watch_page import WatchPage, build_watch_page, is_watch

if TYPE_CHECKING:
    from jinja2 import Template

NAME = "report.html"
TEMPLATE = "page.html"
TRIAL_TEMPLATE = "trial.html"
WATCH_TEMPLATE = "watched.html"
STYLES = ("page.css", "grid.css", "charts.css", "trial.css")
SCRIPTS = ("base.js", "grid.js", "timeline.js", "canvas.js", "trial.js", "start.js")
"""Parts of the one style and the one script, in their order."""


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the page of a run folder, as a whole or not at all, and return where it is (`report.html` in the folder).

    Raises RunFolderError: no run folder, one that cannot be read or is a newer harness', or the file cannot be written.
    """
    data = read_run(run_dir)
    return write_page(build_watch_page(data) if is_watch(data) else build_page(data), out or run_dir / NAME)


def write_page(page: Page | TrialPage | WatchPage, path: Path) -> Path:
    """Write a page (`write_whole`) and return where it is. Raises RunFolderError: the file cannot be written."""
    return write_whole(render(page), path, example=NAME)


def render(page: Page | TrialPage | WatchPage) -> str:
    """The page as HTML."""
    if isinstance(page, WatchPage):
        return _template(WATCH_TEMPLATE).render(page=page)
    return _template(TRIAL_TEMPLATE if isinstance(page, TrialPage) else TEMPLATE).render(page=page)


@cache
def _template(name: str) -> Template:
    """A template, with style, script and policy in place."""
    import jinja2  # here, so that a command line that only lists or runs does not wait for it
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    style, script = ("\n".join(map(_source, names)) for names in (STYLES, SCRIPTS))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    environment.globals.update(style=Markup(style), script=Markup(script), policy=policy)
    return environment.get_template(name)


def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text("utf-8").strip()


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
