"""Where PyTorch is not installed, training says so, and how to install it; nothing else needs it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from command import refused

from rlx_edge.errors import ToolError
from rlx_edge.qat import convert

pytestmark = pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")
DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def test_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    data = ("--data", DIGITS / "digits_calibration.npz", "-o", tmp_path / "digits.rlx")
    said = refused("finetune", DIGITS / "digits.onnx", *data)
    assert "its CPU build is enough: pip install torch --index-url https://download.pytorch.org/whl/cpu" in said
    assert not list(tmp_path.iterdir())


def test_the_functions_do(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="training needs PyTorch"):
        convert(None)
