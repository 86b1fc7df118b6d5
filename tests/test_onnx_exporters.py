"""Graphs as Keras' exporter (tf2onnx) writes them: imported, prepared and quantized like those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import make_model, random_array, run_oracle

from rlx_edge.data import Data
from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, DType, Graph
from rlx_edge.ir.ops import Activation, Conv, Input, Param, QConv2d, QMatMul, Reshape, Transpose
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference import run
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32

I64 = np.int64


@dataclass
class Writer:
    """Writes nodes one after the other, each reading the one before."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    last: str = "x"

    def add(self, op: str, *constants: Any, first: Sequence[str] | None = None, **attributes: Any) -> str:
        """A node on the last tensor (or on those of `first`) and constants; returns its output's name."""
        names = list(first or [self.last])
        for values in constants:
            names.append(f"c{len(self.constants)}")
            self.constants[names[-1]] = np.asarray(values)
        self.last = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [self.last], **attributes))
        return self.last

    def conv(self, c_in: int, c_out: int, kernel: int, groups: int = 1, **attributes: Any) -> str:
        weights = random_array((c_out, c_in // groups, kernel, kernel), len(self.nodes)) / (kernel * c_in**0.5)
        return self.add("Conv", weights.astype(np.float32), group=groups, **attributes)

    def model(self, shape: Sequence[int | str], opset: int) -> onnx.ModelProto:
        return make_model(self.nodes, {"x": shape}, [self.last], self.constants, opset)


def mobile(opset: int) -> onnx.ModelProto:
    """NHWC input moved to NCHW, explicit Pad before a strided Conv, BatchNorm as Mul and Add, ReLU6 as Min and Max, a
    depthwise block, mean over NHWC, Squeeze, Gemm as MatMul and Add, Softmax taken apart."""
    w = Writer()
    w.add("Transpose", perm=[0, 3, 1, 2])
    w.add("Pad", np.array([0, 0, 0, 0, 0, 0, 1, 1], I64), np.float32(0))
    w.conv(3, 8, 3, strides=[2, 2])
    w.add("Mul", random_array((1, 8, 1, 1), 90) * 0.2 + 1)
    w.add("Add", random_array((1, 8, 1, 1), 91))
    w.add("Min", np.float32(6))
    block = w.add("Max", np.float32(0))
    w.conv(8, 8, 3, groups=8, pads=[1, 1, 1, 1])
    w.add("Add", random_array((8, 1, 1), 92))
    w.add("Relu")
    w.conv(8, 8, 1)
    w.add("Add", first=[w.last, block])
    w.add("Transpose", perm=[0, 2, 3, 1])
    axes = {"axes": [1, 2]} if opset < 18 else {}
    w.add("ReduceMean", *([np.array([1, 2], I64)] if opset >= 18 else []), keepdims=1, **axes)
    if opset < 13:
        w.add("Squeeze", axes=[1, 2])
    else:
        w.add("Squeeze", np.array([1, 2], I64))
    w.add("MatMul", random_array((8, 5), 93))
    logits = w.add("Add", random_array((5,), 94))
    most = w.add(
        "ReduceMax", *([np.array([1], I64)] if opset >= 18 else []), keepdims=1, **({"axes": [1]} if opset < 18 else {})
    )
    w.add("Sub", first=[logits, most])
    powers = w.add("Exp")
    total = w.add(
        "ReduceSum", *([np.array([1], I64)] if opset >= 13 else []), keepdims=1, **({"axes": [1]} if opset < 13 else {})
    )
    w.add("Div", first=[powers, total])
    return w.model(("batch", 12, 12, 3), opset)


def flattened(opset: int) -> onnx.ModelProto:
    """A LeNet of Keras: pools, a Transpose back to NHWC before the Reshape, dense layers, shapes worked out."""
    w = Writer()
    w.add("Reshape", np.array([-1, 1, 10, 10], I64))
    w.conv(1, 4, 3)
    w.add("BatchNormalization", *(np.abs(random_array((4,), 80 + i)) + 0.1 for i in range(4)), epsilon=1e-3)
    w.add("Relu")
    w.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    w.add("Transpose", perm=[0, 2, 3, 1])
    source = w.last
    w.add("Shape")
    w.add("Slice", np.array([0], I64), np.array([1], I64), np.array([0], I64))
    shape = w.add("Concat", np.array([-1], I64), axis=0)
    w.add("Reshape", first=[source, shape])
    w.add("MatMul", random_array((64, 10), 95) / 8)
    w.add("Add", random_array((10,), 96))
    w.add("Sigmoid")
    w.add("MatMul", random_array((10, 3), 97))
    return w.model(("batch", 10, 10, 1), opset)


MODELS: Mapping[str, Callable[[int], onnx.ModelProto]] = {"mobile": mobile, "flattened": flattened}


def check(model: onnx.ModelProto, shape: Sequence[int]) -> tuple[Graph, Array]:
    """The imported and the prepared graph equal onnxruntime."""
    x = random_array(shape, 5)
    expected = run_oracle(model, {"x": x})
    graph = load_onnx(model.SerializeToString())
    for stage in (graph, prepare(graph)):
        for found, wanted in zip(run(stage, {"x": x}).values(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    return graph, x


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
@pytest.mark.parametrize("name", MODELS)
def test_keras_graphs_equal_onnxruntime(name: str, opset: int) -> None:
    check(MODELS[name](opset), (1, 12, 12, 3) if name == "mobile" else (1, 10, 10, 1))


def test_nothing_is_left_of_what_the_exporter_wrapped_around() -> None:
    """Input and dense layers in NHWC: no Transpose stays, and BatchNorm's factors are in the convolutions."""
    for make, shape in ((mobile, (1, 12, 12, 3)), (flattened, (1, 10, 10, 1))):
        graph = prepare(check(make(17), shape)[0])
        kinds = [type(node.op) for node in graph.nodes if not isinstance(node.op, Input | Param)]
        assert Transpose not in kinds
        assert kinds.count(Reshape) <= 2


@pytest.mark.parametrize("name", MODELS)
def test_keras_graphs_quantize(name: str) -> None:
    graph = prepare(load_onnx(MODELS[name](17).SerializeToString()))
    (entry,) = graph.inputs
    samples = random_array((16, *entry.type.shape[1:]), 7)
    int8 = quantize(graph, calibrate(graph, Data({entry.name: samples})))
    assert any(isinstance(node.op, QConv2d) for node in int8.nodes)
    assert any(isinstance(node.op, QMatMul) for node in int8.nodes)
    assert not any(isinstance(node.op, Conv) for node in int8.nodes)
    x = samples[:1]
    (wanted,) = run(graph, {entry.name: x}).values()
    first, last = int8.inputs[0].type, int8.output_nodes[0].type
    codes = x if first.dtype is DType.F32 else quantize_f32(x, first.quant)  # type: ignore[arg-type]
    (found,) = run(int8, {int8.inputs[0].name: codes}).values()
    real = found if last.dtype is DType.F32 else dequantize_f32(found, last.quant)  # type: ignore[arg-type]
    assert 10 * np.log10(np.sum(wanted**2) / np.sum((wanted - real) ** 2)) > 20


def test_symbolic_axes_are_bound_by_name() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    data = make_model([relu], {"x": ("n", 3, "height", "width")}, ["y"]).SerializeToString()
    graph = load_onnx(data, dims={"height": 5, "width": 4})
    assert graph.inputs[0].type.shape == (1, 3, 5, 4)
    assert load_onnx(data, dims={"n": 2, "height": 5, "width": 4}).inputs[0].type.shape == (2, 3, 5, 4)
    with pytest.raises(UnsupportedError, match=r"at axis 3 \(width\);.*--dim width=SIZE"):
        load_onnx(data, dims={"height": 5})
    with pytest.raises(UnsupportedError, match="no elements along axis 2"):
        load_onnx(data, dims={"height": -5, "width": 4})
    with pytest.raises(UnsupportedError, match="more than 67108864 elements"):
        load_onnx(data, dims={"height": 1 << 20, "width": 1 << 20})


def test_function_of_the_file_is_imported_as_its_body() -> None:
    """As the newer exporter writes them: a domain of its own, an attribute handed on, another function called."""
    inner = helper.make_function(
        "local", "Scaled", ["a"], ["b"],
        [helper.make_node("Constant", [], ["k"]), helper.make_node("Mul", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 17)], ["factor"],
    )  # fmt: skip
    inner.node[0].attribute.add(name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT)
    outer = helper.make_function(
        "local", "Twice", ["a"], ["c"],
        [helper.make_node("Scaled", ["a"], ["b"], domain="local", factor=3.0),
         helper.make_node("Scaled", ["b"], ["c"], domain="local", factor=-2.0)],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )  # fmt: skip
    nodes = [helper.make_node("Twice", ["x"], ["b"], domain="local"), helper.make_node("Relu", ["b"], ["y"])]
    model = make_model(nodes, {"x": (2, 3)}, ["y"])
    model.functions.extend([inner, outer])
    check(model, (2, 3))


def test_functions_that_grow_without_end_are_refused() -> None:
    """Sixteen functions that each call the next one twice would make 65,536 nodes of a small file."""
    functions = []
    for level in range(20):
        call = "Relu" if level == 19 else f"F{level + 1}"
        domain = "" if level == 19 else "local"
        body = [helper.make_node(call, [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        functions.append(helper.make_function("local", f"F{level}", ["a"], ["c"], body, imports))
    model = make_model([helper.make_node("F0", ["x"], ["y"], domain="local")], {"x": (2,)}, ["y"])
    model.functions.extend(functions)
    with pytest.raises(UnsupportedError, match="nested too deeply or make too many nodes"):
        load_onnx(model.SerializeToString())


def test_known_condition_chooses_a_branch() -> None:
    """PyTorch's older exporter asks for a shape before a Squeeze; names inside the branch do not meet those outside."""
    then = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["u"])], "then", [],
        [helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["v"])], "other", [],
        [helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Equal", ["s", "three"], ["c"]),
        helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=other),
        helper.make_node("Abs", ["x"], ["t2"]),
        helper.make_node("Add", ["b", "t2"], ["y"]),
    ]
    model = make_model(nodes, {"x": (3,)}, ["y"], {"three": np.array([3], I64)})
    graph, _ = check(model, (3,))
    assert sum(isinstance(node.op, Activation) for node in graph.nodes) == 3
