"""A float graph and its calibration to an int8 graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from rlx_edge.data import Data
from rlx_edge.errors import EdgeError, ModelError, UnsupportedError
from rlx_edge.ir import DType, Graph, Node, Requant
from rlx_edge.ir.custom import find_custom
from rlx_edge.ir.ops import Binary, BinaryOp, Concat, Input, Leaf, MatMul, Pad, PadMode, Reduce, ReduceOp
from rlx_edge.ir.ops.control import Custom
from rlx_edge.passes.fuse import fused_away
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.rebuild import builder_like, is_anchor
from rlx_edge.passes.remove_dead import remove_dead
from rlx_edge.quant.assign import Assignment, assign
from rlx_edge.quant.bias_correction import correct_bias
from rlx_edge.quant.calibrate import Calibration, calibrate
from rlx_edge.quant.compensate import compensate
from rlx_edge.quant.equalize import EQUALIZED, equalize
from rlx_edge.quant.headroom import widen
from rlx_edge.quant.layerwise import LayerInputs, Method, improve
from rlx_edge.quant.lower import ANCHORS, LOWER, Lowering
from rlx_edge.quant.mse_scale import least_squared_error
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.rounding import round_adaptively
from rlx_edge.quant.schemes import QuantizedWeights
from rlx_edge.quant.widths import ADAPTIVE, GPTQ, MSE, NEAREST, LayerRule, rules_of

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Quantized:
    """What a recipe made: the int8 graph, and the float graph and the calibration that it was made from.

    The float graph computes what the given one does; where the recipe equalizes, its inner tensors have other scales,
    so it is this one that inner tensors of the int8 graph compare with.
    """

    graph: Graph
    float_graph: Graph
    calibration: Calibration


def apply_recipe(
    graph: Graph, data: Data, recipe: Recipe, requant: Requant = Requant.TFLM, progress: Progress | None = None
) -> Quantized:
    """Equalize, calibrate and quantize a float graph on data, as the recipe says.

    Raises what `calibrate` and `quantize` raise; a graph that has no int8 form is refused before any work.
    """
    float_graph, calibration = calibrated(graph, data, recipe, progress)
    int8 = quantize(float_graph, calibration, requant, recipe, data, stage("quantizing", progress))
    return Quantized(int8, float_graph, calibration)


def calibrated(graph: Graph, data: Data, recipe: Recipe, progress: Progress | None = None) -> tuple[Graph, Calibration]:
    """The float graph, equalized where the recipe says so, and its calibration. Raises what `apply_recipe` raises."""
    refuse_unsupported(prepare(graph))
    float_graph = equalize(graph, data) if recipe.equalize else graph
    calibration = calibrate(float_graph, data, recipe.observer, stage("calibrating", progress), search=recipe.search)
    return float_graph, widen(float_graph, calibration, data) if recipe.headroom else calibration


def quantize(
    graph: Graph,
    calibration: Calibration,
    requant: Requant = Requant.TFLM,
    recipe: Recipe | None = None,
    data: Data | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Graph:
    """The int8 graph: int8 inputs and outputs, every op under one rounding rule.

    Of a recipe, this does what comes after calibration, rounding and bias correction, for which it runs the model on
    `data` layer by layer; `apply_recipe` does all of it. Node names, sources and the layouts of inputs and outputs are
    those of the float graph. Raises UnsupportedError listing every node that has no int8 form, and EdgeError for a
    recipe that needs data, or an equalized graph, and is given none.
    """
    return build_int8(assigned(graph, calibration, recipe or Recipe(), data, progress), requant)


def assigned(
    graph: Graph,
    calibration: Calibration,
    recipe: Recipe,
    data: Data | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Assignment:
    """What the int8 graph of `quantize` stores. Raises what that raises."""
    prepared = prepare(graph)
    refuse_unsupported(prepared)
    if recipe.equalize and EQUALIZED not in graph.metadata:
        raise EdgeError(
            f"the recipe equalizes, but {graph.name!r} was not: calibrate and quantize equalize(graph, data), "
            "or use apply_recipe"
        )
    assignment = assign(prepared, calibration.ranges, recipe.weights)
    rules = rules_of(assignment.fusions, recipe.weights)
    if recipe.needs_data:
        if data is None or len(data) == 0:
            raise EdgeError("better rounding and bias correction run the model on data: give the calibration's too")
        assignment = improve(assignment, data, layer_methods(recipe, rules), progress)
    return assignment


def layer_methods(recipe: Recipe, rules: Mapping[int, LayerRule]) -> list[Method]:
    """What the recipe does to each layer in turn, once its inputs are known; rules by node id."""

    def rounded(inputs: LayerInputs) -> QuantizedWeights:
        return ROUND[recipe.method(rules[inputs.node.id])](inputs, recipe.bias_correction)

    return [rounded, correct_bias] if recipe.bias_correction else [rounded]


ROUND: Mapping[str, Callable[[LayerInputs, bool], QuantizedWeights]] = {
    NEAREST: lambda inputs, centered: inputs.layer,
    MSE: lambda inputs, centered: least_squared_error(inputs),
    ADAPTIVE: round_adaptively,
    GPTQ: compensate,
}
"""By widths.METHODS; `centered`: the mean error does not count, as bias correction takes it off afterwards."""


def stage(name: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    """Progress of one stage."""
    return None if progress is None else partial(progress, name)


def refuse_unsupported(prepared: Graph) -> None:
    """Raise ModelError for an int8 graph, and UnsupportedError listing every node that has no int8 form."""
    if any(node.type.dtype is DType.I8 for node in prepared.nodes):
        raise ModelError(f"{prepared.name!r} is quantized already: it goes into generate, build and deploy as it is")
    problems = [f"{node}: {problem}" for node in prepared.nodes for problem in _problems(prepared, node)]
    if problems:
        raise UnsupportedError(f"{prepared.name!r} cannot be quantized to int8:", problems)


def build_int8(assignment: Assignment, requant: Requant) -> Graph:
    """The int8 graph that stores exactly what an assignment says."""
    prepared, fusions = assignment.graph, assignment.fusions
    inside = fused_away(prepared, dict(fusions))
    builder = builder_like(prepared)
    lowering = Lowering(prepared, builder, requant, assignment.params, fusions, assignment.layers)
    for node in prepared.nodes:
        if node.id not in inside and (isinstance(node.op, Input) or not isinstance(node.op, Leaf)):
            lowering.ids[node.id] = LOWER[type(node.op if node.id not in fusions else fusions[node.id].anchor.op)](
                lowering, node
            )
    return remove_dead(lowering.builder.build([lowering.operand(i) for i in prepared.outputs]))


def _problems(graph: Graph, node: Node) -> Iterator[str]:
    if isinstance(node.op, Leaf):
        if graph.constant(node) is not None and node.id in graph.outputs:
            yield "it is an output, but a constant; take it out of the model"
        return
    if type(node.op) not in LOWER:
        yield f"{node.op.kind_name} has no int8 form, or is quantized already"
    elif isinstance(node.op, Custom) and getattr(find_custom(node.op.name), "kernel", None) is None:
        yield f"the custom op {node.op.name!r} is not registered with a C kernel: rlx-edge --ops FILE.py"
    elif node.type.dtype is not DType.F32:
        yield f"its result is {node.type}, not float32"
    elif isinstance(node.op, ANCHORS) and not is_anchor(graph, node):
        yield "its weights are computed by the model; constant weights are needed"
    elif isinstance(node.op, MatMul) and len(graph.operand_types(node)[1].shape) != 2:
        yield f"weights of shape {list(graph.operand_types(node)[1].shape)}; a matrix is needed"
    elif isinstance(node.op, Reduce) and node.op.op is not ReduceOp.MEAN:
        yield f"a reduction by {node.op.op.value}; only Mean has an int8 form"
    elif isinstance(node.op, Binary) and node.op.fn not in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL):
        yield f"the function {node.op.fn.value}; Add, Sub and Mul have an int8 form"
    elif isinstance(node.op, Pad) and node.op.mode is not PadMode.CONSTANT:
        yield f"padding in mode {node.op.mode.value}; only Constant has an int8 form"
    elif all(graph.constant(o) is not None for o in graph.operands(node)):
        yield "all of its operands are constants; fold it before quantization"
    elif isinstance(node.op, Concat) and (
        held := [o.name for o in graph.operands(node) if graph.constant(o) is not None]
    ):
        yield f"it joins the constants {held} to computed values; only computed tensors are joined on int8"
