"""PyTorch modules in, through PyTorch's own ONNX exporter. PyTorch is an extra: nothing here imports it by itself."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np

from rlx_edge.errors import ModelError, ToolError
from rlx_edge.ir import Graph


def is_module(source: object) -> bool:
    """Whether this is a torch.nn.Module. Whoever has one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def load_torch(module: Any, example_input: object) -> Graph:
    """The float graph of a torch.nn.Module, exported for inputs of the example's shapes and dtypes.

    `example_input` is a tensor or array, or a sequence of them, one for each argument of `forward`; its values are not
    used. The module is exported in evaluation mode and given back in the mode that it was in. Raises ModelError for a
    missing example and for a module that PyTorch cannot export, ToolError where `onnxscript` is not installed, and
    UnsupportedError as load_onnx does.
    """
    from rlx_edge.formats.onnx import load_onnx

    if example_input is None:
        raise ModelError("a PyTorch module needs an example input: load(module, torch.zeros(1, 3, 32, 32))")
    name = type(module).__name__
    return replace(load_onnx(_export(module, _arguments(example_input), name)), name=name)


def _arguments(example: object) -> tuple[Any, ...]:
    torch = sys.modules["torch"]
    parts = example if isinstance(example, Sequence) else (example,)
    for part in parts:
        if not isinstance(part, torch.Tensor | np.ndarray):
            raise ModelError(f"the example input must be a tensor, an array or a sequence of them, not {type(part)}")
    return tuple(torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in parts)


def _export(module: Any, arguments: tuple[Any, ...], name: str) -> bytes:
    """The module as the bytes of an ONNX file."""
    torch = sys.modules["torch"]
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(module, arguments, dynamo=True, verbose=False)
        return bytes(program.model_proto.SerializeToString())
    except ImportError as error:
        raise ToolError(f"PyTorch's exporter lacks a package ({error.name}): pip install 'rlx-edge[torch]'") from error
    except Exception as error:  # The exporter runs the module's own code, which may raise anything.
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"PyTorch cannot export {name} to ONNX: {reason}") from error
    finally:
        for part, was_training in training.items():
            part.training = was_training


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's progress, warnings and log: what matters of them, it raises."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
