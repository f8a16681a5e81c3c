"""`python -m harness.subject SPEC`: one trial in this interpreter. `python -m harness.subject --doctor`: what works."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the trial, or print the doctor's JSON."""
    if sys.argv[1:] == ["--doctor"]:
        from .doctor import examine

        print(json.dumps(examine()))
        return
    from .entry import run_trial

    code = run_trial(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that hangs must not keep the process: its result is on disk.
    os._exit(code)


if __name__ == "__main__":
    main()
