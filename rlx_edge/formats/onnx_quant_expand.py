"""QLinear ops as what they mean: DequantizeLinear, the float op, QuantizeLinear. One table: op -> its operands.

So one importer serves both of ONNX Runtime's formats, QDQ and QOperator, and `onnx_quant_lower` makes int8 ops of both.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from rlx_edge.formats.onnx_node import RefusedError
from rlx_edge.formats.onnx_quant import MICROSOFT
from rlx_edge.ir import Array


@dataclass(frozen=True)
class Operand:
    """Where a quantized operand, its scale and its zero point are; `axis` of a scale a channel."""

    value: int
    scale: int
    zero: int
    axis: int = 1


@dataclass(frozen=True)
class QLinear:
    """A QLinear op: the float op, its operands, the output's scale (the zero point follows), and its int32 bias."""

    op: str
    operands: tuple[Operand, ...]
    out: int
    bias: int | None = None
    fixed: tuple[tuple[str, int], ...] = ()
    """Attributes that the float op does not have, with the only value that is supported."""


_X = Operand(0, 1, 2)
_LAST = (("channels_last", 0),)

OPS: dict[tuple[str, str], QLinear] = {
    ("", "QLinearConv"): QLinear("Conv", (_X, Operand(3, 4, 5, axis=0)), 6, bias=8),
    ("", "QLinearMatMul"): QLinear("MatMul", (_X, Operand(3, 4, 5)), 6),
    (MICROSOFT, "QLinearConv"): QLinear("Conv", (_X, Operand(3, 4, 5, axis=0)), 6, bias=8, fixed=_LAST),
    (MICROSOFT, "QGemm"): QLinear("Gemm", (_X, Operand(3, 4, 5)), 7, bias=6),
    (MICROSOFT, "QLinearAdd"): QLinear("Add", (_X, Operand(3, 4, 5)), 6),
    (MICROSOFT, "QLinearMul"): QLinear("Mul", (_X, Operand(3, 4, 5)), 6),
    (MICROSOFT, "QLinearAveragePool"): QLinear("AveragePool", (_X,), 3, fixed=_LAST),
    (MICROSOFT, "QLinearGlobalAveragePool"): QLinear("GlobalAveragePool", (_X,), 3, fixed=_LAST),
    (MICROSOFT, "QLinearReduceMean"): QLinear("ReduceMean", (_X,), 3),
    (MICROSOFT, "QLinearSigmoid"): QLinear("Sigmoid", (_X,), 3),
    (MICROSOFT, "QLinearLeakyRelu"): QLinear("LeakyRelu", (_X,), 3),
    (MICROSOFT, "QLinearSoftmax"): QLinear("Softmax", (_X,), 3),
    (MICROSOFT, "QLinearConcat"): QLinear("Concat", (), 0),
}
"""By domain and op type."""


def expand(proto: onnx.NodeProto, known: MutableMapping[str, Array], opset: int) -> list[onnx.NodeProto]:
    """The nodes that a QLinear node stands for; any other node, alone. Scales of biases are added to `known`.

    Raises RefusedError for attributes that the float op cannot express.
    """
    found = OPS.get((proto.domain.replace("ai.onnx", ""), proto.op_type))
    if found is None:
        return [proto]
    if found.op == "Concat":
        found = QLinear("Concat", tuple(Operand(i, i + 1, i + 2) for i in range(2, len(proto.input), 3)), 0)
    if max(o.zero for o in found.operands) >= len(proto.input):
        raise RefusedError("operands are missing")
    attributes = _attributes(proto, found, opset)
    real = [f"{proto.output[0]}.operand_{index}" for index in range(len(found.operands))]
    nodes = [
        _dequantize(proto, [proto.input[i] for i in (o.value, o.scale, o.zero)], name, _weight_axis(o, proto))
        for o, name in zip(found.operands, real, strict=True)
    ]
    if found.bias is not None and found.bias < len(proto.input) and proto.input[found.bias]:
        nodes.append(_bias(proto, found, known))
        real.append(nodes[-1].output[0])
    if found.out >= len(proto.input):
        return [*nodes, _node(proto, found.op, real, proto.output[0], attributes)]
    result = f"{proto.output[0]}.real"
    nodes.append(_node(proto, found.op, real, result, attributes))
    parameters = [name for name in proto.input[found.out : found.out + 2] if name]
    return [*nodes, _node(proto, "QuantizeLinear", [result, *parameters], proto.output[0], ())]


def _node(
    proto: onnx.NodeProto, op: str, inputs: Sequence[str], output: str, attributes: Sequence[onnx.AttributeProto]
) -> onnx.NodeProto:
    node = helper.make_node(op, list(inputs), [output], name=proto.name)
    node.attribute.extend(attributes)
    return node


def _dequantize(proto: onnx.NodeProto, inputs: list[str], output: str, axis: int) -> onnx.NodeProto:
    while len(inputs) > 1 and not inputs[-1]:
        inputs = inputs[:-1]
    return _node(proto, "DequantizeLinear", inputs, output, [helper.make_attribute("axis", axis)])


def _weight_axis(operand: Operand, proto: onnx.NodeProto) -> int:
    """Output channels of Gemm's matrix are its rows where it is transposed."""
    transposed = any(a.name == "transB" and a.i for a in proto.attribute)
    return 0 if transposed else operand.axis


def _bias(proto: onnx.NodeProto, op: QLinear, known: MutableMapping[str, Array]) -> onnx.NodeProto:
    """DequantizeLinear of the int32 bias, whose scale is x_scale * w_scale."""
    assert op.bias is not None
    scales = [known.get(proto.input[operand.scale]) for operand in op.operands]
    if scales[0] is None or scales[1] is None:
        raise RefusedError("its scales are computed by the model; they must be constants")
    if scales[0].size != 1 or scales[1].ndim > 1:
        raise RefusedError(f"scales of shapes {[list(s.shape) for s in scales if s is not None]} are not supported")
    name = f"{proto.output[0]}.bias_scale"
    known[name] = np.asarray(scales[0].reshape(-1) * scales[1].reshape(-1), np.float32)
    if known[name].size == 1:
        known[name] = known[name].reshape(())
    return _dequantize(proto, [proto.input[op.bias], name], f"{proto.output[0]}.bias_real", axis=0)


def _attributes(proto: onnx.NodeProto, op: QLinear, opset: int) -> list[onnx.AttributeProto]:
    kept = []
    for attribute in proto.attribute:
        wanted = dict(op.fixed).get(attribute.name)
        if wanted is not None:
            if attribute.i != wanted:
                raise RefusedError(f"attribute {attribute.name}={attribute.i} is not supported")
        elif op.op == "Softmax" and attribute.name == "opset":
            if (attribute.i < 13) != (opset < 13):
                raise RefusedError(f"attribute opset={attribute.i} in a model of opset {opset} is not supported")
        else:
            kept.append(attribute)
    return kept
