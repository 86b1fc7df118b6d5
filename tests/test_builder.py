"""Graphs written by hand: the same expression on handles and on numpy arrays gives the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from command import here
from hypothesis import given, settings
from hypothesis import strategies as st
from test_docs import ROOT

import rlx_edge
from rlx_edge import F32, I8, I32, Graph
from rlx_edge.errors import ModelError
from rlx_edge.ir import DType, QuantParams, to_text
from rlx_edge.ir.ops import Layout, Trilu
from rlx_edge.reference import run

A = np.random.default_rng(1).uniform(0.5, 2.0, (2, 3, 4)).astype(np.float32)
B = np.random.default_rng(2).uniform(0.5, 2.0, (3, 4)).astype(np.float32)

EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda a, b: (a + b) * 2 - a / b,
    "reflected": lambda a, b: 1 - (2.5 / a) + 3 * (4 + b),
    "powers": lambda a, b: a**2 + 2**b,
    "array on the left": lambda a, b: B * a + np.ones(4, np.float32),
    "negative": lambda a, b: abs(-a) - b,
    "matmul": lambda a, b: a @ b.T,
    "array times": lambda a, b: B.T @ a,
    "comparisons": lambda a, b: (a < b) & (a != 1.0) | (b >= 1.5) ^ (a > b),
    "equal": lambda a, b: (a == A) & (a <= b),
    "index": lambda a, b: a[1, -2],
    "all axes": lambda a, b: a[0, 1, 2],
    "slices": lambda a, b: a[:, 1:3, ::-2],
    "dots and new axes": lambda a, b: a[..., None, 1:] + b[None, :, None, 3:0:-1],
    "reshape": lambda a, b: a.reshape(4, -1).reshape((2, 12)),
    "transpose": lambda a, b: a.transpose(1, 0, -1) + a.transpose((1, 0, 2)),
    "reversed": lambda a, b: a.T,
    "means": lambda a, b: a.mean((0, 2)) + a.mean(axis=-1, keepdims=True).max((0, 2)),
    "reductions": lambda a, b: a.sum(0) * b.min(1, keepdims=True) + b.prod(),
    "clip": lambda a, b: a.clip(0.75, 1.25),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_mean_what_numpy_means(name: str) -> None:
    expression = EXPRESSIONS[name]
    g = Graph("net")
    made = expression(g.input("a", A.shape), g.input("b", B.shape))
    g.output(made, name="y")
    wanted = expression(A, B)
    found = run(g.build(), {"a": A, "b": B})["y"]
    assert (made.shape, made.dtype) == (wanted.shape, DType.of(wanted))
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


ENTRIES = st.one_of(
    st.integers(-6, 6), st.none(), st.just(...), st.builds(slice, *[st.none() | st.integers(-6, 6)] * 2),
    st.builds(slice, st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6), st.sampled_from([-3, -1, 1, 2])),
)  # fmt: skip


@settings(deadline=None)
@given(index=st.lists(ENTRIES, max_size=4).map(tuple))
def test_any_index_is_numpys_or_an_error(index: tuple[Any, ...]) -> None:
    g = Graph("net")
    x = g.input("x", A.shape)
    try:
        wanted = A[index]
    except IndexError:
        wanted = np.empty(0)
    if wanted.size == 0:
        with pytest.raises(ModelError, match="x"):
            x[index]
        return
    g.output(x[index] + 0)
    (found,) = run(g.build(), {"x": A}).values()
    np.testing.assert_array_equal(found, wanted)


def test_layers_in_both_layouts_are_one_function() -> None:
    rng = np.random.default_rng(3)
    x, w, bias = rng.normal(size=(1, 3, 9, 8)), rng.normal(size=(4, 3, 3, 3)), rng.normal(size=4)
    found = []
    for layout, order in ((Layout.NCHW, (0, 1, 2, 3)), (Layout.NHWC, (0, 2, 3, 1))):
        g = Graph("net", layout)
        image = g.input("x", tuple(np.transpose(x, order).shape))
        y = g.conv(image, np.transpose(w, order), bias, stride=(2, 1), padding="same", dilation=2)
        g.output(g.avg_pool(g.max_pool(g.leaky_relu(y), 2, stride=1, padding=(0, 0, 1, 1)), (2, 1)))
        values = run(g.build(), {"x": np.transpose(x, order).astype(np.float32)})
        found.append(np.transpose(*values.values(), np.argsort(order)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)
    assert found[0].shape == (1, 4, 2, 8)


def test_names_are_given_and_kept_apart() -> None:
    g = Graph("net")
    x = g.input("x", (1, 1, 8, 8))
    y = g.relu(g.conv(g.relu(g.conv(x, np.ones((2, 1, 3, 3)), np.ones(2))), np.ones((2, 2, 3, 3)), name="head"))
    g.output(g.op(Trilu(True, 0), y), g.hard_swish(y))
    names = [node.name for node in g.build().nodes]
    first = ["x", "conv.weight", "conv", "conv.bias", "reshape", "conv.biased", "relu", "head.weight", "head"]
    assert names == [*first, "relu_2", "trilu", "hard_swish"]


def other() -> Any:
    return Graph("other").input("z", (2,))


NUMPY: Any = np.int8
TEXT: Any = "f32"


def named_twice(g: Graph, y: Any) -> None:
    g.output(y, name="a")
    g.output(y, name="b")


QUANT = QuantParams.per_tensor(0.5, 0)
MISTAKES: list[tuple[Callable[[Graph, Any], Any], str]] = [
    (lambda g, x: x + np.ones(5), r"add: shapes \[2, 3\] and \[5\] do not broadcast .*x f32\[2, 3\], add.1 f32\[5\]"),
    (lambda g, x: x @ x, r"mat_mul: \[2, 3\] and \[2, 3\] are not"),
    (lambda g, x: x[2], r"x f32\[2, 3\]: index 2 of axis 0, which has 2"),
    (lambda g, x: x[:, 3:], r"x f32\[2, 3\]: 3: of axis 1 has no elements"),
    (lambda g, x: x[0, 0, 0], r"x\[0, 0, 0\] of shape \[2, 3\]: too many indices"),
    (lambda g, x: x[[0, 1]], r"x\[\[0, 1\]\] of shape .*Gather"),
    (lambda g, x: x.reshape(4), r"reshape: \[2, 3\] does not reshape to \[4\]"),
    (lambda g, x: x.mean(2), "mean: axis 2 of a tensor of rank 2"),
    (lambda g, x: x.transpose(0), r"transpose: perm \[0\]"),
    (lambda g, x: x + other(), "z belongs to the graph 'other'"),
    (lambda g, x: x + "1", "add.1: numbers are needed, not str"),
    (lambda g, x: g.input("i", (2,), I32) + 0.5, "add.1: float64 numbers that i32 does not hold"),
    (lambda g, x: g.input("q", (2,), I8, QUANT) + 1, "write the graph in float, then quantize"),
    (lambda g, x: g.input("e", (0, 2)), r"input 'e' of shape \[0, 2\]"),
    (lambda g, x: x.astype(NUMPY), "cast: int8 is no dtype of rlx_edge: F32"),
    (lambda g, x: g.input("e", (1, 2), TEXT), "e: 'f32' is no dtype of rlx_edge"),
    (lambda g, x: g.constant([1], NUMPY), "constant: int8 is no dtype"),
    (lambda g, x: x.mean((1, -1)), r"mean: axes \[1, -1\] name one twice"),
    (lambda g, x: bool(x), "x has no truth value"),
    (lambda g, x: g.conv(x, np.ones((1, 1, 3, 3))), r"conv: .*rank 4.* x f32\[2, 3\]"),
    (lambda g, x: g.custom("unknown", x), "'unknown' is not registered"),
    (lambda g, x: g.where(x > 0, 1, 2), "numbers on both sides"),
    (lambda g, x: g.output(x, x, name="y"), "'y' for 2 outputs"),
    (lambda g, x: g.output(x, name="y"), "output 'y': the tensor is called 'x' already"),
    (lambda g, x: named_twice(g, x + 1), "output 'b': the tensor is called 'a' already"),
    (lambda g, x: g.build(), "'net' has no output"),
]


@pytest.mark.parametrize(("wrong", "message"), MISTAKES)
def test_a_mistake_is_told_where_it_is_made(wrong: Callable[[Graph, Any], Any], message: str) -> None:
    g = Graph("net")
    x = g.input("x", (2, 3), F32)
    with pytest.raises(ModelError, match=message) as caught:
        wrong(g, x)
    assert "\n" not in str(caught.value)


def test_the_front_page_has_graph_and_dtypes() -> None:
    for dtype in DType:
        assert getattr(rlx_edge, dtype.name) is dtype
    assert rlx_edge.Graph is Graph


def test_a_small_network_is_quantized_generated_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's example."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "writing-graphs.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out == "(32, 3) True\n"
    assert (tmp_path / "bundle" / "small" / "small.c").exists()


def test_inspect_shows_text_and_draws(tmp_path: Path) -> None:
    """The text reads back as the graph; names that are markup, or none, are drawn as they are."""
    g = Graph("net")
    x = g.input("<svg onload=x> $\\frac$ [bold]\x1b\n&\u202e", (1, 4))
    y = g.relu(x) * 2
    g.output(y + x, g.concat([y, g.tanh(y)], 1), name=None)
    net = g.build()
    rlx_edge.save(net, tmp_path / "net.rlx")
    code, shown, _ = here("inspect", tmp_path / "net.rlx", "--text", "--plot", tmp_path / "net.svg")
    assert (code, shown) == (0, to_text(net))
    root = ElementTree.fromstring((tmp_path / "net.svg").read_text(encoding="utf-8"))
    assert not any(element.tag.endswith("script") or "onload" in element.attrib for element in root.iter())
