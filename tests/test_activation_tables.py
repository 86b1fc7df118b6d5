"""Functions of one int8 as tables. (Equality with TFLite's kernels, all 256 codes: test_oracle_single_ops.py.)"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import params
from oracles.tflite_writer import OpSpec, TensorSpec, write_model

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.data import Data
from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.tflite import load_tflite
from rlx_edge.ir import DType, FrozenTable, Graph, GraphBuilder, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Concat
from rlx_edge.passes.freeze import freeze
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference import run, unary
from rlx_edge.reference.activation_tables import freeze_activation
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32

CODES = np.arange(-128, 128)
FIXED = {
    ActivationFn.SIGMOID: QuantParams.per_tensor(1 / 256, -128),
    ActivationFn.TANH: QuantParams.per_tensor(1 / 128, 0),
}


@given(st.sampled_from([fn for fn in ActivationFn if fn is not ActivationFn.TABLE]), params(), params())
def test_the_rule_rlx_is_the_function_of_real_values(fn: ActivationFn, x: QuantParams, out: QuantParams) -> None:
    table = freeze_activation(Activation(fn, 0.3 if fn is ActivationFn.LEAKY_RELU else None, Requant.RLX), x, out)
    with np.errstate(all="ignore"):
        real = unary.apply(fn, dequantize_f32(CODES, x), 0.3)
    np.testing.assert_array_equal(table.codes, quantize_f32(real, out))


@pytest.mark.parametrize("rule", [Requant.TFLM, Requant.TFLITE_REF, Requant.TFLITE_UINT8])
@pytest.mark.parametrize(
    "fn", [ActivationFn.SIGMOID, ActivationFn.TANH, ActivationFn.HARD_SWISH, ActivationFn.LEAKY_RELU]
)
@given(x=params(1e-3, 0.5))
def test_kernels_stay_within_a_code_of_the_real_function(fn: ActivationFn, rule: Requant, x: QuantParams) -> None:
    out = FIXED.get(fn, x)
    op = Activation(fn, 0.25 if fn is ActivationFn.LEAKY_RELU else None, rule)
    real = quantize_f32(unary.apply(fn, dequantize_f32(CODES, x), op.alpha), out).astype(np.int64)
    assert np.abs(np.array(freeze_activation(op, x, out).codes) - real).max() <= 1


@pytest.mark.parametrize("fn", FIXED)
def test_fixed_outputs_are_demanded(fn: ActivationFn) -> None:
    builder = GraphBuilder("fixed")
    quant = QuantParams.per_tensor(0.1, 0)
    x = builder.input("x", TensorType((1, 4), DType.I8, quant))
    graph = builder.build([builder.add(Activation(fn, requant=Requant.TFLM), [x], "y", quant)])
    with pytest.raises(UnsupportedError, match=f"an int8 {fn.value} needs an output scale of 1/"):
        freeze(graph)


def test_a_value_beyond_int32_is_refused() -> None:
    op = Activation(ActivationFn.EXP, requant=Requant.TFLITE_REF)
    with pytest.raises(ValueError, match="overflows int32"):
        freeze_activation(op, QuantParams.per_tensor(1.0, -128), QuantParams.per_tensor(0.1, 0))


@pytest.mark.parametrize("kind", ["LOGISTIC", "TANH", "HARD_SWISH", "RELU"])
def test_generated_c_looks_up_what_the_reference_does(kind: str, tmp_path: Path) -> None:
    out = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(kind, (0.03, -90))
    x = TensorSpec("x", (1, 16, 16, 1), scales=(0.05,), zero_points=(3,))
    y = TensorSpec("y", (1, 16, 16, 1), scales=out[:1], zero_points=out[1:])
    options = "HardSwishOptions" if kind == "HARD_SWISH" else ""
    graph = load_tflite(write_model([x, y], [OpSpec(kind, [0], [1], options)], [0], [1]))
    assert isinstance(freeze(graph).output_nodes[0].op.frozen, FrozenTable)
    inputs = {"x": CODES.astype(np.int8).reshape(1, 16, 16, 1)}
    (model,) = generate({"model": graph}, tmp_path / "bundle")
    np.testing.assert_array_equal(HostModel(model).run(inputs)["y"][0], run(graph, inputs)["y"])


# ---- From a float graph ---------------------------------------------------------------------------------------------


def quantized(fn: ActivationFn, low: float, high: float, joined: bool = False) -> Graph:
    """x -> fn (-> joined with itself), calibrated on a ramp from low to high."""
    builder = GraphBuilder("float")
    x = builder.input("x", TensorType((1, 64), DType.F32))
    y = builder.add(Activation(fn), [x], "y")
    graph = builder.build([builder.add(Concat(1), [y, y], "joined") if joined else y])
    ramp = np.linspace(low, high, 64 * 8, dtype=np.float32).reshape(8, 64)
    return quantize(graph, calibrate(graph, Data({"x": ramp})))


@pytest.mark.parametrize("fn", FIXED)
def test_bounded_functions_keep_their_parameters_also_before_a_concatenation(fn: ActivationFn) -> None:
    graph = quantized(fn, -4.0, 4.0, joined=True)
    kinds = {node.name: node for node in graph.nodes}
    assert kinds["y"].type.quant == FIXED[fn]
    freeze(graph)


def test_scales_that_the_kernel_does_not_take_get_the_function_of_real_values() -> None:
    """A hard swish that is nearly always 0: its output's scale is less than 1/128 of the input's."""
    graph = quantized(ActivationFn.HARD_SWISH, -400.0, 0.5)
    op = graph.output_nodes[0].op
    assert isinstance(op, Activation)
    assert op.requant is Requant.RLX
    freeze(graph)
