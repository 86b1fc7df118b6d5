"""Large arrays of data files lie in temporary files; what comes out is the same as from memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_models import make_model

from rlx_edge import stored
from rlx_edge.data import load_data
from rlx_edge.errors import DataError
from rlx_edge.files import read_npz
from rlx_edge.formats.load import load
from rlx_edge.resources import digits_dir


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays from 1,000 bytes on are stored, and read in blocks of 256."""
    monkeypatch.setattr(stored, "LARGE", 1000)
    monkeypatch.setattr("rlx_edge.files.LARGE", 1000)
    monkeypatch.setattr(stored, "BLOCK_BYTES", 256)
    monkeypatch.setattr("rlx_edge.files.BLOCK_BYTES", 256)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1", "<i2"])
def test_arrays_are_read_back(save: Callable[..., None], order: str, dtype: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 100, (37, 5, 9)).astype(dtype)
    save(tmp_path / "a.npz", x=np.asarray(values, order=order))
    found = read_npz(tmp_path / "a.npz")["x"]
    assert found.dtype == values.dtype
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, values)
    stored.release(found)
    np.testing.assert_array_equal(found, values)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("kind", "preprocess"), [("f4", None), ("f8", None), ("u1", "scale=1/16")])
def test_data_are_those_from_memory(
    kind: str, preprocess: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = load(digits_dir() / "digits.onnx")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).integers(0, 17, (300, 1, 8, 8)).astype(kind))
    from_files = load_data(tmp_path / "x.npz", graph, samples="0:300:2", preprocess=preprocess)
    assert isinstance(from_files.inputs["x"], np.memmap)
    monkeypatch.setattr(stored, "LARGE", 1 << 30)
    monkeypatch.setattr("rlx_edge.files.LARGE", 1 << 30)
    from_memory = load_data(tmp_path / "x.npz", graph, samples="0:300:2", preprocess=preprocess)
    np.testing.assert_array_equal(from_files.inputs["x"], from_memory.inputs["x"])
    batch = from_files.batch(3, 20)["x"]
    assert not isinstance(batch, np.memmap)
    np.testing.assert_array_equal(batch, from_memory.inputs["x"][3:20])


def test_a_disk_without_room_is_named() -> None:
    """Eight TiB: as a file with holes it would be made, and end the process once the holes are filled."""
    with pytest.raises(DataError, match=r"8,796,093,022,208 bytes in the temporary folder .*TMPDIR"):
        stored.new_array((1 << 43,), np.uint8)


PEAK = """
import resource, sys
from pathlib import Path
import rlx_edge as rlx
graph = rlx.load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = rlx.load_data(sys.argv[2], graph)
rlx.quantize(graph, rlx.calibrate(graph, data, "mse"))
print(len(data), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    """256 MB of samples are calibrated on in far less."""
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["mean"]), helper.make_node("Flatten", ["mean"], ["y"])]
    (tmp_path / "mean.onnx").write_bytes(make_model(nodes, {"x": (1, 4, 64, 64)}, ["y"], {}).SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).random((4096, 4, 64, 64), np.float32))
    command = [sys.executable, "-c", PEAK, str(tmp_path / "mean.onnx"), str(tmp_path / "x.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, megabytes = map(int, done.stdout.split())
    assert count == 4096
    assert megabytes < 128
