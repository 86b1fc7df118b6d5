"""int8 graphs to `.onnx`, in the QDQ form: DequantizeLinear, a float op, QuantizeLinear.

Inputs and outputs stay int8 tensors; layouts stay as they are, with int8 transposes around the convolutions and
pools of NHWC graphs. onnxruntime runs the file, and `load_onnx` reads it back to the same function under the rule onnx.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.checker
from onnx import helper, numpy_helper

from rlx_edge.errors import UnsupportedError
from rlx_edge.files import replacing
from rlx_edge.formats.export_onnx_ops import OPS, Exporter
from rlx_edge.ir import Array, DType, Graph, Node, subbyte
from rlx_edge.ir.ops import Input, Leaf

OPSET, IR_VERSION = 17, 8
"""Old enough for every runtime in use; HardSwish needs 14."""

INT4_OPSET, INT4_IR_VERSION = 21, 10
"""The first with DequantizeLinear of int4."""

ELEMENTS = {DType.F32: onnx.TensorProto.FLOAT, DType.I8: onnx.TensorProto.INT8}


def onnx_bytes(graph: Graph) -> bytes:
    """The graph as an ONNX model: int8 weights with a scale per channel, int32 biases, QDQ around each op.

    It is of opset 17, or of 21 where there are weights of 4 or 2 bits, which are int4 there.

    The file computes by ONNX's rounding, whatever rule the graph is under: exported from another rule than onnx, a
    result may differ by one code where the rules round differently. Raises UnsupportedError listing every node that
    ONNX cannot express.
    """
    exporter = Exporter(graph, INT4_OPSET if any(_is_narrow(node) for node in graph.nodes) else OPSET)
    problems = []
    for node in graph.nodes:
        if isinstance(node.op, Leaf):
            continue
        try:
            builder = OPS.get(type(node.op))
            if builder is None:
                raise UnsupportedError(f"{node.op.kind_name} has no form in ONNX's QDQ here")
            builder(exporter, node)
        except UnsupportedError as error:
            problems.append(f"{node}: {error}")
    problems += [f"{node}: the output is a constant" for node in graph.output_nodes if isinstance(node.op, Leaf)]
    problems += [
        f"{node}: a tensor of {node.type.dtype.value}; int8 and float32 are exported"
        for node in graph.nodes
        if not (isinstance(node.op, Leaf) and not isinstance(node.op, Input)) and node.type.dtype not in ELEMENTS
    ]
    if problems:
        raise UnsupportedError(f"{graph.name!r} cannot be exported to ONNX:", problems)
    return bytes(_model(graph, exporter).SerializeToString(deterministic=True))


def save_onnx(graph: Graph, path: Path) -> None:
    """Write `onnx_bytes(graph)`, whole or not at all. Raises EdgeError too for a path that cannot be written."""
    data = onnx_bytes(graph)
    with replacing(Path(path)) as file:
        file.write(data)


def _model(graph: Graph, exporter: Exporter) -> onnx.ModelProto:
    proto = helper.make_graph(
        exporter.nodes,
        graph.name,
        [_value(node) for node in graph.inputs],
        [_value(node) for node in graph.output_nodes],
        [_constant(name, values, name in exporter.int4) for name, values in exporter.constants.items()],
    )
    model = helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", exporter.opset)],
        ir_version=IR_VERSION if exporter.opset == OPSET else INT4_IR_VERSION,
        producer_name="rlx-edge",
    )
    onnx.checker.check_model(model)
    return model


def _is_narrow(node: Node) -> bool:
    return node.type.dtype.bits < 8


def _constant(name: str, values: Array, int4: bool) -> onnx.TensorProto:
    if not int4:
        return numpy_helper.from_array(np.asarray(values), name)
    packed = subbyte.pack(values, 4).tobytes()
    return helper.make_tensor(name, onnx.TensorProto.INT4, values.shape, packed, raw=True)


def _value(node: Node) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(node.name, ELEMENTS[node.type.dtype], node.type.shape)
