"""Import of `.tflite` models: float32, hybrid, int8 and uint8. Graphs are NHWC."""

from __future__ import annotations

from pathlib import Path

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.formats.source import model_name, read_source
from rlx_edge.formats.tflite_context import Importer, OpContext, sources_of
from rlx_edge.formats.tflite_file import FileOperator, read_model
from rlx_edge.formats.tflite_float_ops import FLOAT_BUILDERS
from rlx_edge.formats.tflite_fold import fold
from rlx_edge.formats.tflite_moves import Builder
from rlx_edge.formats.tflite_ops import BUILDERS
from rlx_edge.formats.tflite_rewrite import rewritten
from rlx_edge.formats.tflite_slices import PARTS
from rlx_edge.ir import DType, Graph, Requant, TensorType
from rlx_edge.ir.ops import ShapeError

OPERATORS: tuple[str, ...] = tuple(sorted({*BUILDERS, *FLOAT_BUILDERS}))
"""Every operator that is imported, on some type of tensor."""


def load_tflite(source: Path | bytes, requant: Requant = Requant.TFLM) -> Graph:
    """Import a TFLite model, from a file or from its bytes.

    Inputs and outputs keep the file's order, names, shapes and quantization parameters; node names and `sources` are
    tensor names. uint8 becomes int8, and float inputs and outputs of a model that is int8 inside become int8
    (formats/tflite_rewrite.py says how exactly). Every int8 op that rounds gets the rule `requant`: TFLM for the bits
    of tflite-micro, TFLITE_REF for those of tflite-runtime's reference kernels; what computed uint8 has a rule of its
    own, TFLITE_UINT8.

    Raises UnsupportedError listing every operator and tensor that cannot be imported, and ModelError for a file that
    is missing, truncated, damaged or not TFLite at all.
    """
    data, where = read_source(source)
    importer = Importer(rewritten(read_model(data, where)), model_name(source), where, requant)
    problems = _declare_inputs(importer)
    for operator in importer.model.operators:
        problems += _import_operator(importer, operator)
    if problems:
        raise UnsupportedError(_headline(importer, len(problems)), problems)
    return importer.builder.build(_output_nodes(importer))


def _headline(importer: Importer, count: int) -> str:
    line = f"{importer.where} cannot be imported, {count} problem{'s' if count > 1 else ''}"
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
        importer.record(index, importer.builder.input(tensor.name, type, sources_of(tensor)))
    return problems


def _import_operator(importer: Importer, operator: FileOperator) -> list[str]:
    """Append one operator; the problem found, if any, so that the following operators are looked at as well."""
    ctx = OpContext(importer, operator)
    if any(index in importer.nodes or index in importer.folded for index in operator.outputs):
        raise ModelError(f"{importer.where} is damaged: {ctx.describe()} computes a tensor that is there already")
    problems = []
    try:
        if operator.mixed:
            raise UnsupportedError("UINT8 and INT8 tensors in one operator")
        folded = fold(ctx)
        if folded is not None:
            importer.folded[operator.outputs[0]] = folded
            return []
        builder = _builder(ctx)
        if len(operator.outputs) != 1 and operator.kind not in PARTS:
            raise ModelError(f"{importer.where} is damaged: {ctx.describe()} has {len(operator.outputs)} outputs")
        for position, index in enumerate(operator.outputs):
            part = OpContext(importer, operator, position)
            importer.record(index, builder(part))
            _check_declared(part)
    except UnsupportedError as error:
        problems.append(f"{ctx.describe()}: {error}")
        for index in operator.outputs:
            name = importer.model.tensors[index].name
            importer.record(index, importer.builder.input(name, _placeholder(importer, index)))
    except ShapeError as error:
        raise ModelError(f"{importer.where}: {ctx.describe()}: {error}") from None
    return problems


def _builder(ctx: OpContext) -> Builder:
    """What builds this operator for the type of its output. Raises UnsupportedError where nothing does."""
    kind, is_float = ctx.operator.kind, ctx.output.type_name == "FLOAT32"
    here, there = (FLOAT_BUILDERS, BUILDERS) if is_float and kind != "DEQUANTIZE" else (BUILDERS, FLOAT_BUILDERS)
    if kind in here:
        return here[kind]
    if kind in there:
        supported = "FLOAT32" if there is FLOAT_BUILDERS else "INT8"
        raise UnsupportedError(f"on {ctx.output.type_name} tensors; it is supported on {supported} only")
    raise UnsupportedError("no such operator in rlx-edge")


def _check_declared(ctx: OpContext) -> None:
    index = ctx.operator.outputs[ctx.position]
    declared, found = ctx.importer.type_of(index), ctx.type(ctx.importer.nodes[index])
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
