"""The cost model: it knows every kernel, counts what the loops of the C code do, and predicts what is measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import ModelMaker, tiny_model
from op_graphs import OPS, draw_legal
from test_shared_device import SHARED, shared_model

from rlx_edge import api
from rlx_edge.cgen.costs import ROUGH_BASE, costs_of
from rlx_edge.cgen.kernels import ALL
from rlx_edge.cgen.lower import lower
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.predict import predict
from rlx_edge.cgen.target import TARGETS, get_target
from rlx_edge.cgen.variants.table import VARIANTS
from rlx_edge.cgen.work import work_of
from rlx_edge.device.boards import load_board
from rlx_edge.ir import Graph
from rlx_edge.resources import digits_dir

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from cost_static import _call_graph, _deepest, _placed
from nnls import nnls

WHOLE_MODEL_ERROR = 0.05
FLASH_ERROR = 0.03
CORES = [name for name in TARGETS if name != "portable"]


@pytest.mark.parametrize("core", CORES)
def test_every_kernel_was_fitted(core: str) -> None:
    """Or `make fit-costs` was forgotten; a kernel that is new is predicted by a rough guess until then."""
    target = TARGETS[core]
    costs = costs_of(target)
    assert costs is not None
    fast = [kernel for variant in VARIANTS if variant.isa in target.isas for kernel in variant.kernels]
    assert {kernel.name for kernel in (*ALL, *fast)} - costs.kernels.keys() == set()


@pytest.mark.parametrize("op", OPS)
@settings(max_examples=20)
@given(data=st.data())
def test_rows_add_up(op: str, data: st.DataObject) -> None:
    """What is counted for some rows and for the others is what is counted for all."""
    (step,) = lower(draw_legal(data, op))
    for call in step.calls:
        whole = work_of(call)
        assert whole is not None, f"nobody counts the work of {call.kernel.name}"
        cut = data.draw(st.integers(0, call.rows))
        parts = [work_of(replace(call, rows=cut)), work_of(replace(call, first_row=cut))]
        assert whole == {name: sum((part or {}).get(name, 0) for part in parts) for name in whole}
        assert all(isinstance(count, int) and count >= 0 for count in whole.values())


def test_macs_are_counted_as_the_graph_counts_them() -> None:
    """Of a convolution: those inside the image and those outside of it, four channels at a time and one by one."""
    graph = make_plan(tiny_model(), get_target("portable")).graph
    step = lower(graph)[0]
    work = work_of(step.calls[0])
    assert work is not None
    quads = work["quad_macs"] + work["quad_fills"]
    assert 4 * quads + work["single_macs"] + work["single_fills"] == graph.macs(graph.nodes[step.node])


def digits() -> Graph:
    graph = api.load(digits_dir() / "digits.onnx")
    return api.quantize(graph, api.calibrate(graph, api.load_data(digits_dir() / "digits_calibration.npz", graph)))


MODELS = {"tiny": tiny_model, "digits": digits}
PUBLIC = {name: (lambda name=name: shared_model(name)) for name in ("kws", "ic", "vww", "ad")}


def check_predictions(graph: Graph, board: str, folder: Path, options: Options = DEFAULT) -> None:
    """Instructions within 5%; flash within 3%; the stack's bound holds and is not far off; RAM is exact."""
    api.build({"model": graph}, board, folder, options=options)
    made = api.profile(folder)
    (bundled,) = api.open_models(folder)
    told, costs = predict(bundled.plan), costs_of(get_target(bundled.plan.target))
    assert told is not None and costs is not None and not told.rough
    assert made.predicted_instructions == told.instructions
    assert abs(told.instructions - made.instructions) <= WHOLE_MODEL_ERROR * made.instructions
    flash = made.flash_bytes - costs.start_up_flash
    assert abs(told.flash_bytes - flash) <= FLASH_ERROR * flash
    assert made.ram_bytes - costs.start_up_ram <= told.ram_bytes <= made.ram_bytes
    assert made.stack_bytes <= told.stack_bytes <= 1.5 * made.stack_bytes + 64
    assert str(told.stack_bytes) in (folder / "bundle" / "model" / "model.h").read_text()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_predicted_is_measured(name: str, tmp_path: Path) -> None:
    check_predictions(MODELS[name](), "mps2-an386", tmp_path)


STAGED = [("mps2-an386", 2400), ("mps2-an386", 0), ("mps2-an385", 2400), ("mps2-an385-m0", 2400)]


@pytest.mark.parametrize(("board", "ram_budget"), STAGED)
def test_what_is_predicted_of_stages_is_measured(board: str, ram_budget: int, tmp_path: Path) -> None:
    """A call a row: tiles that are not full, a frame more on the stack."""
    options = Options(ram_budget=ram_budget)
    assert any(step.lines for step in make_plan(digits(), get_target(load_board(board).chip.cpu), options).steps)
    check_predictions(digits(), board, tmp_path, options)


def tall() -> Graph:
    """Depthwise convolutions on an image that is higher than wide, as in keyword spotting."""
    maker = ModelMaker("tall", 8)
    x = maker.conv(maker.input((1, 25, 5, 1)), 32, name="stem")
    for i in range(2):
        x = maker.conv(x, 32, groups=32, name=f"depthwise{i}")
        x = maker.conv(x, 32, 1, name=f"pointwise{i}")
    return maker.builder.build([maker.dense(maker.flatten(maker.pool(x, 5)), 4)])


def test_rows_of_a_tall_image_make_the_lines_on_m0() -> None:
    """As a whole its columns do; one row at a time, each value of a column would be looked up in a ring."""
    target, options = get_target("cortex-m0"), Options(ram_budget=2600)
    for wanted, made in ((1, make_plan(tall(), target)), (0, make_plan(tall(), target, options))):
        calls = [call for step in made.steps for call in step.calls if call.kernel.name == "rlx_depthwise_v6m_s8"]
        assert calls and {call.params["upright"] for call in calls} == {wanted}


STAGED_PUBLIC = [
    ("kws", "mps2-an386", 5760),
    ("kws", "mps2-an385-m0", 5760),
    ("kws", "mps2-an385", 6000),
    ("ic", "mps2-an386", 18_400),
]


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared with the public models is not here")
@pytest.mark.parametrize(("name", "board", "ram_budget"), STAGED_PUBLIC)
def test_what_is_predicted_of_stages_of_public_models_is_measured(
    name: str, board: str, ram_budget: int, tmp_path: Path
) -> None:
    check_predictions(PUBLIC[name](), board, tmp_path, Options(ram_budget=ram_budget))


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared with the public models is not here")
@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("board", ["mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547"])
def test_what_is_predicted_of_public_models_is_measured(name: str, board: str, tmp_path: Path) -> None:
    check_predictions(PUBLIC[name](), board, tmp_path)


def test_a_kernel_that_was_not_fitted_is_guessed() -> None:
    costs = costs_of(get_target("cortex-m4"))
    assert costs is not None
    call = lower(make_plan(tiny_model(), get_target("portable")).graph)[0].calls[0]
    unknown = replace(call, kernel=replace(call.kernel, name="rlx_new_s8"))
    assert not costs.is_fitted(unknown) and costs.is_fitted(call)
    assert costs.call_instructions(unknown) > ROUGH_BASE
    assert costs.stack_bytes(unknown) == unknown.kernel.stack_bytes
    assert costs.kernel_bytes(["rlx_new_s8"]) > 0


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_least_squares_without_negative_coefficients(seed: int, columns: int) -> None:
    """The Karush-Kuhn-Tucker conditions, which make a solution the best: no other coefficient would help."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(columns + 5, columns)), rng.normal(size=columns + 5)
    x = nnls(a, b)
    gradient = a.T @ (b - a @ x)
    assert (x >= 0).all()
    assert (gradient <= 1e-7).all()
    assert np.abs(gradient[x > 0]).max(initial=0.0) < 1e-7


def test_the_deepest_stack_is_found() -> None:
    text = """node: { title: "top" label: "top\\nf.c:1:1\\n16 bytes (static)\\n0 dynamic objects" }
node: { title: "f.c:a" label: "a\\nf.c:2:1\\n24 bytes (static)\\n0 dynamic objects" }
node: { title: "f.c:b" label: "b\\nf.c:3:1\\n8 bytes (static)\\n0 dynamic objects" }
node: { title: "memset" label: "memset\\n<built-in>" shape : ellipse }
edge: { sourcename: "top" targetname: "f.c:a" label: "f.c:1:2" }
edge: { sourcename: "top" targetname: "f.c:b" label: "f.c:1:3" }
edge: { sourcename: "f.c:b" targetname: "memset" label: "f.c:3:3" }"""
    frames, calls = _call_graph(text)
    assert _deepest("top", frames, calls) == 40
    assert _deepest("top", {**frames, "memset": 100}, calls) == 16 + 8 + 100
    with pytest.raises(ValueError, match="recursion"):
        _deepest("top", frames, {**calls, "f.c:a": {"top"}})
    with pytest.raises(ValueError, match="no fixed size"):
        _call_graph(text.replace("24 bytes (static)", "24 bytes (dynamic)"))


def test_sizes_are_read_from_the_linkers_map() -> None:
    text = """Discarded input sections
 .text.gone     0x00000000       0x40 a.o
Linker script and memory map
 .text.rlx_a_long_name_s8
                0x00008000       0x1e a.o
                0x00008000                rlx_a_long_name_s8
 .rodata.x      0x00008020        0x8 a.o
 .text          0x00008028       0x30 /usr/lib/libgcc.a(_divsi3.o)
 .text          0x00008058        0x0 /usr/lib/libgcc.a(_none.o)
"""
    assert _placed(text) == (0x20 + 8, {"_divsi3": 0x30})
