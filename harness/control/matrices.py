"""Which matrix file a name on the command line means, and how two matrices differ."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import harness
from harness.control.results import MATRIX
from harness.core.errors import MatrixError, RunFolderError, nearest
from harness.core.tables import parse_toml

DEFAULT = "quick"
_PACKAGE = Path(harness.__file__).parent


def search_folders() -> list[Path]:
    """Where a bare name is looked up, first come first: here, in the installed package, in the checkout
    around it.
    """
    return [Path("scenarios"), _PACKAGE / "matrices", _PACKAGE.parent / "scenarios"]


def find_matrix(name: str | None) -> Path:
    """The file for a path or a bare name such as `quick`; the default matrix for None.

    Raises MatrixError when there is none; the message says which bare names there are.
    """
    asked = DEFAULT if name is None else name
    if not asked:
        raise MatrixError(f"the name of a matrix is empty; give a file, or one of: {', '.join(known())}")
    path = Path(asked)
    if os.path.isfile(path):  # of os.path: the longest scenario is no error there, but no file
        return path
    if os.path.isdir(path):
        raise MatrixError(f"{path} is a folder; give a matrix file inside it, or a name: {', '.join(known())}")
    bare = path.parent == Path(".") and path.suffix in ("", ".toml")
    if bare:
        for folder in search_folders():
            candidate = folder / f"{path.stem if path.suffix else path.name}.toml"
            if os.path.isfile(candidate):
                return candidate
    if os.path.exists(path):
        return path  # a pipe, such as <(generate)
    raise MatrixError(
        f'no matrix file "{_short(asked, 120)}"{nearest(asked, known()) if bare else ""}; '
        f"give a file, or one of: {', '.join(known()) or 'none found'}"
    )


def known() -> list[str]:
    """The bare names that can be given."""
    return sorted({file.stem for folder in search_folders() for file in folder.glob("*.toml")})


def refuse_other_matrix(folder: Path, begun: str, asked: str, file: Path) -> None:
    """Raise RunFolderError when two matrix texts mean different runs, with the first differences.

    Comments are free. Raises MatrixError: one of them is no TOML.
    """
    before, after = parse_toml(begun, str(folder / MATRIX)), parse_toml(asked, str(file))
    changes = _differences(before, after, "")
    if changes:
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        raise RunFolderError(
            f"{folder} was begun with another matrix than {file}: {'; '.join(changes[:3])}{more}; "
            "resume without naming a matrix, or choose another --out"
        )


def _differences(before: Any, after: Any, at: str) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[str] = []
        for key in dict.fromkeys([*before, *after]):
            where = f"{at}.{key}" if at else key
            if key not in after:
                found.append(f"{where} = {_value(before[key])} is gone")
            elif key not in before:
                found.append(f"{where} = {_value(after[key])} is new")
            else:
                found += _differences(before[key], after[key], where)
        return found
    if isinstance(before, list) and isinstance(after, list) and before != after:
        gone = [_value(value) for value in before if value not in after]
        new = [_value(value) for value in after if value not in before]
        parts = [f"without {', '.join(gone)}"] * bool(gone) + [f"with {', '.join(new)}"] * bool(new)
        return [f"{at} {' and '.join(parts) if parts else 'has another order'}"]
    # 1 and true and 1.0 are equal to Python and not to TOML
    return [] if before == after and type(before) is type(after) else [f"{at} was {_value(before)}, is {_value(after)}"]


def _value(value: Any) -> str:
    return _short(repr(value), 60)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
