"""Every kernel on every emulated core: random calls go over the link to one resident test firmware a core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cases import Case, encode, write_bundle
from fast_graphs import WIDTHS, extreme_inputs, graphs_for, in_bands, joined, shifted_left
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st
from once import once
from op_graphs import OPS, draw_legal, random_inputs, seeds
from test_variants import JOINED, SHIFTED_LEFT, taken

from rlx_edge.cgen.lower import lower
from rlx_edge.cgen.target import Isa, get_target
from rlx_edge.cgen.variants.table import VARIANTS
from rlx_edge.cgen.variants.variant import Variant
from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware, load_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.link import Link
from rlx_edge.ir import Graph
from rlx_edge.reference import run_all

CORES = {
    "M0": "microbit",
    "M3": "mps2-an385",
    "M4": "mps2-an386",
    "M7": "mps2-an500",
    "M33": "mps2-an505",
    "M55": "mps3-an547",
}
LONG = os.environ.get("RLX_EDGE_TESTS") == "long"
EXAMPLES = 100 if LONG else 3
VARIANT_EXAMPLES = 2000 if LONG else 12
FURTHER_EXAMPLES = 2000 if LONG else 3
"""On the first core that has an instruction set, and on further ones, which differ from it by nothing known."""
SPECIAL_EXAMPLES = 2000 if LONG else 6
"""Of graphs that are made for one condition."""
SMALL = (4096, 1024)
LARGE = (24576, 4096)
"""Bytes of a case and of its result: all that a microbit has room for, and what the other boards take."""


class DeviceCases:
    """The resident test firmware of one core."""

    def __init__(self, board: str, link: Link) -> None:
        self.board = board
        self._link = link
        self._model = link.model("cases")
        self._input, self._output = self._model.tensors

    def fits(self, case: Case) -> bool:
        return len(case.data) <= self._input.bytes and len(case.expected) <= self._output.bytes

    def run(self, case: Case) -> bytes:
        data = np.frombuffer(case.data, np.int8)
        self._link.write_input(self._model, self._input, data)
        self._link.run(self._model)
        return self._link.read_tensor(self._model, self._output).tobytes()[: len(case.expected)]


@pytest.fixture(scope="module", params=CORES)
def device_cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceCases]:
    board = load_board(CORES[request.param])
    size = SMALL if board.name == "microbit" else LARGE
    defines = {"CASES_INPUT_BYTES": f"{size[0]}u", "CASES_OUTPUT_BYTES": f"{size[1]}u"}

    def make(folder: Path) -> None:
        build_firmware(write_bundle(folder / "bundle"), ["cases"], board, folder / "build", defines=defines)

    firmware = load_firmware(once(tmp_path_factory, f"cases-{request.param}", make) / "build")
    with Emulator(board, firmware.elf) as emulator, Link.open(emulator.port, board.baud, elf=firmware.elf) as link:
        yield DeviceCases(board.name, link)


@pytest.mark.parametrize("op", OPS)
def test_device_equals_reference(op: str, device_cases: DeviceCases) -> None:
    @seed(2026)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        graph = draw_legal(data, op)
        values = run_all(graph, random_inputs(graph, data.draw(seeds)))
        (step,) = lower(graph)
        call = data.draw(st.sampled_from(step.calls))
        y0 = data.draw(st.integers(0, call.rows - 1))
        case = encode(graph, call, values, y0, data.draw(st.integers(y0 + 1, call.rows)))
        assume(device_cases.fits(case))
        assert device_cases.run(case) == case.expected

    check()


FIRST_CORE = {Isa.PORTABLE: "M0", Isa.V6M: "M0", Isa.V7M: "M3", Isa.DSP: "M4", Isa.MVE: "M55"}
"""Where kernels of packed weights are run; on all cores in long tests."""


def runs_on(core: str) -> list[Variant]:
    isas = get_target(load_board(CORES[core]).chip.cpu).isas
    found = [variant for variant in VARIANTS if variant.isa in isas]
    return [v for v in found if LONG or FIRST_CORE[v.isa] == core or not v.name.endswith(tuple(WIDTHS))]


PAIRS = [pytest.param(core, variant, id=f"{core}-{variant.name}") for core in CORES for variant in runs_on(core)]


@pytest.mark.parametrize(("device_cases", "variant"), PAIRS, indirect=["device_cases"])
def test_fast_kernel_on_its_core(variant: Variant, device_cases: DeviceCases) -> None:
    """What the host's twin gives (tests/test_variants.py: equal to the reference) is what the assembly gives."""
    first = CORES[FIRST_CORE[variant.isa]] == device_cases.board
    examples = VARIANT_EXAMPLES if first else FURTHER_EXAMPLES

    @seed(2026)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        graph = data.draw(graphs_for(variant.name))
        assume(taken(graph, variant))
        calls = variant.lower(graph, graph.output_nodes[0])
        assert not isinstance(calls, str)
        call = in_bands(data.draw, data.draw(st.sampled_from(calls)))
        values = run_all(graph, random_inputs(graph, data.draw(seeds)))
        y0 = data.draw(st.sampled_from([0, call.rows // 2, call.rows - 1]))
        case = encode(graph, call, values, y0, call.rows)
        assume(device_cases.fits(case))
        assert device_cases.run(case) == case.expected

    check()


@pytest.mark.parametrize("device_cases", ["M4", "M33"], indirect=True)
def test_joined_sums_at_their_limit(device_cases: DeviceCases) -> None:
    """Accumulators up to 2^23 - 1, which wrap around 2^32 while they are joined."""

    @seed(2026)
    @settings(max_examples=SPECIAL_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(graph=joined(), inputs=seeds)
    def check(graph: Graph, inputs: int) -> None:
        values = run_all(graph, extreme_inputs(graph, inputs))
        node = graph.output_nodes[0]
        for variant in JOINED:
            calls = variant.lower(graph, node) if isinstance(node.op, variant.op) else ()
            for call in () if isinstance(calls, str) else calls:
                case = encode(graph, call, values, 0, call.rows)
                assert device_cases.fits(case)
                assert device_cases.run(case) == case.expected

    check()


@pytest.mark.parametrize("device_cases", ["M55"], indirect=True)
@pytest.mark.parametrize("name", SHIFTED_LEFT)
def test_channels_that_do_not_shift_to_the_right(name: str, device_cases: DeviceCases) -> None:
    """Nothing is rounded away then, and no tie goes away from zero."""
    (variant,) = (variant for variant in VARIANTS if variant.name == name)

    @seed(2026)
    @settings(max_examples=SPECIAL_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(graph=shifted_left(name.split("_")[0], SHIFTED_LEFT[name]), inputs=seeds)
    def check(graph: Graph, inputs: int) -> None:
        assume(taken(graph, variant))
        values = run_all(graph, random_inputs(graph, inputs))
        for call in variant.lower(graph, graph.output_nodes[0]):
            case = encode(graph, call, values, 0, call.rows)
            assume(device_cases.fits(case))
            assert device_cases.run(case) == case.expected

    check()
