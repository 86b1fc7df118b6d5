"""Where C sources, board files and examples lie: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from rlx_edge.errors import ToolError

_PACKAGE = Path(__file__).resolve().parent


def _find(name: str) -> Path:
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise ToolError(f"the folder {name}/ is missing from this installation of rlx-edge: reinstall the package")


def firmware_dir() -> Path:
    """The folder with all C sources: kernels, runtime, link, soc, app."""
    return _find("firmware")


def boards_dir() -> Path:
    """The folder with the board files, and chips/ within it."""
    return _find("boards")


def digits_dir() -> Path:
    """The folder of the digits example: a float model, calibration data and held-out data."""
    return _find("examples/digits")
