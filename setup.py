"""Puts firmware/, boards/ and the demo's example into the wheel, as rlx_edge/_data. All else is in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DATA = {
    "firmware": ("*.c", "*.h"),
    "boards": ("*.toml",),
    "examples/digits": ("*.onnx", "*.npz", "*.toml", "README.md"),
}


class BuildPy(build_py):
    """`build_py` that also copies the folders of DATA. An editable install finds them in the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "rlx_edge" / "_data"
        shutil.rmtree(target, ignore_errors=True)  # left by an earlier build, perhaps with files that are gone
        for file in _files():
            copy = target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        made = [str(Path(self.build_lib) / "rlx_edge" / "_data" / file) for file in _files()]
        return [*super().get_outputs(include_bytecode), *made]


def _files() -> list[Path]:
    """Relative to this file's folder, from which setuptools runs."""
    return sorted(file for folder, kinds in DATA.items() for kind in kinds for file in Path(folder).rglob(kind))


setup(cmdclass={"build_py": BuildPy})
