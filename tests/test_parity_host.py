"""Parity over the link's C code on the host: equal, unequal, and the wrong firmware."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from link_device import HostDevice

from rlx_edge.device.compare import Difference
from rlx_edge.device.firmware import ExpectedFirmware
from rlx_edge.device.link import Link
from rlx_edge.device.parity import run_parity
from rlx_edge.device.protocol import TensorInfo
from rlx_edge.device.scope import LAYERS, Scope
from rlx_edge.errors import DataError, DeviceError

Tensors = Mapping[str, np.ndarray]
CHAIN_HASH = "010203" + "00" * 13
IMAGE_CRC = zlib.crc32(bytes((i * 7 + 3) & 0xFF for i in range(100_000)))


@pytest.fixture
def link() -> Iterator[Link]:
    """A device of its own for each test, since the model "chain" counts its runs in an output."""
    with HostDevice() as device, Link.open(device.port, 4_000_000) as link:
        yield link


class Chain:
    """The model "chain" in numpy. `broken` names a tensor to get wrong, on sample 1 at flat element 7 or the last."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.samples: list[bytes] = []

    def __call__(self, sample: Tensors) -> dict[str, np.ndarray]:
        if sample["x"].tobytes() not in self.samples:
            self.samples.append(sample["x"].tobytes())
        number = self.samples.index(sample["x"].tobytes())
        t0 = sample["x"] + sample["b"][0]
        t1 = t0 * np.int8(3)
        tensors = {"t0": t0, "t1": t1, "out": np.array([t1.sum(dtype=np.int32), number + 1], np.int32)}
        if self.broken and number == 1:
            flat = tensors[self.broken].reshape(-1)
            flat[min(7, flat.size - 1)] ^= 1
        return tensors


def inputs(samples: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {
        "x": random.integers(-128, 128, (samples, 15, 100), dtype=np.int8),
        "b": random.integers(-128, 128, (samples, 4), dtype=np.int8),
    }


def test_equal_outputs_are_exact(link: Link) -> None:
    seen: list[tuple[int, int]] = []
    result = run_parity(
        link, "chain", inputs(), {"numpy": Chain()}, progress=lambda done, all: seen.append((done, all))
    )
    assert result.exact
    assert (result.board, result.inputs, result.compared_bytes, result.differing_bytes) == ("host", 3, 24, 0)
    assert [(row.engine, row.tensor, row.compared_bytes) for row in result.rows] == [("numpy", "out", 24)]
    assert result.first_difference is None
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_layers_compare_every_tensor_with_every_engine(link: Link) -> None:
    result = run_parity(link, "chain", inputs(), {"a": Chain(), "b": Chain()}, scope=LAYERS)
    assert result.exact
    assert result.compared_bytes == 2 * 3 * (1500 + 1500 + 8)
    assert {(row.engine, row.tensor) for row in result.rows} == {(e, t) for e in "ab" for t in ("t0", "t1", "out")}


@pytest.mark.parametrize(("scope", "each"), [(LAYERS, 3), (Scope(until="t1"), 2), (Scope(only="t1"), 1)])
def test_progress_is_told_tensor_by_tensor(link: Link, scope: Scope, each: int) -> None:
    seen: list[tuple[int, int]] = []
    run_parity(
        link, "chain", inputs(2), {"numpy": Chain()}, scope=scope, progress=lambda done, all: seen.append((done, all))
    )
    assert seen == [(done, 2 * each) for done in range(1, 2 * each + 1)]


def test_what_is_compared_can_be_observed(link: Link) -> None:
    """In the order of samples and steps, as the device gave it."""
    seen, expected = [], []
    chain = Chain()

    def engine(sample: Tensors) -> dict[str, np.ndarray]:
        tensors = chain(sample)
        expected.extend((name, tensors[name].tobytes()) for name in ("t0", "t1", "out"))
        return tensors

    def observe(tensor: TensorInfo, got: np.ndarray) -> None:
        seen.append((tensor.name, got.tobytes()))

    run_parity(link, "chain", inputs(2), {"numpy": engine}, scope=LAYERS, observe=observe)
    assert len(seen) == 6
    assert seen == expected


def test_tensors_that_no_engine_knows_are_named(link: Link) -> None:
    chain = Chain()
    result = run_parity(link, "chain", inputs(), {"numpy": lambda sample: {"out": chain(sample)["out"]}}, scope=LAYERS)
    assert result.exact
    assert result.skipped == ("t0", "t1")


def test_a_wrong_tensor_is_found_at_its_first_element(link: Link) -> None:
    data = inputs()
    result = run_parity(link, "chain", data, {"good": Chain(), "bad": Chain("t1")}, scope=LAYERS)
    got = int((data["x"][1, 0, 7] + data["b"][1, 0]) * np.int8(3))
    expected = Difference("bad", 1, "t1", (0, 7), expected=got ^ 1, got=got)
    assert not result.exact
    assert result.differing_bytes == 1
    assert result.first_difference == result.first_parted == expected
    assert str(expected) == f"sample 1: t1[0, 7] is {got} on the device, {got ^ 1} by bad"


def test_a_wrong_output_is_traced_to_the_first_tensor_that_parts(link: Link) -> None:
    """Without layers only the output is seen to differ; the sample is run again, step by step."""

    class Wrong(Chain):
        def __call__(self, sample: Tensors) -> dict[str, np.ndarray]:
            tensors = super().__call__(sample)
            if self.samples.index(sample["x"].tobytes()) == 1:
                tensors["t0"] = tensors["t0"] + np.int8(1)
                tensors["out"] = tensors["out"] + np.int32(4)
            return tensors

    result = run_parity(link, "chain", inputs(), {"bad": Wrong()})
    assert (result.compared_bytes, result.differing_bytes) == (24, 2)
    assert result.first_difference is not None
    assert (result.first_difference.sample, result.first_difference.tensor) == (1, "out")
    assert result.first_parted is not None
    assert (result.first_parted.sample, result.first_parted.tensor, result.first_parted.index) == (1, "t0", (0, 0))


def test_the_right_firmware_passes(link: Link) -> None:
    firmware = ExpectedFirmware({"chain": CHAIN_HASH}, IMAGE_CRC)
    assert run_parity(link, "chain", inputs(), {"numpy": Chain()}, firmware=firmware).exact


@pytest.mark.parametrize(
    ("hashes", "crc", "message"),
    [
        ({"chain": "ff" * 16}, IMAGE_CRC, "runs another version of 'chain' .* flash the build again"),
        ({"chain": CHAIN_HASH}, 1, "firmware is not the build's .* flash the build again"),
        ({"kws": CHAIN_HASH}, IMAGE_CRC, "the build has no model 'chain'; it has: kws"),
    ],
)
def test_the_wrong_firmware_is_refused(link: Link, hashes: dict[str, str], crc: int, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        run_parity(link, "chain", inputs(), {"numpy": Chain()}, firmware=ExpectedFirmware(hashes, crc))


def test_what_cannot_be_compared_is_refused(link: Link) -> None:
    with pytest.raises(DataError, match="no samples were given"):
        run_parity(link, "chain", inputs(0), {"numpy": Chain()})
    with pytest.raises(DataError, match="no engine was given"):
        run_parity(link, "chain", inputs(), {})
    with pytest.raises(DataError, match="host gave no output 'out'; it gave: t0"):
        run_parity(link, "chain", inputs(), {"host": lambda sample: {"t0": sample["x"]}})
    with pytest.raises(DataError, match="host gives 'out' as int8 of shape"):
        run_parity(link, "chain", inputs(), {"host": lambda sample: {"out": np.zeros(2, np.int8)}})
    uneven = {**inputs(), "b": np.zeros((2, 4), np.int8)}
    with pytest.raises(DataError, match="different numbers of samples"):
        run_parity(link, "chain", uneven, {"numpy": Chain()})
