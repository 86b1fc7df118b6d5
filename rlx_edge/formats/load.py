"""Read a model of any format, told apart by its content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx_edge.errors import ModelError
from rlx_edge.formats.pytorch import is_module, load_torch
from rlx_edge.formats.rlx import load_rlx
from rlx_edge.formats.source import read_source
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.formats.tflite_file import IDENTIFIER
from rlx_edge.ir import Graph, Requant


def load(
    source: Path | str | Any,
    example_input: object = None,
    requant: Requant = Requant.TFLM,
    dims: Mapping[str, int] | None = None,
) -> Graph:
    """Read a `.tflite`, `.onnx` or `.rlx` file, or a torch.nn.Module with an example of its input (see `load_torch`).

    A file's content decides what it is; the suffix only matters for ONNX, which has no identifier of its own.
    `requant` is the rounding rule of an imported int8 TFLite model (see `load_tflite`); `dims` gives sizes to symbolic
    axes of an ONNX model (see `load_onnx`). Raises ModelError for a file that is missing, empty, damaged or of no known
    format, and for a module that cannot be exported, and UnsupportedError for a model that uses more than rlx-edge
    imports.
    """
    if is_module(source):
        return load_torch(source, example_input)
    if not isinstance(source, str | Path):
        raise ModelError(f"a model is a file's path or a torch.nn.Module, not a {type(source).__name__}")
    path = Path(source)
    data, where = read_source(path)
    if data[4:8] == IDENTIFIER:
        return load_tflite(path, requant)
    if _is_safetensors(data):
        return load_rlx(path)
    if path.suffix == ".onnx" or _looks_like_onnx(data):
        from rlx_edge.formats.onnx import load_onnx  # imports protobuf, which takes a while

        return load_onnx(path, dims)
    wanted = {".tflite": "TFLite", ".rlx": ".rlx"}.get(path.suffix)
    if wanted:
        raise ModelError(f"{where} is not a {wanted} file, whatever its name says, or its first bytes are damaged")
    raise ModelError(f"{where} is no model that rlx-edge knows: a .tflite, .onnx or .rlx file is needed")


def _is_safetensors(data: bytes) -> bool:
    """Eight bytes of header length, then a JSON object."""
    return len(data) > 8 and data[8:9] == b"{" and int.from_bytes(data[:8], "little") <= len(data) - 8


def _looks_like_onnx(data: bytes) -> bool:
    """A protobuf that starts as ONNX writers start: field 1, the IR version, a small number; then another field."""
    return len(data) > 3 and data[0] == 0x08 and 0 < data[1] < 0x80 and data[2] in (0x12, 0x3A, 0x42)
