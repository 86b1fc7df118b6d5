"""No kernel touches anything outside of its tensors, on its own core: guarded plans on emulated boards.

In such a plan (cgen/arrange.py) at least 16 bytes of nobody's lie before and after every tensor, line buffer and
scratch memory. Each model runs three times:
- two with all of the arena but the inputs filled with -128, then with 127. Afterwards every guard byte must be as it
  was, so nothing was written outside; and every tensor must be as the reference has it, so no result depends on what
  was read outside. tests/guards.py says how the arena gets to the board and back.
- one with QEMU's watchpoints on all guards, which also shows reads that no result depends on, such as a load too many
  that is multiplied by 0, or never used. tests/watch.py says what these can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from fast_graphs import WIDTHS
from guards import changed, differing, filled, guards, in_all_ways, write_bundle
from models import ModelMaker, random_model, samples
from test_shared_device import SHARED, shared_model
from test_stream import chain, residual
from watch import first_read

from rlx_edge import api
from rlx_edge.cgen.arrange import guarded
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.cgen.plan import Call, Constant, Plan
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import TargetConfig, get_target
from rlx_edge.cgen.variants.table import VARIANTS
from rlx_edge.device.boards import load_board
from rlx_edge.device.build import build_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.link import Link
from rlx_edge.device.symbols import find_source_line
from rlx_edge.ir import DType, Graph
from rlx_edge.ir.ops import Param, QConv2d, QMatMul, ReduceOp
from rlx_edge.reference import run_all
from rlx_edge.resources import digits_dir

LOWEST, HIGHEST = 0x80, 0x7F
FILLS = (LOWEST, HIGHEST)
SMALLEST = Options(ram_budget=0)
BOARDS = {"M0": "microbit", "M3": "mps2-an385", "M4": "mps2-an386", "M55": "mps3-an547"}


@dataclass(frozen=True, eq=False)
class Guarded:
    """Firmware of guarded plans, running. `arena`: its address; `word`: bytes that watchpoints tell apart."""

    plans: Mapping[str, Plan]
    link: Link
    gdb: str
    elf: Path
    arena: int
    word: int

    def run(self, name: str, fill: int) -> tuple[list[str], list[str]]:
        """The guards that were written to and the tensors that are wrong after a run among bytes `fill`."""
        plan, model = self.plans[name], self.link.model(f"whole_{name}")
        inputs = _inputs(plan)
        self.link.write_input(model, model.tensors[0], np.frombuffer(filled(plan, inputs, fill), np.int8))
        self.link.run(model)
        arena = self.link.read_tensor(model, model.tensors[1]).tobytes()
        return changed(plan, arena, fill), differing(plan, arena, run_all(plan.graph, inputs))

    def first_read(self, name: str) -> str:
        """Where a guard was read first; empty when none was."""
        plan, model = self.plans[name], self.link.model(name)
        up = [(-(-first // self.word) * self.word, end) for first, end in guards(plan)]
        spans = [(self.arena + first, self.arena + end) for first, end in up if first < end]

        def run() -> None:
            for tensor, values in zip(model.inputs, _inputs(plan).values(), strict=True):
                self.link.write_input(model, tensor, values)
            self.link.run(model)

        read = first_read(self.gdb, spans, run)
        return f"guard at {read.first - self.arena}: {find_source_line(self.elf, read.pc)}" if read else ""


def _inputs(plan: Plan) -> dict[str, np.ndarray]:
    return {name: array[0] for name, array in samples(plan.graph, 1, seed=4).items()}


@contextmanager
def on_board(board_name: str, plans: Mapping[str, Plan], folder: Path) -> Iterator[Guarded]:
    """Builds and starts firmware of these plans, once guarded."""
    board = load_board(board_name)
    plans = {name: guarded(plan) for name, plan in plans.items()}
    models = [model for name in plans for model in (name, f"whole_{name}")]
    firmware = build_firmware(write_bundle(folder / "bundle", plans), models, board, folder / "build")
    with firmware.elf.open("rb") as stream:
        symbols: Any = ELFFile(stream).get_section_by_name(".symtab")
        (arena,) = symbols.get_symbol_by_name("rlx_app_arena")
    word = 1 if board.chip.cpu in ("cortex-m0", "cortex-m0plus") else 4  # see watch.py
    with (
        Emulator(board, firmware.elf, gdb=True) as emulator,
        Link.open(emulator.port, board.baud, elf=firmware.elf) as link,
    ):
        link.hello()
        yield Guarded(plans, link, emulator.gdb_target, firmware.elf, arena["st_value"], word)


def check(device: Guarded) -> None:
    for name in device.plans:
        for fill in FILLS:
            assert device.run(name, fill) == ([], []), f"{name} among bytes {fill:#04x}"
        assert device.first_read(name) == "", name


# ---- The project's own models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", BOARDS)
def test_nothing_is_touched_outside_of_tensors(core: str, tmp_path: Path) -> None:
    """Every variant of the core is called; layers are streamed through line buffers too."""
    target = target_of(BOARDS[core])
    plans = {f"all{k}": plan for k, plan in enumerate(in_all_ways(make_plan(random_model(16), target)))}
    for dtype in (DType.I4, DType.I2):
        few_bits = [narrowed(graph, dtype) for graph in (random_model(16), many_outputs())]
        ways = [plan for graph in few_bits for plan in in_all_ways(make_plan(graph, target))]
        for k, plan in enumerate(ways):  # Those that call a kernel for packed weights that none before calls.
            packed = {step.variant for step in plan.steps if step.variant.endswith(tuple(WIDTHS))}
            if packed - {step.variant for other in plans.values() for step in other.steps}:
                plans[f"{dtype.value}_{k}"] = plan
    called = {step.variant for plan in plans.values() for step in plan.steps}
    missing = {variant.name for variant in VARIANTS if variant.isa in target.isas} - called
    assert not missing, "another random model is needed, to which these apply too"
    plans |= {"digits": make_plan(digits(), target)}
    plans |= {make.__name__: make_plan(make(1), target, SMALLEST) for make in (chain, residual)}
    assert any(plan.line_offsets for plan in plans.values())
    with on_board(BOARDS[core], plans, tmp_path) as device:
        check(device)


def narrowed(graph: Graph, dtype: DType) -> Graph:
    """The graph with weights that this type holds."""
    nodes, params = list(graph.nodes), dict(graph.params)
    _, high = dtype.limits
    for node in graph.nodes:
        if isinstance(node.op, QConv2d | QMatMul):
            weights = graph.nodes[node.inputs[1]]
            assert isinstance(weights.op, Param)
            params[weights.op.name] = (graph.params[weights.op.name] % (2 * high + 1) - high).astype(np.int8)
            nodes[weights.id] = replace(weights, type=replace(weights.type, dtype=dtype))
    return replace(graph, nodes=tuple(nodes), params=params)


def many_outputs() -> Graph:
    """A dense layer with one scale for so many channels that kernels of their own take it."""
    maker = ModelMaker("many_outputs", 1)
    return maker.builder.build([maker.dense(maker.input((1, 20)), 9)])


def target_of(board: str) -> TargetConfig:
    return get_target(api.target_of(load_board(board)))


def digits() -> Graph:
    graph = api.load(digits_dir() / "digits.onnx")
    return api.quantize(graph, api.calibrate(graph, api.load_data(digits_dir() / "digits_calibration.npz", graph)))


# ---- Planted faults ----------------------------------------------------------------------------------------------


def _with_call(plan: Plan, change: Callable[[Call], Call]) -> Plan:
    """The plan with its one call changed."""
    (step,) = plan.steps
    return replace(plan, steps=(replace(step, calls=tuple(map(change, step.calls))),))


def _plans(core: str, make: Callable[[ModelMaker], int]) -> list[Plan]:
    """A model of one layer in all ways that the core has, the fastest first and the portable one last."""
    maker = ModelMaker("planted", 1)
    return in_all_ways(make_plan(maker.builder.build([make(maker)]), target_of(BOARDS[core])))


def _more(**added: int) -> Callable[[Call], Call]:
    """Adds to parameters of a call."""
    return lambda call: replace(call, params={name: value + added.get(name, 0) for name, value in call.params.items()})


def _with_zero_weights(call: Call) -> Call:
    """A dense call that multiplies one more input, by 0."""
    weights = np.pad(call.constants["weights"].values, ((0, 0), (0, 1)))
    return replace(_more(in_c=1)(call), constants={**call.constants, "weights": Constant("weights", weights)})


def planted(core: str) -> dict[str, Plan]:
    """Kernels that go outside, each in a way of its own. Rows have 16 bytes, as guards do."""
    fast, *_ = _plans(core, lambda maker: maker.conv(maker.input((1, 4, 4, 4)), 4))
    *_, pool = _plans(core, lambda maker: maker.pool(maker.input((1, 4, 4, 4)), 4, ReduceOp.MAX))
    *_, dense = _plans(core, lambda maker: maker.dense(maker.input((1, 16)), 4))
    return {
        "writes": _with_call(fast, lambda call: replace(call, rows=call.rows + 1)),
        "reads": _with_call(fast, _more(in_h=1)),
        "reads_max": _with_call(pool, _more(in_h=1, k_h=1)),
        "reads_unused": _with_call(dense, _with_zero_weights),
    }


@pytest.mark.parametrize(("core", "reader"), [("M4", "rlx_conv_copy_window"), ("M55", "load_rows")])
def test_planted_faults_are_found(core: str, reader: str, tmp_path: Path) -> None:
    """A row too many; a row outside in place of padding; a window that is too high by a row, which changes no maximum
    among bytes of -128; a load that is multiplied by 0, which only a watchpoint shows."""
    with on_board(BOARDS[core], planted(core), tmp_path) as device:
        ran = {name: [device.run(name, fill) for fill in FILLS] for name in device.plans}
        counts = {name: [(len(changed), len(wrong)) for changed, wrong in runs] for name, runs in ran.items()}
        assert counts == {
            "writes": [(1, 0), (1, 0)],
            "reads": [(0, 1), (0, 1)],
            "reads_max": [(0, 0), (0, 1)],
            "reads_unused": [(0, 0), (0, 0)],
        }
        readers = {name: device.first_read(name) for name in device.plans}
        assert readers["writes"] == ""
        assert readers["reads"].endswith(f"in {reader}")
        assert readers["reads_max"].endswith("in rlx_max_pool_s8")
        assert readers["reads_unused"].endswith("in rlx_dense_s8")


# ---- The public models of ../shared ------------------------------------------------------------------------------

BIG_BOARDS = ("mps2-an385-m0", "mps2-an385", "mps2-an386", "mps3-an547")


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared with the public models is not here")
@pytest.mark.parametrize("name", ["kws", "ic", "vww", "ad"])
@pytest.mark.parametrize("board", BIG_BOARDS)
def test_public_models(board: str, name: str, tmp_path: Path) -> None:
    graph, target = shared_model(name), target_of(board)
    for label, options in {"balanced": DEFAULT, "smallest": SMALLEST}.items():
        with on_board(board, {name: make_plan(graph, target, options)}, tmp_path / label) as device:
            check(device)
