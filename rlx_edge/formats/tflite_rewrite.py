"""What happens to a file's records before they become a graph: uint8 becomes int8, and what converts between equal
things goes away. The integers that a model computes stay the same.

- UINT8 tensors become INT8 ones: 128 less in every value and zero point stands for the same real number. An operator
  that computed uint8 gets the rounding rule `tflite_uint8`, the arithmetic of tflite-runtime's uint8 kernels.
- A QUANTIZE between equal parameters, and a DEQUANTIZE followed by a QUANTIZE to the same parameters, change nothing
  and are left out. ((q - z) * s / s, rounded to float32 twice, is within 2^-15 of q - z.)
- A model that is int8 inside becomes one with int8 inputs and outputs: a QUANTIZE right after a float input and a
  DEQUANTIZE right before a float output are left out. The converter puts them there by default; on a
  microcontroller they would only cost memory. Data given as real numbers is quantized on the way in by the formula of
  that QUANTIZE (reference/fixedpoint.py: quantize_f32), so results are the same. The tensors keep the names of the
  float inputs and outputs, the model's interface.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rlx_edge.formats.tflite_file import FileModel, FileOperator, FileTensor

OFFSET = 128


def rewritten(model: FileModel) -> FileModel:
    """The model with int8 instead of uint8, and without conversions that change nothing."""
    return _without_float_borders(_without_idle_conversions(_as_int8(model)))


# ---- uint8 ----------------------------------------------------------------------------------------------------------


def _as_int8(model: FileModel) -> FileModel:
    types = [tensor.type_name for tensor in model.tensors]
    if "UINT8" not in types:
        return model
    operators = tuple(_marked(op, types) for op in model.operators)
    return replace(model, tensors=tuple(map(_signed, model.tensors)), operators=operators)


def _marked(op: FileOperator, types: Sequence[str]) -> FileOperator:
    """The operator, and whether it computes uint8, or mixes it with int8 as only conversions may."""
    found = {types[i] for i in (*op.inputs, *op.outputs) if i >= 0}
    mixed = found >= {"UINT8", "INT8"} and op.kind != "QUANTIZE"
    return replace(op, was_uint8=any(types[i] == "UINT8" for i in op.outputs), mixed=mixed)


def _signed(tensor: FileTensor) -> FileTensor:
    """A quantized UINT8 tensor as INT8; any other as it is."""
    if tensor.type_name != "UINT8" or tensor.quant is None or tensor.quant.custom:
        return tensor
    zeros = tuple(zero - OFFSET for zero in tensor.quant.zero_points)
    data = (np.frombuffer(tensor.data, np.uint8) ^ OFFSET).tobytes()
    quant = replace(tensor.quant, zero_points=zeros)
    return replace(tensor, type_name="INT8", quant=quant, data=data)


# ---- Conversions ----------------------------------------------------------------------------------------------------


def _one_to_one(op: FileOperator, kind: str) -> bool:
    return op.kind == kind and len(op.inputs) == 1 == len(op.outputs) and op.inputs[0] >= 0


def _same_values(a: FileTensor, b: FileTensor) -> bool:
    """Whether two int8 tensors of one shape stand for the same real numbers, code by code."""
    if a.type_name != "INT8" or b.type_name != "INT8" or a.quant is None or b.quant is None:
        return False
    same = (a.quant.scales, a.quant.zero_points) == (b.quant.scales, b.quant.zero_points)
    return same and len(a.quant.scales) == 1 and not a.quant.custom and not b.quant.custom and a.shape == b.shape


def _without_idle_conversions(model: FileModel) -> FileModel:
    tensors = model.tensors
    made_by = {op.outputs[0]: op for op in model.operators if len(op.outputs) == 1}
    stands_for: dict[int, int] = {}
    for op in model.operators:
        if not _one_to_one(op, "QUANTIZE"):
            continue
        source, before = op.inputs[0], made_by.get(op.inputs[0])
        if before is not None and _one_to_one(before, "DEQUANTIZE"):
            source = before.inputs[0]
        source, result = _final(stands_for, source), op.outputs[0]
        if source == result or result in stands_for:
            continue  # a damaged file: a tensor that follows from itself, or is computed twice
        if _same_values(tensors[source], tensors[result]) and not tensors[source].data:
            stands_for[result] = source
    return _substituted(model, stands_for)


def _final(stands_for: Mapping[int, int], index: int) -> int:
    """The tensor that stands for this one in the end. No entry leads back to itself, as they were added."""
    while index in stands_for:
        index = stands_for[index]
    return index


def _substituted(model: FileModel, stands_for: dict[int, int]) -> FileModel:
    """Every reader of a tensor reads the one that stands for it. An output of the model gives that one its name."""
    computed = {i for op in model.operators for i in op.outputs}
    tensors, outputs = list(model.tensors), list(model.outputs)
    for position, index in enumerate(model.outputs):
        target = _final(stands_for, index)
        if target == index:
            continue
        if target not in computed or target in outputs:
            stands_for = {key: value for key, value in stands_for.items() if key != index}
        else:
            outputs[position] = target
            tensors[target] = _renamed(tensors[target], tensors[index])
    operators = tuple(
        replace(op, inputs=tuple(_final(stands_for, i) for i in op.inputs))
        for op in model.operators
        if not set(op.outputs) <= set(stands_for)
    )
    return _without_unread(replace(model, tensors=tuple(tensors), operators=operators, outputs=tuple(outputs)))


def _without_unread(model: FileModel) -> FileModel:
    """Without a DEQUANTIZE that nothing reads any more."""
    read = {*model.outputs, *(i for op in model.operators for i in op.inputs)}
    kept = tuple(op for op in model.operators if not _one_to_one(op, "DEQUANTIZE") or op.outputs[0] in read)
    return replace(model, operators=kept)


def _renamed(tensor: FileTensor, like: FileTensor) -> FileTensor:
    """The tensor under another's name, and standing for both."""
    return replace(tensor, name=like.name, sources=(*(tensor.sources or (tensor.name,)), like.name))


# ---- Float inputs and outputs ---------------------------------------------------------------------------------------


def _without_float_borders(model: FileModel) -> FileModel:
    readers = Counter(i for op in model.operators for i in op.inputs)
    tensors, inputs, outputs = list(model.tensors), list(model.inputs), list(model.outputs)
    dropped: set[int] = set()
    for op in model.operators:
        if not _one_to_one(op, "QUANTIZE") or inputs.count(op.inputs[0]) != 1:
            continue
        (x,), (q,) = op.inputs, op.outputs
        if readers[x] == 1 and x not in outputs and q not in outputs and _border(tensors[x], tensors[q]):
            inputs[inputs.index(x)] = q
            tensors[q] = _renamed(tensors[q], tensors[x])
            dropped.add(op.index)
    made = {i for op in model.operators if op.index not in dropped for i in op.outputs}
    for op in model.operators:
        if not _one_to_one(op, "DEQUANTIZE") or outputs.count(op.outputs[0]) != 1:
            continue
        (q,), (y,) = op.inputs, op.outputs
        if readers[y] == 0 and q in made and q not in outputs and _border(tensors[y], tensors[q]):
            outputs[outputs.index(y)] = q
            tensors[q] = _renamed(tensors[q], tensors[y])
            dropped.add(op.index)
    kept = tuple(op for op in model.operators if op.index not in dropped)
    return FileModel(tuple(tensors), kept, tuple(inputs), tuple(outputs))


def _border(real: FileTensor, codes: FileTensor) -> bool:
    """Whether the one is float32 and the other int8 with one scale, of one shape."""
    quant = codes.quant
    is_int8 = codes.type_name == "INT8" and quant is not None and len(quant.scales) == 1 and not quant.custom
    return is_int8 and real.type_name == "FLOAT32" and real.shape == codes.shape
