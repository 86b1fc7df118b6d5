"""Models that ONNX Runtime quantizes or runs: the oracle of the rounding rule onnx."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx_models import run_oracle

from rlx_edge.api import load_data
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Leaf, QConv2d, QMatMul, Reduce
from rlx_edge.reference.integer import quant_of
from rlx_edge.reference.run import evaluate
from rlx_edge.reference.windows import correlate, to_nhwc, windows

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"

TIE = 2e-3
"""How near to a tie, in codes, float32 sums of this size may push a result to the other side."""


def digits_floats(part: str, count: int) -> Array:
    """Real-valued samples [count, 1, 1, 8, 8]."""
    data = load_data(DIGITS / f"digits_{part}.npz", load_onnx(DIGITS / "digits.onnx"))
    return np.asarray(data.inputs["x"][:count], np.float32).reshape(count, 1, 1, 8, 8)


def quantize_static(model: onnx.ModelProto, samples: Mapping[str, Array], **options: object) -> onnx.ModelProto:
    """ONNX Runtime's static quantization, calibrated by minimum and maximum on `samples` (by input, first axis)."""
    from onnxruntime.quantization import CalibrationDataReader
    from onnxruntime.quantization import quantize_static as quantize

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            count = len(next(iter(samples.values())))
            self._left: Iterator[dict[str, Array]] = iter({k: v[i] for k, v in samples.items()} for i in range(count))

        def get_next(self) -> dict[str, Array] | None:
            return next(self._left, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save_model(model, source)
        quantize(str(source), str(target), Reader(), **options)
        return onnx.load_model(target)


@cache
def quantized_digits(form: str, activations: str, weights: str, per_channel: bool) -> onnx.ModelProto:
    """The digits example, quantized by ONNX Runtime on 64 samples. form: QDQ or QOperator; types: QInt8 or QUInt8."""
    from onnxruntime.quantization import QuantFormat, QuantType

    return quantize_static(
        onnx.load_model(DIGITS / "digits.onnx"),
        {"x": digits_floats("calibration", 64)},
        quant_format=QuantFormat[form],
        activation_type=QuantType[activations],
        weight_type=QuantType[weights],
        per_channel=per_channel,
    )


def quantized_input(graph: Graph, values: Array) -> Array:
    """Real values as the first input's codes, as QuantizeLinear rounds."""
    quant = quant_of(graph.inputs[0].type)
    steps = np.rint(values.astype(np.float32) / np.float32(quant.scale)) + quant.zero_point
    return np.asarray(np.clip(steps, -128, 127).astype(np.int8))


def dequantized(node: Node, codes: Array) -> Array:
    """An output's codes as the float32 values that the source model has."""
    quant = quant_of(node.type)
    return np.asarray((codes.astype(np.float32) - np.float32(quant.zero_point)) * np.float32(quant.scale))


def all_tensors(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every quantized tensor as onnxruntime computes it without graph optimizations; uint8 moved to int8."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    names = [o.name for o in model.graph.output]
    constants = {t.name for t in model.graph.initializer}
    found = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in constants]
    tapped.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found if name not in names)
    values = dict(zip([o.name for o in tapped.graph.output], run_oracle(tapped, inputs), strict=True))
    return {k: _int8(v) for k, v in values.items() if v.dtype in (np.uint8, np.int8)}


def _int8(values: Array) -> Array:
    return (values.astype(np.int16) - 128).astype(np.int8) if values.dtype == np.uint8 else values


def nodes_that_differ(graph: Graph, theirs: Mapping[str, Array]) -> Iterator[tuple[Node, Array, Array, list[Array]]]:
    """(node, ours, theirs, operands) of each node whose result differs, given onnxruntime's own operands."""
    values: dict[int, Array] = {}
    for node in graph.nodes:
        constant = graph.constant(node)
        if constant is not None:
            values[node.id] = constant
            continue
        held = next((theirs[s] for s in (node.name, *node.sources) if s in theirs), None)
        if isinstance(node.op, Leaf):
            assert held is not None
            values[node.id] = held
            continue
        operands = [values[i] for i in node.inputs]
        ours = evaluate(graph, node, operands)
        values[node.id] = ours if held is None else held
        if held is not None and (ours != held).any():
            yield node, ours, held, operands


def distance_to_tie(graph: Graph, node: Node, operands: list[Array]) -> Array:
    """How far, in codes, the exact result of an op that sums lies from the middle between two codes."""
    op, x = node.op, graph.operand_types(node)[0]
    scale, out = quant_of(x).scale, quant_of(node.type).scale
    if isinstance(op, QConv2d):
        image, w = (to_nhwc(v, op.layout).astype(np.int64) for v in operands[:2])
        sums = correlate(windows(image - op.x_zp, op, 0, op.dilation), w - op.w_zp, op.groups) + operands[2]
        exact = to_nchw(sums * np.array(op.mult)) if op.layout.value == "NCHW" else sums * np.array(op.mult)
    elif isinstance(op, QMatMul):
        rows, w = operands[0].astype(np.int64) - op.x_zp, operands[1].astype(np.int64) - op.w_zp
        exact = (rows @ w + operands[2]) * np.array(op.mult)
    else:
        assert isinstance(op, Reduce)
        centered = operands[0].astype(np.int64) - quant_of(x).zero_point
        exact = centered.mean(axis=op.axes, keepdims=op.keep_dim) * scale / out
    return np.asarray(np.abs(exact - np.floor(exact) - 0.5))


def to_nchw(x: Array) -> Array:
    return x.transpose(0, 3, 1, 2)
