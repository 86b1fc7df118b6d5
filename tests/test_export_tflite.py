"""Export to `.tflite`: what the file says, what is refused, and that tflite-micro computes our bits from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tflite
from models import ModelMaker, float_edges_model, random_model, samples, tiny_model
from oracles.tflm import Tflm

import rlx_edge as rlx
from rlx_edge.errors import EdgeError, UnsupportedError
from rlx_edge.formats.export_tflite import save_tflite, tflite_bytes
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.formats.tflite_file import FileModel, read_model
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, Requant, TensorType, with_batch
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Layout,
    Op,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    ReduceOp,
    Softmax,
    Transpose,
)
from rlx_edge.passes.freeze import freeze
from rlx_edge.quant.recipe import EFFORTS
from rlx_edge.reference import run

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
QUANT = QuantParams.per_tensor(float(np.float32(0.05)), -20)


def one_op(op: Op, *shapes: tuple[int, ...], out: QuantParams = QUANT) -> Graph:
    builder = GraphBuilder("one")
    inputs = [builder.input(f"x{i}", TensorType(shape, DType.I8, QUANT)) for i, shape in enumerate(shapes)]
    return freeze(builder.build([builder.add(op, inputs, "y", out)]))


def file_of(graph: Graph) -> FileModel:
    return read_model(tflite_bytes(graph), "the file")


def kinds(graph: Graph) -> list[str]:
    return [operator.kind for operator in file_of(graph).operators]


def refusals(graph: Graph) -> list[str]:
    with pytest.raises(UnsupportedError, match=r"cannot be exported to \.tflite") as caught:
        tflite_bytes(graph)
    return list(caught.value.problems)


def assert_tflite_micro_agrees(graph: Graph, inputs: dict[str, Array]) -> None:
    """On every sample of `inputs`, [n, *shape] each."""
    oracle = Tflm(tflite_bytes(graph))
    for index in range(len(next(iter(inputs.values())))):
        sample = {node.name: inputs[node.name][index] for node in graph.inputs}
        expected = oracle.run(list(sample.values()), len(graph.outputs))
        found = run(graph, sample)
        for node, values in zip(graph.output_nodes, expected, strict=True):
            assert found[node.name].shape == values.shape
            np.testing.assert_array_equal(found[node.name], values)


# ---- Whole models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tiny_model, float_edges_model, *(lambda s=s: random_model(s) for s in range(12))])
def test_models_equal_tflite_micro(make: Callable[[], Graph]) -> None:
    graph = make()
    assert_tflite_micro_agrees(graph, samples(graph, 5))


def test_the_digits_example_quantized_here_equals_tflite_micro() -> None:
    folder = EXAMPLES / "digits"
    graph = rlx.load(folder / "digits.onnx")
    int8 = rlx.quantize(graph, rlx.calibrate(graph, rlx.load_data(folder / "digits_calibration.npz", graph)))
    data = rlx.load_data(folder / "digits_test.npz", int8, samples="0:50")
    assert_tflite_micro_agrees(int8, {name: values[:, np.newaxis] for name, values in data.inputs.items()})


# ---- What the file says ---------------------------------------------------------------------------------------------


def test_equal_graphs_give_equal_bytes() -> None:
    assert tflite_bytes(tiny_model()) == tflite_bytes(tiny_model())


def test_inputs_and_outputs_keep_names_order_and_parameters() -> None:
    graph = random_model(3)
    model = file_of(graph)
    for nodes, indices in ((graph.inputs, model.inputs), (graph.output_nodes, model.outputs)):
        tensors = [model.tensors[index] for index in indices]
        assert [tensor.name for tensor in tensors] == [node.name for node in nodes]
        assert [tensor.shape for tensor in tensors] == [node.type.shape for node in nodes]
        held = [tensor.quant and QuantParams(tensor.quant.scales, tensor.quant.zero_points) for tensor in tensors]
        assert held == [node.type.quant for node in nodes]


def test_tensor_names_are_unique() -> None:
    names = [tensor.name for tensor in file_of(random_model(1)).tensors]
    assert len(set(names)) == len(names)


def test_constants_are_aligned_in_the_file() -> None:
    data = tflite_bytes(tiny_model())
    root = tflite.Model.GetRootAs(data, 0)
    buffers = [root.Buffers(index) for index in range(root.BuffersLength())]
    starts = [b._tab.Vector(b._tab.Offset(4)) for b in buffers if b.DataLength()]
    assert starts and all(start % 16 == 0 for start in starts)


def test_operator_versions() -> None:
    root = tflite.Model.GetRootAs(tflite_bytes(tiny_model()), 0)
    codes = [root.OperatorCodes(index) for index in range(root.OperatorCodesLength())]
    operator = tflite.BuiltinOperator
    assert {code.BuiltinCode(): code.Version() for code in codes} == {
        operator.CONV_2D: 3,
        operator.DEPTHWISE_CONV_2D: 3,
        operator.ADD: 2,
        operator.AVERAGE_POOL_2D: 2,
        operator.RESHAPE: 1,
        operator.FULLY_CONNECTED: 4,
        operator.SOFTMAX: 2,
    }


def test_weights_that_two_layers_share_are_there_once() -> None:
    maker = ModelMaker("shared", 1)
    x = maker.input((1, 4, 4, 2))
    first = maker.conv(x, 2, name="first")
    operands = maker.builder[first].inputs
    second = maker.builder.add(maker.builder[first].op, [x, *operands[1:]], "second", maker.quant_of(first))
    model = file_of(maker.builder.build([first, second]))
    assert model.operators[0].inputs == model.operators[1].inputs


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    save_tflite(tiny_model(), tmp_path / "model.tflite")
    assert (tmp_path / "model.tflite").read_bytes() == tflite_bytes(tiny_model())
    with pytest.raises(EdgeError, match="cannot be written"):
        save_tflite(tiny_model(), tmp_path / "missing" / "model.tflite")
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


# ---- Forms that TFLite has not --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clamp", "expected"),
    [
        (None, []),
        ((-20, 127), []),  # Relu
        ((-20, 100), []),  # Relu6: 6 / 0.05 - 20
        ((-40, 0), []),  # Relu between -1 and 1
        ((-20, 50), ["MINIMUM"]),
        ((-128, 50), ["MINIMUM"]),
        ((3, 127), ["MAXIMUM"]),
        ((3, 50), ["MAXIMUM", "MINIMUM"]),
    ],
)
def test_bounds_are_fused_as_far_as_an_activation_has_them(clamp: tuple[int, int] | None, expected: list[str]) -> None:
    graph = one_op(Binary(BinaryOp.ADD, Requant.TFLM, clamp), (4, 30), (4, 30))
    assert kinds(graph) == ["ADD", *expected]
    assert_tflite_micro_agrees(graph, samples(graph, 4))


def pool(kind: ReduceOp, stride: int, padding: tuple[int, ...], counted: bool = False) -> Pool:
    return Pool(kind, (3, 3), (stride, stride), padding, Layout.NHWC, counted, Requant.TFLM)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (pool(ReduceOp.MAX, 1, (1, 1)), ["MAX_POOL_2D"]),
        (pool(ReduceOp.MAX, 2, (0, 0, 1, 1)), ["MAX_POOL_2D"]),
        (pool(ReduceOp.MAX, 2, (1, 1)), ["PADV2", "MAX_POOL_2D"]),
        (pool(ReduceOp.MEAN, 1, (1, 1)), ["AVERAGE_POOL_2D"]),
        (pool(ReduceOp.MEAN, 2, (1, 1)), ["AVERAGE_POOL_2D", "MAX_POOL_2D"]),
        (pool(ReduceOp.MEAN, 2, (1, 1), True), ["PAD", "AVERAGE_POOL_2D"]),
    ],
)
def test_paddings_other_than_same_and_valid(op: Pool, expected: list[str]) -> None:
    graph = one_op(op, (1, 8, 8, 3))
    assert kinds(graph) == expected
    assert_tflite_micro_agrees(graph, samples(graph, 3))


def many(count: int) -> Graph:
    return one_op(Concat(1), *[(2, 1 + i % 3, 2) for i in range(count)])


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (many(10), ["CONCATENATION"]),
        (many(25), ["CONCATENATION"] * 3),
        (one_op(Clamp(-9.0, 9.0), (7,)), ["MAXIMUM"]),
        (one_op(Clamp(-0.5, 1.0), (7,)), ["MAXIMUM", "MINIMUM"]),
        (one_op(Reduce(ReduceOp.MEAN, (), True, Requant.TFLM), (3, 7)), ["QUANTIZE"]),
        (one_op(Reduce(ReduceOp.MEAN, (0, 1), False, Requant.TFLM), (3, 7)), ["MEAN"]),
        (
            one_op(Softmax(0, requant=Requant.TFLM), (5, 3), out=QuantParams.per_tensor(1 / 256, -128)),
            ["TRANSPOSE", "SOFTMAX", "TRANSPOSE"],
        ),
        (one_op(Activation(ActivationFn.SILU, requant=Requant.TFLM), (50, 8)), ["CAST", "ADD", "GATHER"]),
        (one_op(Activation(ActivationFn.HARD_SWISH, requant=Requant.TFLM), (50, 8)), ["HARD_SWISH"]),
        (one_op(Transpose((4, 2, 0, 3, 1)), (1, 2, 3, 4, 5)), ["TRANSPOSE"]),
    ],
)
def test_ops_that_take_several_operators(graph: Graph, expected: list[str]) -> None:
    assert kinds(graph) == expected
    assert_tflite_micro_agrees(graph, samples(graph, 3))


def test_inputs_that_nothing_reads_and_outputs_listed_twice() -> None:
    builder = GraphBuilder("odd")
    x, unused = (builder.input(name, TensorType((3, 4), DType.I8, QUANT)) for name in ("x", "unused"))
    out = QuantParams.per_tensor(2**-4, 1)
    y = builder.add(Quantize.to(out, Requant.TFLM), [x], "y", out)
    builder.add(Quantize.to(out, Requant.TFLM), [unused], "dead", out)
    graph = builder.build([y, x, y])
    assert kinds(graph) == ["QUANTIZE"]
    assert_tflite_micro_agrees(graph, samples(graph, 2))


# ---- Refusals -------------------------------------------------------------------------------------------------------


def conv_with(zero_point: int, low: int, high: int) -> Graph:
    """A convolution whose weights reach from `low` to `high` and have a zero point, as from an uint8 file."""
    builder = GraphBuilder("zero_points")
    x = builder.input("x", TensorType((1, 4, 4, 1), DType.I8, QUANT))
    weights = np.linspace(low, high, 9).round().astype(np.int8).reshape(1, 3, 3, 1)
    w_quant = QuantParams.per_tensor(2**-7, zero_point)
    op = QConv2d(
        *((3, 3), (1, 1), (0, 0), (1, 1), 1, -20, zero_point, -20, (2**-7,)),
        *(Layout.NHWC, Requant.TFLM),
    )
    operands = [x, builder.param("w", weights, w_quant), builder.param("b", np.zeros(1, np.int32))]
    return builder.build([builder.add(op, operands, "y", QUANT)])


def test_weight_zero_points_are_taken_off_where_int8_holds_what_is_left() -> None:
    graph = conv_with(-5, -100, 100)
    assert file_of(graph).tensors[1].quant is not None
    assert_tflite_micro_agrees(graph, samples(graph, 3))
    (problem,) = refusals(conv_with(-100, -100, 100))
    assert "weights with the zero point -100, which reach 0..200 around it" in problem


def test_every_refusal_is_told_at_once() -> None:
    builder = GraphBuilder("refused")
    x = builder.input("x", TensorType((1, 4, 4, 2), DType.I8, QUANT))
    rlx_rule = builder.add(Binary(BinaryOp.ADD), [x, x], "rlx_rule", QUANT)
    nchw = builder.add(Pool(ReduceOp.MAX, (2, 2), (2, 2), (0, 0), requant=Requant.TFLM), [x], "nchw", QUANT)
    double = QuantParams.per_tensor(0.1, 0)
    unsaid = builder.add(Quantize.to(double, Requant.TFLM), [x], "double", double)
    late = builder.add(Reduce(ReduceOp.MAX, (1,), True, Requant.TFLM), [x], "max", QUANT)
    real = builder.input("real", TensorType((3,), DType.F32))
    unquantized = builder.add(Activation(ActivationFn.RELU), [real], "relu")
    constant = builder.param("constant", np.zeros(3, np.float32))
    problems = refusals(builder.build([rlx_rule, nchw, unsaid, late, unquantized, constant]))
    expected = [
        "the rounding rule 'rlx', which .tflite has not: convert with --requant tflm",
        "NCHW images; .tflite is NHWC",
        "whose scale is not a float32 number",
        "an int8 reduction by Max",
        "an operand of f32; int8 graphs are exported: quantize the model first",
        "an output that is a constant",
    ]
    assert len(problems) == len(expected)
    for problem, part in zip(problems, expected, strict=True):
        assert part in problem


def test_a_mean_padded_in_a_way_of_its_own_is_refused() -> None:
    (problem,) = refusals(one_op(pool(ReduceOp.MEAN, 2, (2, 2, 0, 0)), (1, 8, 8, 1)))
    assert "a mean pooling padded by [2, 2, 0, 0] at stride [2, 2] that does not count its padding" in problem


def test_computed_weights_are_refused() -> None:
    builder = GraphBuilder("computed")
    quant = QuantParams.per_tensor(0.5, 0)
    x, w = (builder.input(name, TensorType((3, 3), DType.I8, quant)) for name in ("x", "w"))
    op = QMatMul(0, 0, 0, (0.5,), Requant.TFLM)
    y = builder.add(op, [x, w, builder.param("b", np.zeros(3, np.int32))], "y", quant)
    assert "weights that the model computes ('w')" in refusals(builder.build([y]))[0]


# ---- The public models ----------------------------------------------------------------------------------------------

SHARED = Path(__file__).resolve().parents[2] / "shared"
INT8_MODELS = ("ad", "hello_world", "ic", "kws", "mnist_dw", "mnist_resnet", "mnist_valid", "vww")
FLOAT_MODELS = ("ic", "kws", "mnist_dw", "mnist_resnet", "mnist_valid")
SOME_OR_ALL = [10, pytest.param(200, marks=pytest.mark.long)]

needs_shared = pytest.mark.skipif(not (SHARED / "models").is_dir(), reason="no ../shared/models beside the repository")


@needs_shared
@pytest.mark.parametrize("name", INT8_MODELS)
def test_exported_models_equal_the_files_that_they_came_from(name: str) -> None:
    original = (SHARED / "models" / f"{name}_int8.tflite").read_bytes()
    graph = load_tflite(original)
    before, after = Tflm(original), Tflm(tflite_bytes(graph))
    for values in samples(graph, 8)[graph.inputs[0].name]:
        np.testing.assert_array_equal(before.run([values])[0], after.run([values])[0])
    again = load_tflite(tflite_bytes(graph))
    assert [node.type for node in again.nodes] == [node.type for node in graph.nodes]


def float_samples(name: str) -> Array:
    """Real inputs as the float model takes them: ic 0..255, mnist 0..1, kws features."""
    path = SHARED / "data" / f"{name.split('_')[0]}.npz"
    if not path.exists():
        pytest.skip(f"no ../shared/data/{path.name} beside the repository")
    with np.load(path) as data:
        x = data["x"].astype(np.float32)
    return x / np.float32(255) if name.startswith("mnist") else x


@needs_shared
@pytest.mark.parametrize("count", SOME_OR_ALL)
@pytest.mark.parametrize("level", EFFORTS)
@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_float_models_quantized_here_equal_tflite_micro(name: str, level: str, count: int, tmp_path: Path) -> None:
    """Calibrated on the first 128 samples with an even index; compared on the first with an odd one."""
    x = float_samples(name)
    graph = rlx.load(SHARED / "models" / f"{name}_float.tflite")
    np.savez(tmp_path / "x.npz", x=x)
    calibration = rlx.load_data(tmp_path / "x.npz", graph, samples="0:256:2")
    int8 = rlx.apply_recipe(graph, calibration, EFFORTS[level]).graph
    data = rlx.load_data(tmp_path / "x.npz", int8, samples=f"1:{2 * count + 1}:2")
    ((name, inputs),) = data.inputs.items()
    (found,) = run(with_batch(int8, count), {name: inputs}).values()
    oracle = Tflm(tflite_bytes(int8))
    assert len(inputs) == count
    np.testing.assert_array_equal(found, np.concatenate([oracle.run([values[np.newaxis]])[0] for values in inputs]))
