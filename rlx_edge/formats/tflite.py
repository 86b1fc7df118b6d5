"""Import of int8 `.tflite` models. Graphs are NHWC, with the rounding rule that TFLite runtimes use."""

from __future__ import annotations

from pathlib import Path

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.source import model_name, read_source
from rlx_edge.formats.tflite_context import Importer, OpContext
from rlx_edge.formats.tflite_file import FileOperator, read_model
from rlx_edge.formats.tflite_ops import BUILDERS
from rlx_edge.ir import DType, Graph, Requant, TensorType
from rlx_edge.ir.ops import ShapeError


def load_tflite(source: Path | bytes, requant: Requant = Requant.TFLM) -> Graph:
    """Import an int8 TFLite model, from a file or from its bytes.

    Inputs and outputs keep the file's order, shapes and quantization parameters; node names and `sources` are tensor
    names. Every op that rounds gets the rule `requant`: TFLM for the bits of tflite-micro, TFLITE_REF for those of
    tflite-runtime's reference kernels.

    Raises UnsupportedError listing every operator and tensor that cannot be imported, and ModelError for a file that
    is missing, truncated, damaged or not TFLite at all.
    """
    data, where = read_source(source)
    importer = Importer(read_model(data, where), model_name(source), where, requant)
    problems = _declare_inputs(importer)
    for operator in importer.model.operators:
        problems += _import_operator(importer, operator)
    if problems:
        raise UnsupportedError(_headline(importer, len(problems)), problems)
    return importer.builder.build(_output_nodes(importer))


def _headline(importer: Importer, count: int) -> str:
    line = f"{importer.where} cannot be imported, {count} problem{'s' if count > 1 else ''}"
    if not any(tensor.type_name == "INT8" and not tensor.data for tensor in importer.model.tensors):
        line += "; its activations are not int8: convert it with full-integer quantization, or start from float ONNX"
    return f"{line} (docs/models.md lists what can be):"


def _declare_inputs(importer: Importer) -> list[str]:
    problems = []
    for position, index in enumerate(importer.model.inputs):
        tensor = importer.model.tensors[index]
        if index in importer.nodes:
            raise importer.damaged(tensor, "is listed twice as an input")
        try:
            type = importer.type_of(index)
            if type.quant is not None and type.quant.axis is not None:
                raise UnsupportedError(f"the input tensor {tensor.name!r} with one scale per channel")
        except UnsupportedError as error:
            problems.append(f"input {position}: {error}")
            type = _placeholder(importer, index)
        importer.record(index, importer.builder.input(tensor.name, type, (tensor.name,)))
    return problems


def _import_operator(importer: Importer, operator: FileOperator) -> list[str]:
    """Append one operator; the problem found, if any, so that the following operators are looked at as well."""
    ctx = OpContext(importer, operator)
    if any(index in importer.nodes for index in operator.outputs):
        raise ModelError(f"{importer.where} is damaged: {ctx.describe()} computes a tensor that is there already")
    problems = []
    try:
        if operator.kind not in BUILDERS:
            raise UnsupportedError("no such operator in rlx-edge")
        if len(operator.outputs) != 1:
            raise ModelError(f"{importer.where} is damaged: {ctx.describe()} has {len(operator.outputs)} outputs")
        importer.record(operator.outputs[0], BUILDERS[operator.kind](ctx))
        _check_declared(ctx)
    except UnsupportedError as error:
        problems.append(f"{ctx.describe()}: {error}")
        for index in operator.outputs:
            name = importer.model.tensors[index].name
            importer.record(index, importer.builder.input(name, _placeholder(importer, index)))
    except ShapeError as error:
        raise ModelError(f"{importer.where}: {ctx.describe()}: {error}") from None
    return problems


def _check_declared(ctx: OpContext) -> None:
    declared = ctx.importer.type_of(ctx.operator.outputs[0])
    found = ctx.type(ctx.importer.nodes[ctx.operator.outputs[0]])
    if (found.shape, found.dtype) != (declared.shape, declared.dtype):
        raise ModelError(
            f"{ctx.importer.where}: {ctx.describe()} is declared {declared.dtype.value}{list(declared.shape)}, "
            f"but its operands give {found.dtype.value}{list(found.shape)}"
        )


def _placeholder(importer: Importer, index: int) -> TensorType:
    """The type of a node that stands in, while the rest of the file is looked at; the graph is dropped afterwards."""
    try:
        return importer.type_of(index)
    except UnsupportedError:
        return TensorType(importer.model.tensors[index].shape, DType.F32)


def _output_nodes(importer: Importer) -> list[int]:
    nodes = []
    for index in importer.model.outputs:
        if index not in importer.nodes:
            raise importer.damaged(importer.model.tensors[index], "is an output that nothing computes")
        nodes.append(importer.nodes[index])
    return nodes
