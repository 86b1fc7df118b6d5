"""Instructions, flash and RAM, which repeat exactly, against the limits that the project has promised."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import tiny_model
from test_shared_device import SHARED, shared_model

from rlx_edge import api
from rlx_edge.device.boards import load_board
from rlx_edge.device.profile import Profile

TFLM_REFERENCE = {"kws": 48_600_000, "ic": 132_000_000, "vww": 117_000_000, "ad": 1_950_000}
"""Instructions of TensorFlow Lite Micro's reference kernels on the same emulated M4."""


def profile(name: str, folder: Path) -> Profile:
    graph = tiny_model() if name == "tiny" else shared_model(name)
    api.build({name: graph}, load_board("mps2-an386"), folder)
    return api.profile(folder)


def test_counts_repeat(tmp_path: Path) -> None:
    assert profile("tiny", tmp_path / "a") == profile("tiny", tmp_path / "b")


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared with the public models is not here")
@pytest.mark.parametrize("name", TFLM_REFERENCE)
def test_quicker_than_reference_kernels(name: str, tmp_path: Path) -> None:
    made = profile(name, tmp_path)
    assert made.instructions < TFLM_REFERENCE[name]
    assert sum(layer.instructions for layer in made.layers) == made.instructions
    if name == "kws":
        assert made.flash_bytes < 60_000
        assert made.ram_bytes < 20_000


def test_stack_stays_within_what_the_header_says(tmp_path: Path) -> None:
    """The stack that any step uses, measured by painting, is at most <NAME>_STACK_BYTES."""
    made = profile("tiny", tmp_path)
    (model,) = api.open_models(tmp_path)
    assert 0 < made.stack_bytes <= model.plan.stack_bytes
