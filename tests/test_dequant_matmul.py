"""DequantMatMul: what it means, and that no compiler flag changes a bit.

The kernels run with all others in tests/test_kernels.py and test_kernels_device.py.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import cffi
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import OPS, random_inputs, seeds

from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.lower_dequant import dequant_matmul
from rlx_edge.cgen.target import TARGETS
from rlx_edge.device.toolchain import COMMON_FLAGS, find_compiler
from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, TensorType, find_problems, verify
from rlx_edge.ir.ops import (
    DequantMatMul,
    QuantScheme,
    SchemeKind,
    ShapeError,
)
from rlx_edge.passes.expand_dequant import expand_dequant
from rlx_edge.passes.fuse_dequant import fuse_dequant
from rlx_edge.reference import run
from rlx_edge.resources import firmware_dir

KERNELS = ("rlx_dequant_matmul_w8_f32", "rlx_dequant_matmul_w4_f32")
RNG = np.random.default_rng(17)


def bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(np.int32)


def inputs_of(graph: Graph, count: int = 4) -> Array:
    return RNG.normal(size=(count, *graph.inputs[0].type.shape[1:])).astype(np.float32)


# ---- What it means --------------------------------------------------------------------------------------------------


@given(OPS["dequant_matmul"](), seeds)
def test_it_is_the_product_with_the_dequantized_weights(graph: Graph, seed: int) -> None:
    """In float64, by numpy's own product; float32 sums are as far off as their length lets them be."""
    node = graph.output_nodes[0]
    assert isinstance(node.op, DequantMatMul)
    x = np.random.default_rng(seed).normal(size=graph.inputs[0].type.shape).astype(np.float32)
    codes, scale, zero, *bias = (graph.params[graph.nodes[i].name].astype(np.float64) for i in node.inputs[1:])
    places = np.arange(len(codes)) // node.op.scheme.block_size
    w = (codes - zero[places]) * scale[places]
    wanted, reach = x @ w, np.abs(x) @ ((np.abs(codes) + np.abs(zero[places])) * np.abs(scale[places]))
    low, high = node.op.clamp or (-np.inf, np.inf)
    wanted = np.clip(wanted + (bias[0] if bias else 0), low, high)
    error = np.abs(run(graph, {"x": x})["y"] - wanted)
    assert (error <= 2.0**-23 * (len(codes) + 8) * (reach + np.abs(wanted)) + 1e-30).all()


@given(OPS["dequant_matmul"](), seeds)
def test_the_float_ops_that_it_stands_for(graph: Graph, seed: int) -> None:
    expanded = expand_dequant(graph)
    assert not any(isinstance(node.op, DequantMatMul) for node in expanded.nodes)
    x = np.random.default_rng(seed).normal(size=graph.inputs[0].type.shape).astype(np.float32)
    found, wanted = run(expanded, {"x": x})["y"], run(graph, {"x": x})["y"]
    scale = np.abs(wanted).max() + max(np.abs(v).max() for v in graph.params.values() if v.dtype == np.float32) * 1e4
    assert np.abs(found - wanted).max() <= 1e-5 * scale


def declared(kind: SchemeKind, *types: TensorType) -> str:
    builder = GraphBuilder("declared")
    operands = [builder.input(f"x{i}", type) for i, type in enumerate(types)]
    op = DequantMatMul(QuantScheme(kind, 4))
    try:
        graph = builder.build([builder.add(op, operands, "y")])
    except ValueError as error:
        return str(error)
    return "; ".join(find_problems(graph))


X, W, GRID = TensorType((2, 8), DType.F32), TensorType((8, 3), DType.I8), TensorType((2, 3), DType.F32)


@pytest.mark.parametrize(
    ("kind", "types", "said"),
    [
        (
            SchemeKind.GGUF,
            (X, W),
            "weights of the scheme Gguf(4) do not tell the output's type: declare it",
        ),
        (SchemeKind.NVFP4_BLOCK, (X, W, GRID, GRID), "w is i8[8, 3]; shape [8, 2] is needed"),
        (SchemeKind.MXFP4X2, (X, W, GRID), "weights of the scheme Mxfp4x2(4) do not tell the output's type"),
        (SchemeKind.MLX_AFFINE, (X, W, GRID, GRID), "the scheme MlxAffine(4) is not one of a DequantMatMul"),
        (SchemeKind.INT4_BLOCK, (X, W, GRID, GRID), "w must be i4 for Int4Block(4), not i8"),
        (SchemeKind.INT8_BLOCK, (X, W, GRID, X), "zero points [2, 8]; [2, 3] are needed"),
        (SchemeKind.INT8_BLOCK, (X, W, GRID), "3 operands where 4 to 5 are needed"),
        (SchemeKind.INT8_BLOCK, (X, W, GRID, GRID, GRID), "bias must be [3], not [2, 3]"),
        (SchemeKind.INT8_BLOCK, (GRID, W, GRID, GRID), "x [2, 3] and w [8, 3] are not [M, K] and [K, N]"),
        (SchemeKind.INT8_BLOCK, (W, W, GRID, GRID), "are not [M, K] and [K, N]"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(kind: SchemeKind, types: Sequence[TensorType], said: str) -> None:
    assert said in declared(kind, *types)


U8, F32 = DType.U8, DType.F32


@pytest.mark.parametrize(
    ("kind", "weights", "declared_type"),
    [
        (SchemeKind.NVFP4_BLOCK, [((32, 2), U8), ((2, 3), U8), ((1,), F32)], None),
        (SchemeKind.MXFP4X2, [((999,), U8), ((99,), U8)], TensorType((2, 3), F32)),
        (SchemeKind.GGUF, [((999,), U8)], TensorType((2, 3), F32)),
    ],
)
def test_other_schemes_are_held_and_refused_by_name_when_run(
    kind: SchemeKind, weights: list[tuple[tuple[int, ...], DType]], declared_type: TensorType | None
) -> None:
    op, builder = DequantMatMul(QuantScheme(kind)), GraphBuilder("held")
    operands = [builder.input("x", TensorType((2, 32), F32))]
    operands += [builder.param(f"w{i}", np.ones(shape, t.numpy)) for i, (shape, t) in enumerate(weights)]
    graph = builder.build([builder.add(op, operands, "y", type=declared_type)])
    verify(graph)
    assert graph.nodes[-1].type == TensorType((2, 3), F32)
    for rewrite in (expand_dequant, fuse_dequant):
        assert rewrite(graph).nodes[-1] == graph.nodes[-1]
    with pytest.raises(UnsupportedError, match=f"no DequantMatMul of weights of the scheme {kind.value}"):
        run(graph, {"x": np.ones((2, 32), np.float32)})
    with pytest.raises(UnsupportedError, match=f"weights of the scheme {kind.value}"):
        legalize(graph, TARGETS["portable"])
    if declared_type is not None:
        with pytest.raises(ShapeError, match="the output is"):
            op.check([graph.nodes[i].type for i in operands], TensorType((5, 3), F32))


# ---- No flag changes a bit ------------------------------------------------------------------------------------------

HARNESS = """
#include "rlx_kernels.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
unsigned mode(unsigned wanted) { const unsigned before = _mm_getcsr(); _mm_setcsr(wanted); return before; }
#endif
"""
CDEF = """
typedef struct { int8_t *base; int32_t pitch; int32_t ring; } rlx_view_t;
typedef struct {
    const int8_t *weights; const int32_t *scales; const int32_t *zero_points; const int32_t *bias;
    int32_t in_c, out_c, block, blocks, has_zero_points, has_bias, low, high;
} rlx_dequant_matmul_t;
void rlx_dequant_matmul_w8_f32(const rlx_dequant_matmul_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
void rlx_dequant_matmul_w4_f32(const rlx_dequant_matmul_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1);
unsigned mode(unsigned wanted);
"""
FAST = ("-std=gnu11", "-Ofast", "-ffp-contract=fast", "-march=native")
FLAGS = [("-std=c11", "-O0"), ("-std=c11", "-Os"), ("-std=gnu11", "-O3", "-march=native"), FAST, (*FAST, "-flto")]
MASKED, FLUSHING, UPWARDS = 0x1F80, 0x8040, 0x4000
"""Of x86-64's MXCSR: no exceptions; small numbers are 0; the direction of rounding."""


class Compiled:
    """The two kernels in a shared library."""

    def __init__(self, compiler: str, flags: Sequence[str], folder: Path) -> None:
        (folder / "harness.c").write_text(HARNESS)
        kernels = firmware_dir() / "kernels"
        sources = [folder / "harness.c", *(kernels / f"{name}.c" for name in KERNELS)]
        library = folder / "kernels.so"
        command = [compiler, *flags, "-fPIC", f"-I{kernels}", "-c", *map(str, sources)]
        subprocess.run(command, check=True, cwd=folder)
        # Without -Ofast here, with which gcc adds a start-up that has this whole process flush small numbers to zero.
        linked = [compiler, *(flag for flag in flags if flag == "-flto"), "-shared", "-o", str(library)]
        subprocess.run([*linked, *map(str, folder.glob("*.o"))], check=True)
        self.ffi = cffi.FFI()
        self.ffi.cdef(CDEF)
        self.lib = self.ffi.dlopen(str(library))

    def run(self, graph: Graph, x: Array, mode: int | None = None) -> Array:
        """The output for x; `mode`: what the caller has the FPU do, which it must still do afterwards."""
        (call,) = dequant_matmul(graph, graph.output_nodes[0])
        p, held = self.ffi.new("rlx_dequant_matmul_t *"), []
        for name, constant in call.constants.items():
            kind = "int8_t[]" if constant.values.dtype == np.int8 else "int32_t[]"
            held.append(self.ffi.from_buffer(kind, np.ascontiguousarray(constant.values)))
            setattr(p, name, held[-1])
        for name, value in call.params.items():
            setattr(p, name, value)
        y = np.zeros(graph.output_nodes[0].type.shape, np.float32)
        views = [(self.ffi.from_buffer("int8_t[]", v.view(np.int8)), 4 * v.shape[1], 0) for v in (x, y)]
        kernel = getattr(self.lib, call.kernel.name)
        before = None if mode is None else self.lib.mode(mode)
        kernel(p, *views, 0, len(x))
        if before is not None:
            assert self.lib.mode(before) & 0xFFC0 == mode & 0xFFC0
        return y


@cache
def cases() -> list[tuple[Graph, Array]]:
    """Graphs of all kinds, with ordinary values, and with those that break arithmetic: tiny, huge, not numbers."""
    found: list[tuple[Graph, Array]] = []

    @given(OPS["dequant_matmul"](), st.booleans(), seeds)
    def collect(graph: Graph, special: bool, seed: int) -> None:
        x = random_inputs(graph, seed)["x"] if special else inputs_of(graph, len(graph.inputs[0].type.shape[:1]))
        shape = graph.inputs[0].type.shape
        found.append((graph, x if x.shape == shape else RNG.normal(size=shape).astype(np.float32)))

    collect()
    return found


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_no_flag_changes_a_bit(compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    if subprocess.run(["which", compiler], capture_output=True, check=False).returncode:
        pytest.skip(f"no {compiler}")
    if compiler == "clang" and "-flto" in flags:
        pytest.skip("clang's -flto needs a linker plugin")
    compiled = Compiled(compiler, flags, tmp_path)
    for graph, x in cases():
        wanted = bits(run(graph, {"x": x})["y"])
        np.testing.assert_array_equal(bits(compiled.run(graph, x)), wanted)


def test_a_caller_that_flushes_or_rounds_otherwise(tmp_path: Path) -> None:
    compiled = Compiled("gcc", FAST, tmp_path)
    if not hasattr(compiled.lib, "mode"):
        pytest.skip("not an x86-64")
    for graph, x in cases():
        for factor in (1.0, 1e-38):
            with np.errstate(all="ignore"):
                scaled = (x * np.float32(factor)).astype(np.float32)
            wanted = bits(run(graph, {"x": scaled})["y"])
            for mode in (FLUSHING, UPWARDS, FLUSHING | UPWARDS):
                np.testing.assert_array_equal(bits(compiled.run(graph, scaled, MASKED | mode)), wanted)


CORES = {
    "m4": ("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
    "m7": ("-mcpu=cortex-m7", "-mfpu=fpv5-d16", "-mfloat-abi=hard"),
    "m33": ("-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
    "m55": ("-mcpu=cortex-m55", "-mfpu=auto", "-mfloat-abi=hard"),
}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("flags", [COMMON_FLAGS, ("-std=gnu11", "-Ofast"), ("-std=gnu11", "-Os", "-ffp-contract=fast")])
def test_arm_code_fuses_nothing(core: str, flags: Sequence[str], tmp_path: Path) -> None:
    """Each sum and product is an instruction of its own, on one number."""
    compiler = find_compiler().command
    for name in KERNELS:
        assembly = tmp_path / f"{name}.s"
        source = firmware_dir() / "kernels" / f"{name}.c"
        subprocess.run([compiler, *flags, "-mthumb", *CORES[core], "-S", str(source), "-o", str(assembly)], check=True)
        text = assembly.read_text()
        assert re.search(r"\bvmul\.f32\s+s\d", text) and re.search(r"\bvadd\.f32\s+s\d", text)
        assert not re.search(r"\bvn?(fma|mla|mls|fms)[a-z]*\.f32|\bv(add|sub|mul)\.f32\s+[qd]\d", text)
