"""Puts `scenarios/*.toml` into the package as `harness/matrices/`; the rest is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithMatrices(build_py):
    """An editable install reads the files where they are."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "harness", "matrices")
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(Path("scenarios").glob("*.toml")):
            shutil.copy2(file, target)


setup(cmdclass={"build_py": BuildWithMatrices})
