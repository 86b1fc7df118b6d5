"""Matrix products for DSP whose weights are digits: any number of channels, sums that just fit in 32 bits."""

from __future__ import annotations

import pytest
from cases import HostCases, encode
from test_kernels_device import DeviceCases, device_cases
from test_packed_limits import BITS, inputs, layer

from rlx_edge.cgen.variants.dense_digits import VARIANTS
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.reference import run_all

__all__ = ["device_cases"]
LARGEST = {4: 585, 2: 4095}
"""Inputs of which the first of 4 places has a sum less than 2^19, with the largest weight and a bias of -100: 2^12
times that is an int32."""
WITHOUT_WEIGHTS = [(6, 3), (7, 2), (13, 1)]
"""So few inputs that a channel has only weights of 0, and so another scale."""
SHAPES = [*zip(range(4, 17), range(25, 38), strict=True), *WITHOUT_WEIGHTS]
"""Channels and inputs."""


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_twins_of_any_number_of_channels(variant: Variant, host_cases: HostCases) -> None:
    largest = LARGEST[BITS[variant.name[-2:]]]
    _check(variant, host_cases, [*SHAPES, (4, largest), (12, largest)])


@pytest.mark.parametrize("device_cases", ["M4"], indirect=True)
def test_cores_of_any_number_of_channels(device_cases: DeviceCases) -> None:
    for variant in VARIANTS:
        _check(variant, device_cases, SHAPES)


def _check(variant: Variant, cases: HostCases | DeviceCases, shapes: list[tuple[int, int]]) -> None:
    one_scale = "one_scale" in variant.name
    for channels, taps in [shape for shape in shapes if not (one_scale and shape in WITHOUT_WEIGHTS)]:
        graph = layer(variant, channels, taps)
        calls = variant.lower(graph, graph.output_nodes[0])
        assert not isinstance(calls, str), calls
        for values in list(inputs(graph))[0 if isinstance(cases, HostCases) else -1 :]:
            case = encode(graph, calls[0], run_all(graph, values), 0, calls[0].rows)
            assert cases.run(case.data if isinstance(cases, HostCases) else case) == case.expected


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_sums_that_do_not_fit_are_refused(variant: Variant) -> None:
    """With 2 bits, only where there are 4 places: of 8 none has more than 64 times its accumulator."""
    bits = BITS[variant.name[-2:]]
    for channels in (4, 8, 12):
        graph = layer(variant, channels, LARGEST[bits] + 1)
        found = variant.lower(graph, graph.output_nodes[0])
        refused = isinstance(found, str) and "channel 0: 4096 times its accumulator" in found
        assert refused == (bits == 4 or channels != 8)
