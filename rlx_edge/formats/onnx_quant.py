"""Quantized ONNX in: QuantizeLinear, DequantizeLinear, and what scales and zero points say.

Unsigned integers become signed, exactly (formats/onnx_integers.py). Constants keep their integers: weights of 8, 4 or 2
bits become parameters with a Dequantize, float weights with a QuantizeLinear after them (as quantization-aware training
exports them) are quantized here, as ONNX defines it. `onnx_quant_lower` makes the int8 graph of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.helper

from rlx_edge.formats.onnx_blocks import blocks_of
from rlx_edge.formats.onnx_integers import ACTIVATIONS, CODES, to_int8
from rlx_edge.formats.onnx_node import Builder, OnnxNode, RefusedError, Tensors
from rlx_edge.ir import Array, DType, QuantParams, Requant
from rlx_edge.ir.ops import Dequantize, Quantize

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own ops."""

DYNAMIC = ("ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
"""Ops of dynamic quantization, whose scales are worked out while the model runs."""

INTEGERS: dict[int, np.dtype[np.generic]] = {
    onnx.TensorProto.INT8: np.dtype(np.int8),
    onnx.TensorProto.UINT8: np.dtype(np.uint8),
}


def refuse_dynamic(node: OnnxNode) -> int:
    raise RefusedError(
        "dynamic quantization is not supported: its scales follow the data while the model runs; quantize the float "
        "model here, or with static (calibrated) scales"
    )


def quant_params(node: OnnxNode, scale: int, zero: int, rank: int | None = None, axis: int = 1) -> QuantParams:
    """The parameters that two operands of a node give, moved to int8. `rank`: of a tensor that may have one scale a
    channel, along `axis`; None: of one that may not.

    Raises RefusedError for computed or half-precision scales, for other integer types than int8 and uint8, and for
    scales that are not positive numbers.
    """
    scales, zeros = _scale_and_zero(node, scale, zero)
    if zeros.dtype.name not in ACTIVATIONS:
        which = "of computed tensors " if zeros.dtype.name in CODES else ""
        raise RefusedError(f"{zeros.dtype} integers {which}are not supported; int8 and uint8 are")
    values = tuple(int(z) for z in to_int8(zeros).reshape(-1))
    return _params(node, scales, values, rank, axis)


def _scale_and_zero(node: OnnxNode, scale: int, zero: int) -> tuple[Array, Array]:
    scales = node.constant(scale, "the scale")
    if scales.dtype != np.float32:
        raise RefusedError(f"a scale of {scales.dtype} is not supported; float32 is")
    if not node.given(zero):
        return scales, np.zeros(scales.shape, np.uint8)  # ONNX's default
    return scales, node.constant(zero, "the zero point")


def _params(node: OnnxNode, scales: Array, zeros: tuple[int, ...], rank: int | None, axis: int) -> QuantParams:
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise RefusedError(f"a scale of {float(scales.reshape(-1)[0]):g} is no positive number")
    if scales.ndim > 1:
        raise RefusedError(f"scales of shape {list(scales.shape)} (a scale a block) are not supported")
    if scales.size == 0 or len(zeros) not in (1, scales.size):
        raise RefusedError(f"{len(zeros)} zero points for {scales.size} scales")
    if scales.size == 1:
        return QuantParams.per_tensor(float(scales.reshape(())), zeros[0])
    if rank is None:
        raise RefusedError(f"{scales.size} scales on a tensor that the model computes; one is supported")
    zeros = zeros * scales.size if len(zeros) == 1 else zeros
    return QuantParams(tuple(float(s) for s in scales), zeros, axis % rank)


def _axis(node: OnnxNode) -> int:
    """The axis of a scale a channel. Marks what the attributes must not say."""
    node.without_effect("saturate")  # It is about float8.
    if node.integer("block_size", 0):
        raise RefusedError("attribute block_size is not supported: one scale a tensor or a channel is")
    for name in ("output_dtype", "precision"):
        if node.integer(name, 0) not in (0, onnx.TensorProto.FLOAT, onnx.TensorProto.INT8, onnx.TensorProto.UINT8):
            raise RefusedError(f"attribute {name} is not supported but for float32, int8 and uint8")
    return node.integer("axis", 1)


def quantize_linear(node: OnnxNode) -> int:
    """Quantize, or, of an int8 tensor that stands for real values, a change of its parameters."""
    declared = next((a.i for a in node.proto.attribute if a.name == "output_dtype"), 0)
    _axis(node)
    if not node.given(2) and declared == onnx.TensorProto.INT8:
        scales, _ = _scale_and_zero(node, 1, 2)
        quant = _params(node, scales, (0,), None, 1)
    else:
        quant = quant_params(node, 1, 2)
    return node.quantized(Quantize.to(quant, Requant.ONNX), [node.operand(0)], quant)


def dequantize_linear(node: OnnxNode) -> int:
    """Dequantize of a parameter, or of a computed int8 tensor, whose parameters must be these."""
    axis = _axis(node)
    values = node.known(0)
    if values is not None:
        quant, integers, dtype = _constant(node, values, axis)
        name = node.proto.input[0]
        held = node.tensors.builder.param(name, integers, quant, (name,), dtype)
        return node.result(Dequantize.of(quant), [held])
    x = node.operand(0)
    held_quant = node.tensors.builder[x].type.quant
    if held_quant is None:
        raise RefusedError("its operand is not a tensor of quantized values")
    if node.given(2):
        quant = quant_params(node, 1, 2)
    else:
        quant = _params(node, _scale_and_zero(node, 1, 2)[0], held_quant.zero_points, None, axis)
    if quant != held_quant:
        raise RefusedError("its scale or zero point is not the one that its operand was quantized with")
    return node.result(Dequantize.of(quant), [x])


def _constant(node: OnnxNode, values: Array, axis: int) -> tuple[QuantParams, Array, DType]:
    """Parameters and int8 values of a constant, and what these are stored as."""
    if values.dtype.name not in CODES:
        raise RefusedError(
            f"constants of {values.dtype} are not supported; {', '.join(CODES)} and, for a bias, int32 are"
        )
    scales, zeros = _scale_and_zero(node, 1, 2)
    zeros = zeros if node.given(2) else np.zeros(scales.shape, values.dtype)
    if zeros.dtype != values.dtype:
        raise RefusedError(f"a zero point of {zeros.dtype} for values of {values.dtype}")
    moved = tuple(int(z) for z in to_int8(zeros).reshape(-1))
    quant = _params(node, scales, moved, values.ndim, axis)
    dtype = CODES[values.dtype.name].dtype
    found = quant.problems(values.shape, dtype)
    if found:
        raise RefusedError(" and ".join(found))
    return quant, np.ascontiguousarray(to_int8(values)), dtype


FOLDED = ("QuantizeLinear", "DequantizeLinear")


class KnownIntegers:
    """int32 constants behind a DequantizeLinear (biases), which float builders see as their real values."""

    def __init__(self) -> None:
        self._integers: dict[str, tuple[Array, Array]] = {}
        self.biases: dict[str, tuple[Array, Array]] = {}
        """Integers and their scales, both flat, by the name (in our graph) of the result that they are added to."""

    def note(self, node: OnnxNode) -> None:
        """Remember the int32 bias that a node reads."""
        for name in node.proto.input:
            if name in self._integers:
                self.biases[node.name] = self._integers[name]

    def fold(self, proto: onnx.NodeProto, tensors: Tensors) -> dict[str, Array] | None:
        """The outputs of a QuantizeLinear on constants, or of a DequantizeLinear on an int32 constant; else None."""
        values = [tensors.known.get(name) if name else None for name in proto.input]
        if any(v is None for v, name in zip(values, proto.input, strict=True) if name) or len(values) < 2:
            return None
        x, scale = values[0], values[1]
        assert x is not None and scale is not None
        zero = values[2] if len(values) > 2 else None
        axis = next((a.i for a in proto.attribute if a.name == "axis"), 1)
        block = next((a.i for a in proto.attribute if a.name == "block_size"), 0)
        if block and proto.op_type == "DequantizeLinear" and x.dtype.name in CODES:
            tensors.blocks[proto.output[0]] = blocks_of(x, scale, zero, axis, block)
            return {proto.output[0]: tensors.blocks[proto.output[0]].real}
        if block or x.dtype not in (np.float32, np.int32) or scale.dtype != np.float32 or scale.ndim > 1:
            return None
        if zero is not None and zero.size not in (1, scale.size):
            raise RefusedError(f"{zero.size} zero points for {scale.size} scales")
        if scale.size not in (1, *(x.shape[axis : axis + 1] if -x.ndim <= axis < x.ndim else ())):
            raise RefusedError(f"{scale.size} scales for a tensor of shape {list(x.shape)} along axis {axis}")
        if proto.op_type == "QuantizeLinear" and x.dtype == np.float32:
            return {proto.output[0]: _quantized(x, scale, _zero_like(proto) if zero is None else zero, axis)}
        if proto.op_type == "DequantizeLinear" and x.dtype == np.int32:
            if zero is not None and zero.any():
                raise RefusedError("an int32 constant with a zero point other than 0 is not supported")
            self._integers[proto.output[0]] = x.reshape(-1), scale.reshape(-1)
            return {proto.output[0]: x.astype(np.float32) * _along(scale, x.ndim, axis)}
        return None


def _along(values: Array, rank: int, axis: int) -> Array:
    shape = [1] * rank
    if values.size > 1:
        shape[axis] = values.size
    return values.reshape(shape)


def _zero_like(proto: onnx.NodeProto) -> Array:
    """The zero point of a QuantizeLinear that has none: 0 of its output's type, uint8 where that is not said."""
    kind = next((a.i for a in proto.attribute if a.name == "output_dtype" and a.i), onnx.TensorProto.UINT8)
    return np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(kind))


def _quantized(x: Array, scale: Array, zero: Array, axis: int) -> Array:
    """saturate(round(x / scale) + zero_point), the division in float32, ties to even."""
    if zero.dtype.name not in CODES:
        raise RefusedError(f"{zero.dtype} integers are not supported; {', '.join(CODES)} are")
    if not (np.isfinite(scale).all() and (scale > 0).all() and np.isfinite(x).all()):
        raise RefusedError("a constant or its scale is NaN, infinite or not positive")
    with np.errstate(over="ignore"):
        steps = np.rint(x / _along(scale, x.ndim, axis)).astype(np.float64)
    low, high = CODES[zero.dtype.name].limits
    codes = steps.clip(-1e6, 1e6) + _along(zero.astype(np.int16), x.ndim, axis)
    return np.asarray(np.clip(codes, low, high).astype(zero.dtype))


def input_quant(graph: onnx.GraphProto, value: onnx.ValueInfoProto, known: Mapping[str, Array]) -> QuantParams | None:
    """The parameters of an int8 or uint8 model input, which are those of the op that reads it; None where no op says
    what its integers mean, or where it holds something else."""
    kind = INTEGERS.get(value.type.tensor_type.elem_type)
    if kind is None:
        return None
    names = {value.name}
    for node in graph.node:
        if node.op_type in MOVING and names & set(node.input):
            names |= set(node.output)
        for index, operand in enumerate(node.input[:-1]):
            if operand in names and node.op_type.startswith(("DequantizeLinear", "QLinear", "QGemm")):
                scale = known.get(node.input[index + 1])
                zero = known.get(node.input[index + 2]) if index + 2 < len(node.input) else np.zeros((), kind)
                if scale is not None and zero is not None and scale.size == zero.size == 1:
                    return QuantParams.per_tensor(float(scale.reshape(())), int(to_int8(zero).reshape(())))
    return None


MOVING = ("Concat", "Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Ops that an int8 input may go through before an op says what its integers mean."""

OPS: dict[str, Builder] = {
    **{f"{domain}QuantizeLinear": quantize_linear for domain in ("", f"{MICROSOFT}.")},
    **{f"{domain}DequantizeLinear": dequantize_linear for domain in ("", f"{MICROSOFT}.")},
    **{f"{domain}{op}": refuse_dynamic for domain in ("", f"{MICROSOFT}.") for op in DYNAMIC},
}
"""ONNX op type -> builder; an op of another domain stands under `domain.type`."""
