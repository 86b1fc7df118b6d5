"""A custom op's C kernel against its reference, on random shapes, parameters and values."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import GUARD, HostModel
from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.custom import CustomOp, find_custom
from rlx_edge.ir.ops.control import Custom
from rlx_edge.reference import run

SAMPLES = 8
"""Of values, on each graph."""


def check_custom(name: str, graphs: int = 8, seed: int = 0) -> int:
    """Compile the kernel for so many random graphs of the op alone, and compare every byte; the count of comparisons.

    Memory around the output and the scratch memory must stay as it was.

    Raises ModelError with the first difference, and UnsupportedError where nothing can be compared.
    """
    op = find_custom(name)
    if op is None or op.kernel is None or op.examples is None:
        raise UnsupportedError(f"the custom op {name!r} is not registered with a C kernel and examples")
    rng = np.random.default_rng(seed)
    drawn = {f"case_{i}": _graph(op, rng) for i in range(graphs)}
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as folder:
        for bundled in generate(drawn, Path(folder) / "bundle"):
            graph = drawn[bundled.name]
            given = {node.name: _values(rng, node.type) for node in graph.inputs}
            model = HostModel(bundled)
            (found,) = model.run(given).values()
            _check_writes(op, model, {name: values[:1] for name, values in given.items()}, rng)
            for sample in range(SAMPLES):
                (wanted,) = run(graph, {key: values[sample] for key, values in given.items()}).values()
                _compare(op, graph, found[sample], wanted)
    return graphs * SAMPLES


def _graph(op: CustomOp, rng: np.random.Generator) -> Graph:
    assert op.examples is not None
    drawn = op.examples(rng)
    try:
        attrs, shapes = drawn
        shapes = tuple(tuple(int(size) for size in shape) for shape in shapes)
    except (TypeError, ValueError):
        attrs, shapes = None, ()
    if not isinstance(attrs, bytes) or not shapes:
        raise ModelError(f"examples of the custom op {op.name!r} gave {drawn!r}; bytes and shapes are needed")
    builder = GraphBuilder(op.name)
    types = [TensorType(shape, DType.I8, _quant(rng)) for shape in shapes]
    inputs = [builder.input(f"x{i}", type) for i, type in enumerate(types)]
    quant = types[0].quant if op.same_quant else _quant(rng)
    return builder.build([builder.add(Custom(op.name, len(shapes), attrs), inputs, "y", quant)])


def _quant(rng: np.random.Generator) -> QuantParams:
    return QuantParams.per_tensor(float(np.float32(2.0 ** rng.uniform(-6, 2))), int(rng.integers(-128, 128)))


def _values(rng: np.random.Generator, type: TensorType) -> Array:
    """Any codes; in the first two samples the least and the largest."""
    values = rng.integers(-128, 128, (SAMPLES, *type.shape)).astype(np.int8)
    values[0], values[1] = -128, 127
    return values


def _check_writes(op: CustomOp, model: HostModel, given: dict[str, Array], rng: np.random.Generator) -> None:
    """Raise ModelError where the kernel changes its inputs, or memory that is neither output nor scratch memory."""
    plan = model.plan
    (step,), (*inputs, output) = plan.steps, plan.tensors
    free = np.ones(len(model.memory), np.bool_)
    spans = [(output.offset, output.type.bytes)]
    spans += [(offset, step.calls[0].scratch) for offset in plan.scratch_offsets.values()]
    for offset, size in spans:
        free[GUARD + offset : GUARD + offset + size] = False
    model.memory[:] = rng.integers(0, 256, len(model.memory))
    before = model.memory.copy()
    for tensor in inputs:
        at = GUARD + tensor.offset
        before[at : at + tensor.type.bytes] = given[tensor.name].view(np.uint8).reshape(-1)
    model.run(given)
    wrong = np.flatnonzero(free & (model.memory != before))
    if len(wrong):
        place = int(wrong[0]) - GUARD - output.offset
        raise ModelError(
            f"the custom op {op.name!r}: the kernel writes to byte {place} from the first of its output, which has "
            f"{output.type.bytes}, and that is not its scratch memory: {output.type}"
        )


def _compare(op: CustomOp, graph: Graph, found: Array, wanted: Array) -> None:
    wrong = np.argwhere(found != wanted)
    if len(wrong):
        place, node = tuple(int(i) for i in wrong[0]), graph.output_nodes[0]
        assert isinstance(node.op, Custom)
        operands = ", ".join(map(str, graph.operand_types(node)))
        raise ModelError(
            f"the custom op {op.name!r}: C gives {found[place]} where the reference gives {wanted[place]}, "
            f"at {list(place)} of {node.type}, from {operands}, attrs {node.op.attrs!r}"
        )
