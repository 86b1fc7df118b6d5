"""Every kernel on random graphs of one op: the reference equals the C code under sanitizers, for any row range."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cases import HostCases, encode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_graphs import OPS, draw_legal, random_inputs, seeds

from rlx_edge.cgen.lower import lower
from rlx_edge.cgen.plan import Call
from rlx_edge.cgen.variants.table import ALL_KERNELS
from rlx_edge.ir import Graph
from rlx_edge.reference import run_all
from rlx_edge.resources import firmware_dir


@pytest.mark.parametrize("op", OPS)
def test_reference_equals_c(op: str, host_cases: HostCases) -> None:
    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        graph = draw_legal(data, op)
        values = run_all(graph, random_inputs(graph, data.draw(seeds)))
        (step,) = lower(graph)
        for call in step.calls:
            y0 = data.draw(st.integers(0, call.rows))
            y1 = data.draw(st.integers(y0, call.rows))
            case = encode(graph, call, values, y0, y1)
            assert host_cases.run(case.data) == case.expected
            first = values[graph.nodes[step.node].name]
            same_size = call.kernel.in_place and _first_input_size(graph, call) == first.size
            if same_size:
                case = encode(graph, call, values, y0, y1, in_place=True)
                assert host_cases.run(case.data) == case.expected

    check()


def _first_input_size(graph: Graph, call: Call) -> int:
    base = call.inputs[0].base
    return graph.nodes[base].type.elements if isinstance(base, int) else -1


@pytest.mark.parametrize("op", ["conv", "pool"])
def test_windows_read_a_ring_of_rows(op: str, host_cases: HostCases) -> None:
    """The input may hold only the rows that the output rows need, in a ring."""

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        graph = draw_legal(data, op)
        values = run_all(graph, random_inputs(graph, data.draw(seeds)))
        (step,) = lower(graph)
        call = step.calls[-1]  # the last image, whose rows end the tensor
        p = call.params
        reach = (p["k_h"] - 1) * p.get("dilation_h", 1) + 1
        y0 = call.rows - 1
        first_row = max(0, y0 * p["stride_h"] - p["pad_top"])
        ring = max(1, min(p["in_h"] - first_row, p["in_h"]), min(reach, p["in_h"]))
        case = encode(graph, call, values, y0, call.rows, ring=ring)
        assert host_cases.run(case.data) == case.expected

    check()


def test_parameter_structs_match_the_header() -> None:
    """cgen/kernels.py says the same as rlx_kernels.h and those that it includes: struct, pointers, fields, order."""
    headers = (firmware_dir() / "kernels").glob("rlx_kernels*.h")
    header = "\n".join(file.read_text() for file in headers)
    for kernel in ALL_KERNELS:
        body = re.search(r"typedef struct \{([^}]*)\} " + kernel.struct + ";", header)
        assert body is not None, kernel.struct
        text = re.sub(r"/\*.*?\*/", "", body[1], flags=re.S)
        lists = re.findall(r"const int\w+ ([^;]*);", text)
        pointers = [name.strip(" *") for line in lists for name in line.split(",")]
        fields = [name.strip() for line in re.findall(r"int32_t ([^;*]*);", text) for name in line.split(",")]
        assert (tuple(pointers), tuple(fields)) == (kernel.pointers, kernel.fields), kernel.name
        views = ", ".join(f"rlx_view_t {name}" for name in ("aby" if kernel.inputs == 2 else "xy"))
        views += ", void *scratch" if kernel.scratch else ""
        prototype = f"void {kernel.name}(const {kernel.struct} *p, {views}, int32_t y0, int32_t y1);"
        assert prototype in re.sub(r"\(\n\s+", "(", header)


def test_a_kernel_a_file() -> None:
    for kernel in ALL_KERNELS:
        source: Path = firmware_dir() / "kernels" / kernel.source
        assert f"void {kernel.name}(" in source.read_text()
        assert source.read_text().startswith("/* rlx_")
