"""Quantization-aware training in PyTorch: `prepare` a graph, train the module with any loop, `convert` it to int8.

PyTorch is an extra, imported only when one of these is called.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rlx_edge.data import Data
from rlx_edge.errors import EdgeError, ToolError
from rlx_edge.ir import Graph, Requant
from rlx_edge.quant.assign import Assignment
from rlx_edge.quant.quantize import assigned, build_int8, calibrated
from rlx_edge.quant.recipe import DEFAULT_EFFORT, Recipe, effort

if TYPE_CHECKING:
    from rlx_edge.qat.module import QatModule

INSTALL = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
"""PyTorch's CPU build; its default one for Linux brings several GB of CUDA."""


def need_torch() -> None:
    """Raise ToolError where PyTorch is not installed."""
    if find_spec("torch") is None:
        raise ToolError(f"training needs PyTorch, which is not installed; its CPU build is enough: {INSTALL}")


def prepare(
    model: Graph | Assignment, data: Data | None = None, recipe: Recipe | None = None, requant: Requant = Requant.TFLM
) -> QatModule:
    """A torch.nn.Module that computes what the int8 model will under a rounding rule, and can be trained.

    `model` is a float graph, which is quantized on `data` by the recipe (None: as `rlx-edge quantize` does) first, or
    an assignment. Raises what `quantize` raises, UnsupportedError listing every op that cannot be trained, ModelError
    for a model that mixes samples, and ToolError where PyTorch is not installed.
    """
    need_torch()
    from rlx_edge.qat.module import QatModule

    if isinstance(model, Graph):
        if data is None:
            raise EdgeError("a float graph is calibrated before it is trained: prepare(graph, data)")
        recipe = recipe or effort(DEFAULT_EFFORT)
        model = assigned(*calibrated(model, data, recipe), recipe, data)
    return QatModule(model, requant)


def convert(module: Any) -> Graph:
    """The int8 graph of a trained module: what its layers round to by now."""
    need_torch()
    from rlx_edge.qat.integers import trained

    return build_int8(trained(module), module.requant)
