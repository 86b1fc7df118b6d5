"""Packed kernels for Armv6-M and Armv7-M where 16 bits just suffice: weights and inputs at their extremes, more taps
than a run holds, more inputs than a chunk, more channels than a group. On the host's twins, and on both cores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from cases import HostCases, encode
from test_kernels_device import DeviceCases, device_cases

from rlx_edge.cgen.target import Isa
from rlx_edge.cgen.variants.octets import FIELD, octets, reach
from rlx_edge.cgen.variants.skip import skips
from rlx_edge.cgen.variants.table import VARIANTS
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, Requant, TensorType, real_multipliers
from rlx_edge.ir.ops import Layout, QConv2d, QMatMul
from rlx_edge.passes.freeze import freeze
from rlx_edge.reference import run_all

PACKED = [v for v in VARIANTS if v.isa in (Isa.V6M, Isa.V7M) and v.name.endswith(("w4", "w2"))]
BITS = {"w4": 4, "w2": 2}
__all__ = ["device_cases"]


def extremes(bits: int, channels: int, taps: int, least: int) -> Array:
    """int8 [channels, taps]: the largest weights, the smallest ones, both in turn, few that are not 0, any."""
    most = (1 << bits - 1) - 1
    rng = np.random.default_rng(taps)
    rows = rng.integers(least, most + 1, (channels, taps)).astype(np.int8)
    rows[0], rows[1] = most, least
    rows[2] = np.where(np.arange(taps) % 2, most, least)
    rows[3] = np.where(np.arange(taps) % 15 == 4, least, 0)
    return rows


def layer(variant: Variant, channels: int, taps: int) -> Graph:
    """A layer whose sums are as large as weights and inputs allow, and whose outputs tell them apart."""
    kind, bits = variant.name.split("_")[0], BITS[variant.name[-2:]]
    least = -1 if "skip" in variant.name else -(1 << bits - 1)
    x_quant, out = QuantParams.per_tensor(1.0, 0), QuantParams.per_tensor(float(taps << bits), 3)
    w_quant = QuantParams.per_tensor(1.0, 0)
    mult = real_multipliers(x_quant, w_quant, out)
    builder = GraphBuilder("limits")
    dtype = DType.I4 if bits == 4 else DType.I2
    bias = np.arange(channels, dtype=np.int32) * 7 - 100
    if kind == "dense":
        x = builder.input("x", TensorType((1, taps), DType.I8, x_quant))
        w = builder.param("w", np.ascontiguousarray(extremes(bits, channels, taps, least).T), w_quant, dtype=dtype)
        op: QConv2d | QMatMul = QMatMul(0, 0, 3, mult, Requant.TFLM, None)
    else:
        depthwise = kind == "depthwise"
        kernel, in_c = (5, 5) if depthwise else (1, 3), channels if depthwise else taps // 3
        shape = (1, *kernel, in_c) if depthwise else (1, 1, 5, in_c)
        x = builder.input("x", TensorType(shape, DType.I8, x_quant))
        rows = extremes(bits, channels, 25 if depthwise else taps, least)
        w = builder.param("w", rows.reshape(channels, *kernel, -1), w_quant, dtype=dtype)
        groups = channels if depthwise else 1
        op = QConv2d(
            *(kernel, (1, 1), (0, 0, 0, 0), (1, 1), groups, 0, 0, 3, mult, Layout.NHWC, Requant.TFLM, None),
        )
    return freeze(builder.build([builder.add(op, [x, w, builder.param("b", bias)], "y", out)]))


def inputs(graph: Graph) -> Iterator[dict[str, Array]]:
    (x,) = graph.inputs
    rng = np.random.default_rng(5)
    for values in (-128, 127, rng.choice([-128, 127], x.type.shape)):
        yield {x.name: np.broadcast_to(np.asarray(values, np.int8), x.type.shape).copy()}


SHAPES = {"dense": [(5, 40), (138, 20), (4, 301)], "conv": [(5, 24), (4, 333)], "depthwise": [(4, 25)]}
"""Channels and taps."""


@pytest.mark.parametrize("variant", PACKED, ids=lambda v: v.name)
def test_twins_at_the_limits_of_16_bits(variant: Variant, host_cases: HostCases) -> None:
    for channels, taps in SHAPES[variant.name.split("_")[0]]:
        graph = layer(variant, channels, taps)
        calls = variant.lower(graph, graph.output_nodes[0])
        assert not isinstance(calls, str), calls
        for values in inputs(graph):
            for call in calls:
                case = encode(graph, call, run_all(graph, values), 0, call.rows)
                assert host_cases.run(case.data) == case.expected


CORES = {Isa.V6M: "M0", Isa.V7M: "M3"}


@pytest.mark.parametrize("device_cases", CORES.values(), indirect=True)
def test_cores_at_the_limits_of_16_bits(device_cases: DeviceCases, request: pytest.FixtureRequest) -> None:
    core = request.node.callspec.params["device_cases"]
    ran = set()
    for variant in PACKED:
        for channels, taps in SHAPES[variant.name.split("_")[0]] if CORES[variant.isa] == core else []:
            graph = layer(variant, channels, taps)
            calls = variant.lower(graph, graph.output_nodes[0])
            assert not isinstance(calls, str), calls
            for values in inputs(graph):
                case = encode(graph, calls[0], run_all(graph, values), 0, calls[0].rows)
                if device_cases.fits(case):
                    ran.add(variant.name)
                    assert device_cases.run(case) == case.expected
    assert ran == {variant.name for variant in PACKED if CORES[variant.isa] == core}


def test_runs_are_as_long_as_16_bits_allow() -> None:
    """255 * 128 < 2^15 <= 256 * 128."""
    ones = np.ones((1, 16 * 17), np.int8)
    assert octets(ones, 4).run == 15
    rows = np.pad(np.full((1, 16 * 3), 7, np.int8), [(0, 0), (16 * 30, 0)])
    found = octets(rows, 4)
    assert found.run == 2 and reach(rows, 32) == 7 * 128 * 32 < FIELD <= reach(rows, 48)


def test_lists_that_skip_too_many_are_bridged_or_refused() -> None:
    row = np.zeros((1, 60), np.int8)
    row[0, [3, 50]] = 1
    lists = skips(row)
    assert not isinstance(lists, str)
    ((minus, plus),) = lists.channels[0]
    assert plus == (3, *minus, 50) and all(b - a <= 16 for a, b in pairwise(plus))
    row[0, 4:50] = -1
    assert skips(row) == "more than 15 neighbors have the same sign"
