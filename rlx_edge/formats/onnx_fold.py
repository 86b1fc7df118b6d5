"""Work out ONNX nodes on known values, within a limit on how much that may make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference

from rlx_edge.formats.onnx_integers import PACKED_BITS
from rlx_edge.formats.onnx_node import RefusedError
from rlx_edge.ir import Array, Shape

FOLD_LIMIT = 1 << 24
"""Elements that the folded nodes of a model may make together: far more than a microcontroller's weights."""

NOT_FUNCTIONS = ("Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike", "Dropout")
"""Ops whose result does not follow from their inputs alone (Dropout is left to its builder)."""

_NO_LARGER: Mapping[str, int] = {"Compress": 1, "NonZero": 8, "Unique": 1}
"""Ops whose result's size depends on the values: its elements for one of the operand, at most (NonZero: the rank)."""


def stored_values(tensor: onnx.TensorProto) -> Array:
    """Raises RefusedError for values that cannot be read."""
    try:
        _check_packed(tensor)
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except KeyError:
        raise RefusedError(f"ONNX has no data type {tensor.data_type}") from None
    except (ValueError, TypeError) as error:
        raise RefusedError(f"its values cannot be read: {first_line(error)}") from error


def _check_packed(tensor: onnx.TensorProto) -> None:
    """Raises RefusedError for another number of bytes than packed values take, of which ONNX reads the first."""
    bits = PACKED_BITS.get(tensor.data_type)
    if bits is None:
        return
    held, count = len(tensor.raw_data) or len(tensor.int32_data), math.prod(tensor.dims)
    if held != (count * bits + 7) // 8:
        raise RefusedError(f"its values cannot be read: {held} bytes for {count} values of {bits} bits")


_CONSTANTS: Mapping[str, Callable[[onnx.AttributeProto], Array]] = {
    "value": lambda a: stored_values(a.t),
    "value_float": lambda a: np.array(a.f, np.float32),
    "value_floats": lambda a: np.array(a.floats, np.float32),
    "value_int": lambda a: np.array(a.i, np.int64),
    "value_ints": lambda a: np.array(a.ints, np.int64),
}
"""The forms of Constant: they are in the file already and make nothing new."""

_SMALL = 64
"""Operands of more elements say nothing of the result's shape."""


class Folder:
    """Evaluates nodes with ONNX's own reference implementation. One for each model: it keeps count of the elements."""

    def __init__(self) -> None:
        self._room = FOLD_LIMIT

    def evaluate(self, proto: onnx.NodeProto, inputs: Mapping[str, Array], opset: int) -> dict[str, Array]:
        """The node's outputs by name. Raises RefusedError when they cannot be worked out, or would be too large."""
        from onnx.reference import ReferenceEvaluator  # Only some models need it, and it is slow to import.

        if proto.op_type == "Constant" and proto.attribute[0].name in _CONSTANTS:
            return {proto.output[0]: _CONSTANTS[proto.attribute[0].name](proto.attribute[0])}
        elements = _elements(proto, inputs, opset)
        if elements > self._room:
            raise RefusedError(f"the model's constants grow beyond {FOLD_LIMIT} elements when they are worked out")
        self._room -= elements
        try:
            with np.errstate(all="ignore"):
                results = list(ReferenceEvaluator(proto, opsets={"": opset}).run(None, dict(inputs)))
        except Exception as error:  # The evaluator checks little, so that bad operands raise nearly anything.
            raise RefusedError(f"cannot be worked out on constants: {first_line(error)}") from error
        return {name: np.asarray(value) for name, value in zip(proto.output, results, strict=False) if name}


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _elements(proto: onnx.NodeProto, inputs: Mapping[str, Array], opset: int) -> int:
    """How many elements a node makes, before it makes them."""
    if proto.op_type in _NO_LARGER:
        return _NO_LARGER[proto.op_type] * max(values.size for values in inputs.values())
    if any(a.name == "num_outputs" and a.i != len(proto.output) for a in proto.attribute):
        raise RefusedError("attribute num_outputs is not the number of its outputs")  # ONNX's inference would crash.
    shapes = _output_shapes(proto, inputs, opset)
    if shapes is None:
        raise RefusedError("the size of its result cannot be told ahead of time; fold it before exporting the model")
    return sum(math.prod(shape) for shape in shapes)


def _output_shapes(proto: onnx.NodeProto, inputs: Mapping[str, Array], opset: int) -> list[Shape] | None:
    """The shapes of a node's outputs by ONNX's shape inference, or None where they depend on values."""
    try:
        types = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for name, v in inputs.items()
        ]
        values = [onnx.numpy_helper.from_array(v, name) for name, v in inputs.items() if v.size <= _SMALL]
        outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
        graph = onnx.helper.make_graph([proto], "fold", types, outputs, values)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        found = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.output
    except Exception as error:  # As above: ONNX's own code on a file's values.
        raise RefusedError(f"cannot be worked out on constants: {first_line(error)}") from error
    shapes = []
    for output in found:
        tensor = output.type.tensor_type
        if not tensor.HasField("shape") or any(
            not d.HasField("dim_value") or d.dim_value < 0 for d in tensor.shape.dim
        ):
            return None
        shapes.append(tuple(d.dim_value for d in tensor.shape.dim))
    return shapes
