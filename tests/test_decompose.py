"""Ops made of others: the same bits from the reference, on float32 and on int8, and from C on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import Draw, activation, params, random_inputs, seeds

from rlx_edge import api
from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.data import Data
from rlx_edge.device.boards import load_board
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.batch import sample_shape, with_batch
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Conv,
    Gather,
    MatMul,
    Narrow,
    Op,
    Pad,
    PadMode,
    Reduce,
    ReduceOp,
    Reverse,
    Slice,
    Tile,
    Trilu,
)
from rlx_edge.ir.ops.fused import (
    FusedConvBiasAct,
    FusedMatMulBiasAct,
    FusedMatMulResidual,
    FusedResidualLN,
    FusedResidualRmsNorm,
    FusedSwiGLU,
)
from rlx_edge.ir.ops.modulation import LayerNorm2d
from rlx_edge.ir.ops.ordering import Histogram, Roll
from rlx_edge.ir.ops.pointwise import StopGradient
from rlx_edge.ir.ops.regions import (
    BatchElementwiseRegion,
    ChainOperand,
    ChainStep,
    ElementwiseRegion,
    Source,
    TransformRegion,
)
from rlx_edge.ir.ops.volumes import Interpolate3d, ResizeNearest2x
from rlx_edge.passes import unfuse as unfused
from rlx_edge.passes.decompose import RULES, decompose
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.unfuse import unfuse
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.quality import quality
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference.run import run

NUMPY_MODES = {PadMode.REFLECT: "reflect", PadMode.REPLICATE: "edge", PadMode.CIRCULAR: "wrap"}


@st.composite
def tiles(draw: Draw, shape: tuple[int, ...]) -> Tile:
    return Tile(tuple(draw(st.integers(1, 3)) for _ in shape))


@st.composite
def pads(draw: Draw, shape: tuple[int, ...]) -> Pad:
    mode = draw(st.sampled_from(sorted(NUMPY_MODES, key=lambda mode: mode.value)))
    most = [3 if mode is PadMode.REPLICATE else size - (mode is PadMode.REFLECT) for size in shape]
    return Pad(tuple((draw(st.integers(0, n)), draw(st.integers(0, n))) for n in most), mode)


@st.composite
def gathers(draw: Draw, shape: tuple[int, ...]) -> Gather:
    return Gather(draw(st.integers(-len(shape), len(shape) - 1)))


OPS = {"tile": tiles, "pad": pads, "gather": gathers}


@st.composite
def graphs(draw: Draw, name: str, quant: QuantParams | None) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    op: Op = draw(OPS[name](shape))
    builder = GraphBuilder(name)
    operands = [builder.input("x", TensorType(shape, DType.F32) if quant is None else activation(shape, quant))]
    if isinstance(op, Gather):
        size = shape[op.axis]
        indices = draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=6))
        operands.append(builder.param("indices", np.array(indices, np.int32)))
    return builder.build([builder.add(op, operands, "y", quant)])


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("quantized", [False, True])
def test_what_an_op_is_made_of_gives_the_same_bits(name: str, quantized: bool) -> None:
    seen = set()

    @given(st.data(), seeds)
    def check(data: st.DataObject, seed: int) -> None:
        graph = data.draw(graphs(name, data.draw(params()) if quantized else None))
        made = decompose(graph)
        inputs = random_inputs(graph, seed)
        np.testing.assert_array_equal(run(made, inputs)["y"], decomposed_by_numpy(graph, inputs["x"]))
        seen.add(made is graph)
        assert made is graph or not any(isinstance(node.op, tuple(RULES)) for node in made.nodes)

    check()
    assert False in seen


def decomposed_by_numpy(graph: Graph, x: np.ndarray) -> np.ndarray:
    node = graph.nodes[graph.outputs[0]]
    if isinstance(node.op, Tile):
        return np.tile(x, node.op.reps)
    if isinstance(node.op, Gather):
        return np.take(x, graph.params["indices"], axis=node.op.axis)
    assert isinstance(node.op, Pad)
    return np.pad(x, node.op.pads, mode=NUMPY_MODES[node.op.mode])


F32 = DType.F32
CHAIN = (ChainStep(Activation(ActivationFn.RELU), (ChainOperand(Source.INPUT, 0),)),)
DOUBLED = (ChainStep(ResizeNearest2x(), (ChainOperand(Source.INPUT, 0),)),)
MODULI = (0,) * 16

SAMPLES: list[tuple[Op, list[tuple[int, ...]], tuple[int, ...] | None]] = [
    (FusedSwiGLU(None, True), [(2, 6)], None),
    (FusedMatMulBiasAct(ActivationFn.RELU), [(2, 3), (3, 4), (4,)], None),
    (FusedMatMulResidual(), [(2, 3), (3, 4), (2, 4)], None),
    (
        FusedConvBiasAct((3, 3), (1, 1), (1, 1), (1, 1), 1, None, True),
        [(1, 2, 4, 4), (3, 2, 3, 3), (3,), (1, 3, 4, 4)],
        None,
    ),
    (FusedResidualLN(True, 1e-5), [(2, 3), (2, 3), (3,), (3,), (3,)], None),
    (FusedResidualRmsNorm(False, 1e-5), [(2, 3), (2, 3), (3,), (3,)], None),
    (LayerNorm2d(1e-5), [(1, 3, 2, 2), (3,), (3,)], None),
    (ElementwiseRegion(CHAIN, 1, 0, MODULI), [(2, 3)], None),
    (BatchElementwiseRegion(CHAIN, 2, 0, MODULI), [(2, 3), (2, 3)], (4, 3)),
    (TransformRegion(DOUBLED, 1), [(1, 2, 3, 3)], None),
    (Roll((1, -2), (0, 1)), [(3, 4)], None),
    (Roll((3,), (0,)), [(3, 4)], None),
    (ResizeNearest2x(), [(1, 2, 3, 3)], None),
    (Interpolate3d((3, 2, 5)), [(1, 1, 2, 4, 3)], None),
    (StopGradient(), [(2, 3)], None),
    (Histogram(4, -1.0, 1.0), [(5, 6)], None),
    (Tile((2, 1)), [(2, 3)], None),
    (Pad(((1, 2), (0, 1)), PadMode.REFLECT), [(3, 4)], None),
]
"""An op that each rule replaces, the shapes of its operands, and that of the result where it is declared."""


def name_of(value: object) -> str:
    return value.kind_name if isinstance(value, Op) else ""


@pytest.mark.parametrize(
    ("op", "shapes", "declared"), SAMPLES, ids=lambda value: value.kind_name if isinstance(value, Op) else ""
)
def test_every_rule_replaces_its_kind(op: Op, shapes: list[tuple[int, ...]], declared: tuple[int, ...] | None) -> None:
    builder = GraphBuilder("one")
    inputs = [builder.input(f"x{i}", TensorType(shape, F32)) for i, shape in enumerate(shapes)]
    node = builder.add(op, inputs, "y", type=None if declared is None else TensorType(declared, F32))
    graph = builder.build([node])
    made = decompose(unfuse(graph))
    assert not {type(node.op) for node in made.nodes} & {*unfused.RULES, *set(RULES) - {Pad}}
    assert made.output_nodes[0].name == "y" and made.output_nodes[0].type == graph.output_nodes[0].type
    values = {n.name: np.random.default_rng(1).normal(size=n.type.shape).astype(np.float32) for n in graph.inputs}
    np.testing.assert_array_equal(run(made, values)["y"], run(graph, values)["y"])


def test_every_rule_has_a_sample() -> None:
    assert {type(op) for op, *_ in (*SAMPLES, *ON_INT8)} | {Gather} == {*unfused.RULES, *RULES}


MOVING = (Roll, ResizeNearest2x, TransformRegion, StopGradient, Tile, Pad)

ON_INT8: list[tuple[Op, tuple[int, ...]]] = [
    (Trilu(True, -1), (2, 3, 4)),
    (Trilu(False, 1), (4, 4)),
    (Trilu(True, 9), (2, 3)),
    *((op, shapes[0]) for op, shapes, _ in SAMPLES if isinstance(op, MOVING)),
]
"""Ops that move codes, or put the code of 0 in their place, and shapes of their operands."""


@pytest.mark.parametrize(("op", "shape"), ON_INT8, ids=name_of)
def test_what_int8_takes_runs_in_c(op: Op, shape: tuple[int, ...], tmp_path: Path) -> None:
    """The op after another, generated for the host: the bits of the reference on the op itself."""
    quant = QuantParams.per_tensor(0.5, 3)
    builder = GraphBuilder("one")
    x = builder.input("x", activation(shape, quant))
    first = builder.add(Clamp(-30.0, 30.0), [x], "first", quant)
    graph = builder.build([builder.add(op, [first], "y", quant)])
    values = {"x": np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)}
    (model,) = generate({"one": graph}, tmp_path / "bundle")
    found = HostModel(model).run({"x": values["x"].reshape(1, *sample_shape(shape))})["y"]
    np.testing.assert_array_equal(found.reshape(graph.output_nodes[0].type.shape), run(graph, values)["y"])


def test_a_network_of_moves_is_quantized_and_runs(tmp_path: Path) -> None:
    """Padding by mirrors, slices, resampling, rolls and tiles between layers: calibrated in batches, run on a board."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((1, 4, 8, 8), F32))
    w = builder.param("w", (rng.normal(size=(8, 4, 3, 3)) * 0.2).astype(np.float32))
    padded = builder.add(Pad(((0, 0), (0, 0), (1, 1), (1, 1)), PadMode.REFLECT), [x], "padded")
    layer = builder.add(Conv((3, 3), (1, 1), (0, 0), (1, 1), 1), [padded, w], "layer")
    bounded = builder.add(Activation(ActivationFn.RELU), [layer], "bounded")
    halves = [builder.add(Narrow(1, 0, 4), [bounded], "a"), builder.add(Slice(1, 7, 4, -1), [bounded], "b")]
    node = builder.add(Binary(BinaryOp.ADD), halves, "sum")
    for op in (ResizeNearest2x(), Roll((1,), (3,)), Tile((1, 2, 1, 1)), Reverse((2,))):
        node = builder.add(op, [node], op.kind_name.lower())
    mean = builder.add(Reduce(ReduceOp.MEAN, (2, 3), False), [node], "mean")
    matrix = builder.param("matrix", rng.normal(size=(8, 3)).astype(np.float32))
    graph = builder.build([builder.add(MatMul(), [mean, matrix], "y")])
    assert with_batch(prepare(graph), 5).inputs[0].type.shape[0] == 5
    data = Data({"x": rng.normal(size=(16, 4, 8, 8)).astype(np.float32)})
    int8 = quantize(graph, calibrate(graph, data))
    assert quality(graph, int8, data).output_sqnr_db > 25
    values = {"x": rng.integers(-128, 128, (4, *int8.inputs[0].type.shape[1:])).astype(np.int8)}
    api.build({"net": int8}, load_board("mps2-an386"), tmp_path)
    result = api.parity(tmp_path, Data(values), emulate=True, layers=True)  # Of device, host and reference.
    assert (result.inputs, result.differing_bytes) == (4, 0)


@pytest.mark.parametrize("op", [Tile((1, 1)), Pad(((0, 0), (0, 0)), PadMode.REFLECT)], ids=name_of)
def test_a_move_of_nothing_between_two_outputs_is_quantized(op: Op, tmp_path: Path) -> None:
    builder = GraphBuilder("one")
    x = builder.input("x", TensorType((1, 3), F32))
    first = builder.add(Activation(ActivationFn.RELU), [x], "first")
    graph = builder.build([first, builder.add(op, [first], "y")])
    data = Data({"x": np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)})
    int8 = quantize(graph, calibrate(graph, data))
    assert [node.name for node in int8.output_nodes] == ["first", "y"]
    (model,) = generate({"one": int8}, tmp_path / "bundle")
    found = HostModel(model).run({"x": np.array([[-3, 5, 90]], np.int8)})
    np.testing.assert_array_equal(found["first"], found["y"])
