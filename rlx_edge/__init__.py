"""Neural networks on microcontrollers, proven bit for bit.

import rlx_edge as rlx

graph = rlx.load("digits.onnx")
data = rlx.load_data("calibration.npz", graph)
int8 = rlx.quantize(graph, rlx.calibrate(graph, data))
rlx.build({"digits": int8}, "mps2-an386", "firmware")
print(rlx.parity("firmware", rlx.load_data("test.npz", int8, samples="0:8")).exact)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_edge.api import (
        CustomKernel,
        CustomOp,
        EdgeError,
        Recipe,
        apply_recipe,
        build,
        calibrate,
        check_custom,
        check_model,
        connect,
        effort,
        evaluate,
        explain,
        flash,
        generate,
        get_target,
        load,
        load_board,
        load_data,
        open_build,
        parity,
        profile,
        quality,
        quantize,
        read_explanation,
        register_custom,
        run,
        save,
        with_explanation,
        with_rule,
    )
    from rlx_edge.builder import Graph
    from rlx_edge.ir import DType

    F16, F32, F64, I2, I4, I8 = DType.F16, DType.F32, DType.F64, DType.I2, DType.I4, DType.I8
    U8, I16, I32, I64, C64, BOOL = DType.U8, DType.I16, DType.I32, DType.I64, DType.C64, DType.BOOL

__all__ = [
    "BOOL",
    "C64",
    "F16",
    "F32",
    "F64",
    "I2",
    "I4",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "CustomKernel",
    "CustomOp",
    "EdgeError",
    "Graph",
    "Recipe",
    "apply_recipe",
    "build",
    "calibrate",
    "check_custom",
    "check_model",
    "connect",
    "effort",
    "evaluate",
    "explain",
    "flash",
    "generate",
    "get_target",
    "load",
    "load_board",
    "load_data",
    "open_build",
    "parity",
    "profile",
    "quality",
    "quantize",
    "read_explanation",
    "register_custom",
    "run",
    "save",
    "with_explanation",
    "with_rule",
]


def __getattr__(name: str) -> Any:
    """Import the API when it is first used, so that `import rlx_edge.ir` does not load every stage."""
    if name == "Graph":
        return import_module("rlx_edge.builder").Graph
    if name in __all__ and name.isupper():
        return import_module("rlx_edge.ir").DType[name]
    if name in __all__:
        return getattr(import_module("rlx_edge.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
