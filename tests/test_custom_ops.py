"""Ops of users with a C kernel: checked, quantized, generated, and run on the host and on an emulated device."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import here
from test_docs import ROOT, code_blocks

import rlx_edge
from rlx_edge.errors import ModelError, ToolError, UnsupportedError
from rlx_edge.ir import DType
from rlx_edge.ir.custom import CustomKernel, CustomOp, find_custom, register_custom, unregister_custom
from rlx_edge.ir.ops import ShapeError

NAME = "example.median"
EXAMPLE = ROOT / "examples" / "custom_op"


@pytest.fixture
def median() -> Iterator[CustomOp]:
    runpy.run_path(str(EXAMPLE / "median.py"))
    found = find_custom(NAME)
    assert found is not None
    yield found
    unregister_custom(NAME)


def changed(op: CustomOp, old: str, new: str) -> None:
    """The op with another text in its kernel."""
    assert op.kernel is not None and old in op.kernel.source
    unregister_custom(NAME)
    register_custom(replace(op, kernel=replace(op.kernel, source=op.kernel.source.replace(old, new))))


def test_the_kernel_equals_its_reference(median: CustomOp) -> None:
    assert rlx_edge.check_custom(NAME, graphs=3) == 24


def test_a_wrong_kernel_is_found(median: CustomOp) -> None:
    changed(median, "sorted[p->size / 2]", "sorted[0]")
    with pytest.raises(ModelError, match=r"'example.median': C gives -?\d+ where the reference gives -?\d+, at \["):
        rlx_edge.check_custom(NAME, graphs=3)


@pytest.mark.parametrize(
    ("line", "stray"),
    [
        ("out[i] = sorted[p->size / 2];", "out[p->rows * p->width - row * p->width] = 1;"),
        ("out[i] = sorted[p->size / 2];", "rlx_row(y, 0)[-1] = 1;"),
        ("out[i] = sorted[p->size / 2];", "((int8_t *)scratch)[16] = 1;"),
        ("out[i] = sorted[p->size / 2];", "((int8_t *)in)[i] = 1;"),
    ],
)
def test_a_kernel_that_writes_elsewhere_is_found(median: CustomOp, line: str, stray: str) -> None:
    """The result is right, or would be but for what lies there."""
    changed(median, line, f"{line} {stray}")
    with pytest.raises(ModelError, match=r"'example\.median': (the kernel writes to byte|C gives)"):
        rlx_edge.check_custom(NAME, graphs=8)


@pytest.mark.parametrize("width", [1.5, 2**31, None])
def test_parameters_are_int32(median: CustomOp, width: Any) -> None:
    assert median.kernel is not None
    params = median.kernel.params
    unregister_custom(NAME)
    register_custom(
        replace(median, kernel=replace(median.kernel, params=lambda *facts: {**params(*facts), "width": width}))
    )
    with pytest.raises(ModelError, match=f"the kernel median_s8 gets width = {width}"):
        rlx_edge.check_custom(NAME, graphs=1)


def test_a_function_of_another_name_is_told(median: CustomOp) -> None:
    changed(median, "void median_s8(", "void median_s16(")
    with pytest.raises(ToolError, match=r"no file defines median_s8$"):
        rlx_edge.check_custom(NAME, graphs=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"infer": lambda op, operands: None},
            "infer of the custom op 'example.median' gave None; a shape and a DType",
        ),
        ({"infer": lambda op, operands: ((1, 2.5), DType.I8)}, r"gave \(\(1, 2.5\), <DType.I8: 'i8'>\); a shape"),
        ({"infer": lambda op, operands: (operands[0].shape, "i8")}, "a shape and a DType are needed"),
        ({"examples": lambda rng: (3, ((4,),))}, "examples of the custom op 'example.median' gave"),
        ({"examples": lambda rng: b"1"}, "bytes and shapes are needed"),
    ],
)
def test_functions_that_give_something_else_are_named(median: CustomOp, change: dict[str, Any], said: str) -> None:
    unregister_custom(NAME)
    register_custom(replace(median, **change))
    with pytest.raises((ModelError, ShapeError), match=said):
        rlx_edge.check_custom(NAME, graphs=1)


@pytest.mark.parametrize("given", [None, 3, {"rows": "many"}, {"rows": 2**31}])
def test_parameters_that_are_no_numbers_are_named(median: CustomOp, given: object) -> None:
    assert median.kernel is not None
    unregister_custom(NAME)
    register_custom(replace(median, kernel=replace(median.kernel, params=lambda *facts: given)))
    with pytest.raises(ModelError, match=r"Custom 'y': (params gave|the kernel median_s8 gets rows = )"):
        rlx_edge.check_custom(NAME, graphs=1)


def test_lists_and_numpy_numbers_are_shapes(median: CustomOp) -> None:
    unregister_custom(NAME)
    infer = lambda op, operands: (list(map(np.int64, operands[0].shape)), DType.I8)  # noqa: E731
    register_custom(replace(median, infer=infer))
    assert rlx_edge.check_custom(NAME, graphs=1) == 8


def test_what_has_no_kernel_is_refused(median: CustomOp, tmp_path: Path) -> None:
    unregister_custom(NAME)
    register_custom(replace(median, kernel=None))
    g = rlx_edge.Graph("net")
    g.output(g.custom(NAME, g.input("x", (1, 8)), attrs=b"\3"))
    net = g.build()
    with pytest.raises(UnsupportedError, match="not registered with a C kernel"):
        rlx_edge.quantize(net, rlx_edge.calibrate(net, rlx_edge.load_data(samples(tmp_path), net)))
    with pytest.raises(UnsupportedError, match="not registered with a C kernel"):
        rlx_edge.check_custom(NAME)


def samples(folder: Path) -> Path:
    np.savez(folder / "x.npz", x=np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32))
    return folder / "x.npz"


@pytest.mark.parametrize("name", ["rlx_conv_s8", "a b", "", "x;", "int*"])
def test_names_are_names_in_c(name: str) -> None:
    with pytest.raises(ModelError, match="a name in C"):
        CustomKernel(name, "t", "", "", lambda *_: {})


def test_the_page_runs_on_host_and_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its example and its commands as they stand; without --ops the model is told to lack its op."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    example, commands = code_blocks(ROOT / "docs" / "custom-ops.md")
    exec("\n".join(line for _, line in example), {})
    assert capsys.readouterr().out == "64 comparisons of C and reference\n"
    for _, line in commands:
        unregister_custom(NAME)  # Each command is a process of its own otherwise.
        code, shown, said = here(*line.split()[1:])
        assert code == 0, said
    assert "exact: 64 bytes compared, none differs" in shown
    assert (tmp_path / "bundle" / "rlx" / "median_s8.c").read_text() == (EXAMPLE / "median_s8.c").read_text()
    unregister_custom(NAME)
    code, _, said = here("generate", "median.rlx", "-o", "other")
    assert code == 2 and "'example.median' is not registered: rlx-edge --ops FILE.py" in said
