"""Reading the bytes of a model, with one clear line when there is nothing to read."""

from __future__ import annotations

from pathlib import Path

from rlx_edge.errors import ModelError


def read_source(source: Path | bytes) -> tuple[bytes, str]:
    """The bytes of a model and what to call it in messages: its path, or "the model" for bytes.

    Raises ModelError for a file that is missing, a directory, not a regular file, unreadable or empty.
    """
    if isinstance(source, bytes):
        data, where = source, "the model"
    else:
        data, where = _read_file(Path(source)), str(source)
    if not data:
        raise ModelError(f"{where} is empty: it holds no model")
    return data, where


def model_name(source: Path | bytes) -> str:
    """A name for the graph: the file's name without its suffix, or "model" for bytes."""
    return "model" if isinstance(source, bytes) else Path(source).stem or "model"


def _read_file(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise ModelError(f"{path} is a directory: name a model file (.tflite, .onnx or .rlx)")
        if path.exists() and not path.is_file():
            raise ModelError(f"{path} is no regular file, but a device, pipe or socket: name a model file")
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
