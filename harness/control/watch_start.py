"""What makes an interpreter begin to watch itself: a folder first on PYTHONPATH, with a `sitecustomize` in it.

Python imports `sitecustomize` at its start-up, before the program, wherever the interpreter's own libraries are; so it
works for a script, `-m`, a console script and a virtual environment alike. Ours takes its folder off the path again, lets
`harness.subject.watch` begin and then runs the program's own `sitecustomize`, if there is one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import harness

VARIABLE = "HARNESS_WATCH"
NOTES = "unwatched.txt"

_SITECUSTOMIZE = '''\
import sys


def _watch(here):
    import os
    settings = os.environ.get("HARNESS_WATCH")
    sys.path[:] = [part for part in sys.path if os.path.abspath(part or ".") != here]
    sys.path_importer_cache.pop(here, None)
    if not settings or not os.path.exists(settings):
        return
    if sys.version_info < (3, 11):
        _say(here, "Python %d.%d is too old; a watch needs 3.11 or newer" % sys.version_info[:2])
        return
    ours = os.path.join(here, "ours")
    sys.path.insert(0, ours)
    try:
        before = set(sys.modules)
        from harness.subject.watch.shadows import uncover
        from harness.subject.watch.startup import begin
        begin(settings)
        uncover(before)
    except Exception:
        import traceback
        _say(here, traceback.format_exc())
    finally:
        sys.path.remove(ours)
        sys.path.append(ours)


def _say(here, text):
    import os
    try:
        with open(os.path.join(here, "unwatched.txt"), "a") as file:
            file.write("process %d: %s\\n" % (os.getpid(), text))
    except OSError:  # a full disk is no reason for the program to start in another way
        pass


def _chain():
    from importlib.machinery import PathFinder
    spec = PathFinder.find_spec("sitecustomize", None)
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__package__, module.__cached__ = "", spec.cached
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_watch(__file__.rpartition("/")[0])
_chain()
'''


class Start:
    """The folder, for the life of a watch."""

    def __init__(self, run: Path, *, follow: bool, hang_timeout_s: float, live: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="harness-")).resolve()
        (self.folder / "sitecustomize.py").write_text(_SITECUSTOMIZE, encoding="utf-8")
        (self.folder / "ours").mkdir()
        package = Path(harness.__file__).resolve().parent
        (self.folder / "ours" / "harness").symlink_to(package, target_is_directory=True)
        settings: dict[str, Any] = {
            "run": str(run.resolve()),
            "path": os.environ.get("PYTHONPATH"),
            "follow": follow,
            "hang_timeout_s": hang_timeout_s,
            "live": live,
            "control": os.getpid(),
        }
        self._settings = self.folder / "settings.json"
        self._settings.write_text(json.dumps(settings) + "\n", encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """This process's environment, and the start."""
        before = os.environ.get("PYTHONPATH")
        path = str(self.folder) if not before else f"{self.folder}{os.pathsep}{before}"
        return {**os.environ, "PYTHONPATH": path, VARIABLE: str(self._settings)}

    def notes(self) -> str:
        """Why processes that came here are not watched."""
        try:
            return (self.folder / NOTES).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""

    def remove(self) -> None:
        """Processes that start later start unwatched."""
        shutil.rmtree(self.folder, ignore_errors=True)
