"""Run a model on many samples: the host's C code, or the numpy reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.cgen.target import PORTABLE_OPS
from rlx_edge.data import Data
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.batch import sample_shape
from rlx_edge.ir.ops import DequantMatMul, Leaf
from rlx_edge.passes.fuse_dequant import fuse_dequant
from rlx_edge.quant.batches import batches
from rlx_edge.reference import run as run_reference

Progress = Callable[[int, int], None]
"""Called with the samples done and the samples in all."""

HOST, REFERENCE = "host", "reference"


def is_float(graph: Graph) -> bool:
    """Whether the model computes in float32, so that only the reference can run it.

    Dense layers whose weights alone are integers have a kernel, and what has one around them too.
    """
    if any(isinstance(node.op, DequantMatMul) for node in graph.nodes):
        return bool(left_in_float(graph))
    return not any(node.type.dtype is DType.I8 for node in graph.nodes)


def left_in_float(graph: Graph) -> tuple[Node, ...]:
    """The ops on float32 for which there is no kernel."""
    fused = fuse_dequant(graph)
    return tuple(node for node in fused.nodes if not isinstance(node.op, Leaf) and not _has_kernel(fused, node))


def _has_kernel(graph: Graph, node: Node) -> bool:
    support = PORTABLE_OPS.get(type(node.op))
    return support is not None and graph.operand_types(node)[0].dtype in support.dtypes


def default_engine(graph: Graph) -> str:
    """The host's C code where it can run the model: no float ops, no nested graphs."""
    return REFERENCE if is_float(graph) or any(node.op.bodies for node in graph.nodes) else HOST


def predict(graph: Graph, data: Data, engine: str | None = None, progress: Progress | None = None) -> dict[str, Array]:
    """The outputs for all samples by name: [samples, *output shape without a first axis of 1], for every engine.

    Raises EdgeError for an engine that does not exist or cannot run the model, DataError for samples that do not fit.
    """
    engine = engine or default_engine(graph)
    if engine == HOST:
        if is_float(graph):
            raise EdgeError(
                f"{graph.name!r} is a float model, which the host C code cannot run: use --engine reference"
            )
        return _predict_host(graph, data)
    if engine == REFERENCE:
        return _predict_reference(graph, data, progress)
    raise EdgeError(f"no engine {engine!r}; there are host and reference")


def _predict_host(graph: Graph, data: Data) -> dict[str, Array]:
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as folder:
        (model,) = generate({"model": graph}, Path(folder) / "bundle")
        outputs = HostModel(model).run(data.inputs)
    return {name: values.reshape(len(values), *sample_shape(values.shape[1:])) for name, values in outputs.items()}


def _predict_reference(graph: Graph, data: Data, progress: Progress | None) -> dict[str, Array]:
    outputs = {node.name: node for node in graph.output_nodes}  # A file may list an output twice.
    pieces: dict[str, list[Array]] = {name: [] for name in outputs}
    done = 0
    for batch in batches(data, graph):
        values = run_reference(batch.graphs[0], batch.inputs)
        for name, node in outputs.items():
            pieces[name].append(batch.samples(node, values[name]))
        done += batch.count
        if progress is not None:
            progress(done, len(data))
    return {name: np.concatenate(values) for name, values in pieces.items()}
