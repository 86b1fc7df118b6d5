"""Write a graph in the format that a file's ending names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rlx_edge.errors import EdgeError, ModelError, UnsupportedError
from rlx_edge.formats.rlx import save_rlx
from rlx_edge.ir import DType, Graph
from rlx_edge.ir.ops import DequantMatMul


def _save_rlx(graph: Graph, path: Path) -> tuple[str, ...]:
    save_rlx(graph, path)
    return ()


def _save_tflite(graph: Graph, path: Path) -> tuple[str, ...]:
    from rlx_edge.formats.export_tflite import save_tflite

    return save_tflite(graph, path)


def _save_onnx(graph: Graph, path: Path) -> tuple[str, ...]:
    from rlx_edge.formats.export_onnx import save_onnx  # imports protobuf, which takes a while

    save_onnx(graph, path)
    return ()


SAVERS: Mapping[str, Callable[[Graph, Path], tuple[str, ...]]] = {
    ".rlx": _save_rlx,
    ".tflite": _save_tflite,
    ".onnx": _save_onnx,
}
"""By the file's ending: .rlx takes any graph, the others int8 graphs."""


def save(graph: Graph, path: Path | str) -> tuple[str, ...]:
    """Write a graph as .rlx, .tflite or .onnx, whole or not at all; a line for each thing that the file says in another
    way than the graph.

    Raises UnsupportedError for a graph that the format cannot say, and EdgeError for another ending or a path that
    cannot be written.
    """
    check_ending(Path(path))
    if Path(path).suffix != ".rlx" and any(isinstance(node.op, DequantMatMul) for node in graph.nodes):
        raise UnsupportedError(
            f"{path}: {graph.name!r} has weights alone in blocks (DequantMatMul): only .rlx files hold such a model"
        )
    if Path(path).suffix != ".rlx" and not any(node.type.dtype is DType.I8 for node in graph.nodes):
        raise ModelError(f"{path}: {graph.name!r} is a float model; int8 models are exported: quantize it first")
    return SAVERS[Path(path).suffix](graph, Path(path))


def check_ending(path: Path) -> None:
    """Raise EdgeError for an ending that says no format."""
    if path.suffix not in SAVERS:
        raise EdgeError(f"{path}: the result is written as {', '.join(SAVERS)}; give it one of these endings")
