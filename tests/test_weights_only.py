"""Networks of dense layers whose weights alone are integers in blocks: made here, imported, and run on boards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import rlx_edge
from onnx import TensorProto, helper, numpy_helper
from onnx_models import run_oracle
from test_dequant_matmul import KERNELS, RNG, bits, inputs_of
from test_onnx_int4 import stored

import rlx_edge as rlx
from rlx_edge.cgen.lower_dequant import grouped
from rlx_edge.cgen.planner import make_plan
from rlx_edge.cgen.target import TARGETS
from rlx_edge.data import Data
from rlx_edge.engines import is_float, left_in_float, predict
from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.formats.rlx import load_rlx, save_rlx
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    DequantMatMul,
    MatMul,
    QuantScheme,
    Reshape,
    SchemeKind,
)
from rlx_edge.passes.expand_dequant import dequantized
from rlx_edge.passes.fuse_dequant import fuse_dequant
from rlx_edge.quant.weights_only import quantize_blocks, weights_only
from rlx_edge.reference import run


def mlp(*sizes: int, seed: int = 0, relu: bool = True) -> Graph:
    """Dense layers with biases and, between them, Relu."""
    rng, builder = np.random.default_rng(seed), GraphBuilder("mlp")
    image = builder.input("x", TensorType((1, sizes[0] // 4, 2, 2), DType.F32))
    x = builder.add(Reshape((1, sizes[0])), [image], "flat")
    for i, (k, n) in enumerate(pairwise(sizes)):
        w = builder.param(f"w{i}", rng.normal(0, k**-0.5, (k, n)).astype(np.float32))
        b = builder.param(f"b{i}", rng.normal(size=n).astype(np.float32))
        x = builder.add(Binary(BinaryOp.ADD), [builder.add(MatMul(), [x, w], f"product{i}"), b], f"dense{i}")
        if relu and i + 2 < len(sizes):
            x = builder.add(Activation(ActivationFn.RELU), [x], f"relu{i}")
    return builder.build([x])


# ---- Networks -------------------------------------------------------------------------------------------------------


def test_bias_and_relu_are_one_call() -> None:
    graph = weights_only(mlp(32, 20, 6), 8, 16)
    plan = make_plan(graph, TARGETS["cortex-m4"])
    assert [[call.kernel.name for call in step.calls] for step in plan.steps] == [[], [KERNELS[0]], [KERNELS[0]]]
    first = plan.graph.nodes[plan.steps[1].node]
    assert isinstance(first.op, DequantMatMul) and first.op.clamp == (0.0, np.inf) and len(first.inputs) == 5


def product_then(*ops: tuple[object, Array | None]) -> Graph:
    """A DequantMatMul, and ops on its result with constants."""
    builder = GraphBuilder("chain")
    codes, scales = quantize_blocks(RNG.normal(size=(8, 3)).astype(np.float32), 8, 4)
    operands = [builder.input("x", TensorType((2, 8), DType.F32)), builder.param("w", codes)]
    operands += [builder.param("s", scales), builder.param("z", np.zeros_like(scales))]
    y = builder.add(DequantMatMul(QuantScheme(SchemeKind.INT8_BLOCK, 4)), operands, "p")
    for i, (op, values) in enumerate(ops):
        y = builder.add(op, [y, *([] if values is None else [builder.param(f"c{i}", values)])], f"y{i}")  # type: ignore[arg-type]
    return builder.build([y])


ROW = RNG.normal(size=3).astype(np.float32)
ADD, RELU = Binary(BinaryOp.ADD), Activation(ActivationFn.RELU)


@pytest.mark.parametrize(
    ("ops", "left"),
    [
        ([(ADD, ROW)], 1),
        ([(ADD, ROW), (RELU, None)], 1),
        ([(RELU, None), (Clamp(-1.0, 0.5), None)], 1),
        ([(RELU, None), (ADD, ROW)], 2),  # A bias after bounds is not one before them.
        ([(ADD, ROW), (ADD, ROW)], 2),
        ([(ADD, RNG.normal(size=(2, 1)).astype(np.float32))], 2),
        ([(Binary(BinaryOp.MUL), ROW)], 2),
    ],
)
def test_what_is_fused_and_what_is_not(ops: list[tuple[object, Array | None]], left: int) -> None:
    graph = product_then(*ops)
    fused = fuse_dequant(graph)
    assert sum(bool(node.inputs) for node in fused.nodes) == left
    x = RNG.normal(size=(2, 8)).astype(np.float32)
    (wanted,), (found,) = run(graph, {"x": x}).values(), run(fused, {"x": x}).values()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("width", "block", "least_db"), [(8, 32, 45.0), (8, 64, 44.0), (4, 16, 19.0), (4, 32, 18.0)])
def test_weights_of_a_network_in_few_bits(width: int, block: int, least_db: float) -> None:
    graph = mlp(64, 48, 32, 10, seed=width)
    made = weights_only(graph, width, block)
    assert not is_float(made) and left_in_float(made) == ()
    data = Data({"x": inputs_of(graph, 16)})
    wanted, found = predict(graph, data)["dense2"], predict(made, data, "reference")["dense2"]
    assert 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) >= least_db
    np.testing.assert_array_equal(bits(predict(made, data, "host")["dense2"]), bits(found))


def test_scales_are_no_worse_than_those_of_the_largest_weight() -> None:
    w = RNG.normal(size=(64, 5)).astype(np.float32)
    codes, scales = quantize_blocks(w, 4, 16)
    plain = np.abs(w.reshape(4, 16, 5)).max(axis=1) / 7
    nearest = np.clip(np.rint(w.reshape(4, 16, 5) / plain[:, None]), -7, 7) * plain[:, None]
    found = dequantized(codes, scales, np.zeros_like(scales), 16)
    assert ((found - w) ** 2).sum() < ((nearest.reshape(64, 5) - w) ** 2).sum()
    assert np.abs(codes).max() <= 7


def test_a_network_with_other_layers_stays_float_and_says_so(tmp_path: Path) -> None:
    graph = mlp(16, 4)
    builder = GraphBuilder("gelu")
    ids = [builder.copy(node, [*node.inputs], graph) for node in graph.nodes]
    made = builder.build([builder.add(Activation(ActivationFn.GELU), [ids[-1]], "gelu")])
    quantized = weights_only(made, 8)
    assert is_float(quantized) and [node.name for node in left_in_float(quantized)] == ["gelu"]
    with pytest.raises(UnsupportedError) as caught:
        make_plan(quantized, TARGETS["cortex-m4"])
    assert "operands of f32" in caught.value.problems[0]
    save_rlx(made, tmp_path / "m.rlx")
    done = rlx_edge("convert", tmp_path / "m.rlx", "-o", tmp_path / "q.rlx", "--weights-only", "8")
    assert done.returncode == 0
    assert "warning: left in float32, where devices have no kernel: 1 Activation" in done.stderr
    done = rlx_edge("convert", tmp_path / "m.rlx", "-o", tmp_path / "b.rlx", "--block", "8")
    assert done.returncode == 2 and "--block goes with --weights-only" in done.stderr
    done = rlx_edge("convert", tmp_path / "q.rlx", "-o", tmp_path / "q.onnx")
    assert done.returncode == 2 and "only .rlx files hold such a model" in done.stderr
    assert not (tmp_path / "q.onnx").exists()


def test_a_network_without_dense_layers_is_refused() -> None:
    builder = GraphBuilder("none")
    x = builder.input("x", TensorType((2, 3), DType.F32))
    graph = builder.build([builder.add(RELU, [x], "y")])
    with pytest.raises(ModelError, match="no dense layer with constant weights"):
        weights_only(graph, 8)
    with pytest.raises(ModelError, match="weights of 5 bits in blocks of 32"):
        weights_only(graph, 5)


def test_it_goes_through_a_file_and_can_still_be_made_int8(tmp_path: Path) -> None:
    graph = weights_only(mlp(32, 12, 4), 4, 8)
    save_rlx(graph, tmp_path / "m.rlx")
    again = load_rlx(tmp_path / "m.rlx")
    x = inputs_of(graph, 1)
    (wanted,), (found,) = run(graph, {"x": x}).values(), run(again, {"x": x}).values()
    np.testing.assert_array_equal(bits(found), bits(wanted))
    data = Data({"x": inputs_of(graph, 32)})
    int8 = rlx.quantize(again, rlx.calibrate(again, data))
    assert not is_float(int8) and int8.inputs[0].type.dtype is DType.I8


@pytest.mark.parametrize("block", [1 << 31, 1 << 40])
def test_blocks_larger_than_the_layer_are_the_whole_layer(block: int) -> None:
    """A file may name any size; the kernel's is an int32, and 2^31 made it read outside of its constants."""
    graph = weights_only(mlp(12, 5), 4, block)
    ((node, op),) = ((node, node.op) for node in graph.nodes if isinstance(node.op, DequantMatMul))
    assert op.scheme.block_size == 12
    op = replace(op, scheme=replace(op.scheme, block_size=block))
    named = replace(graph, nodes=tuple(replace(n, op=op) if n is node else n for n in graph.nodes))
    plan = make_plan(named, TARGETS["portable"])
    (call,) = (call for step in plan.steps for call in step.calls)
    assert call.params["block"] == 12


def test_columns_are_packed_in_groups_of_four() -> None:
    values = np.arange(10, dtype=np.int8).reshape(2, 5)
    assert grouped(values).tolist() == [[[0, 1, 2, 3], [5, 6, 7, 8]], [[4, 0, 0, 0], [9, 0, 0, 0]]]


def test_a_network_on_a_board(tmp_path: Path) -> None:
    graph = weights_only(mlp(32, 20, 6), 4, 16)
    rlx.build({"mlp": graph}, "mps2-an386", tmp_path / "build")
    result = rlx.parity(tmp_path / "build", Data({"x": inputs_of(graph, 3)}), layers=True)
    assert result.exact


# ---- ONNX -----------------------------------------------------------------------------------------------------------


def onnx_model(nodes: list[onnx.NodeProto], shape: Sequence[int], constants: dict[str, Array | TensorProto]) -> bytes:
    held = [v if isinstance(v, TensorProto) else numpy_helper.from_array(v, k) for k, v in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "test", [x], [y], held)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    model.graph.output[0].type.tensor_type.shape.SetInParent()
    return bytes(model.SerializeToString())


def assert_product(data: bytes, shape: Sequence[int], scheme: str) -> None:
    """The import has one DequantMatMul, and gives onnxruntime's values."""
    graph = load_onnx(data)
    ops = [node.op for node in graph.nodes if isinstance(node.op, DequantMatMul)]
    assert [str(op.scheme) for op in ops] == [scheme]
    x = RNG.normal(size=shape).astype(np.float32)
    (wanted,) = run_oracle(onnx.load_model_from_string(data), {"x": x})
    np.testing.assert_allclose(run(graph, {"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 32), (2, 3, 32)])
@pytest.mark.parametrize(("bits_", "zero"), [(4, None), (4, "packed"), (4, "float"), (8, None), (8, "packed")])
def test_matmul_nbits(bits_: int, zero: str | None, shape: tuple[int, ...]) -> None:
    n, size, blocks = 5, 16, 2
    constants: dict[str, Array | TensorProto] = {
        "w": RNG.integers(0, 256, (n, blocks, size * bits_ // 8)).astype(np.uint8),
        "s": RNG.uniform(0.01, 0.1, n * blocks).astype(np.float32),
    }
    if zero == "packed":
        constants["z"] = RNG.integers(0, 256, n * -(-blocks * bits_ // 8)).astype(np.uint8)
    elif zero == "float":
        constants["z"] = RNG.integers(0, 16, n * blocks).astype(np.float32)
    attributes = dict(K=32, N=n, bits=bits_, block_size=size)
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **attributes)
    kind = "Int4Block" if bits_ == 4 else "Int8BlockAsym" if zero else "Int8Block"
    assert_product(onnx_model([node], shape, constants), shape, f"{kind}(16)")


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gemm of rows"])
def test_blocks_behind_dequantize_linear(op: str) -> None:
    rows = op.endswith("rows")
    shape, grid = ((5, 32), (5, 2)) if rows else ((32, 5), (2, 5))
    constants: dict[str, Array | TensorProto] = {
        "w": stored("w", RNG.integers(-8, 8, shape).astype(np.int8), TensorProto.INT4),
        "s": RNG.uniform(0.05, 0.2, grid).astype(np.float32),
        "b": RNG.normal(size=5).astype(np.float32),
    }
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=int(rows), block_size=16)]
    operands = ["x", "r"] if op == "MatMul" else ["x", "r", "b"]
    nodes.append(helper.make_node(op.split()[0], operands, ["y"], **({"transB": 1} if rows else {})))
    assert_product(onnx_model(nodes, (3, 32), constants), (3, 32), "Int4Block(16)")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bits": 2}, "bits=2, block_size=16; 4 and 8 bits are supported"),
        ({"K": 48}, "packed uint8[5, 2, 8]; uint8 of 120 elements is needed"),
        ({"N": 4}, "packed uint8[5, 2, 8]; uint8 of 64 elements is needed"),
        ({"block_size": 32}, "scales float32[10]; float32 of 5 elements is needed"),
    ],
)
def test_matmul_nbits_that_does_not_fit(changes: dict[str, int], said: str) -> None:
    constants: dict[str, Array | TensorProto] = {"w": np.zeros((5, 2, 8), np.uint8), "s": np.ones(10, np.float32)}
    attributes = {"K": 32, "N": 5, "bits": 4, "block_size": 16} | changes
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **attributes)
    with pytest.raises(UnsupportedError) as caught:
        load_onnx(onnx_model([node], (3, 32), constants))
    assert said in caught.value.problems[0]
