"""Metrics: known values, invariances, and one clear line for labels and functions that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.data import Data
from rlx_edge.errors import DataError, EdgeError
from rlx_edge.evaluate import evaluate
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops import Reshape
from rlx_edge.metrics import anomaly_scores, auc, find_metric, top1


def identity(*shape: int, quant: QuantParams | None = None) -> Graph:
    """A model that gives its input: an autoencoder without error."""
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, *shape), DType.F32 if quant is None else DType.I8, quant))
    return builder.build([builder.add(Reshape((1, *shape)), [x], "y", quant)])


def test_auc_of_known_scores() -> None:
    assert auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])) == 0.75
    assert auc(np.array([1.0, 2, 3, 4]), np.array([0, 0, 1, 1])) == 1
    assert auc(np.array([1.0, 2, 3, 4]), np.array([1, 1, 0, 0])) == 0
    assert auc(np.array([1.0, 1, 1]), np.array([True, False, True])) == 0.5


def by_pairs(scores: Array, labels: Array) -> float:
    """The definition: the share of pairs in the right order, ties half."""
    difference = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=40))
def test_auc_is_the_share_of_ordered_pairs(rows: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([r[0] for r in rows], np.float32), np.array([int(r[1]) for r in rows])
    if 0 < labels.sum() < len(labels):
        assert auc(scores, labels) == pytest.approx(by_pairs(scores, labels), abs=1e-12)
        assert auc(np.exp(scores), labels) == pytest.approx(auc(scores, labels))
        assert auc(-scores, labels) == pytest.approx(1 - auc(scores, labels))
    else:
        with pytest.raises(DataError, match="both labels"):
            auc(scores, labels)


@pytest.mark.parametrize("labels", [np.array([0, 2]), np.array(["a", "b"]), np.zeros((2, 2)), np.array([0.5, 1])])
def test_auc_needs_labels_of_0_and_1(labels: Array) -> None:
    with pytest.raises(DataError, match="auc needs one label a sample"):
        auc(np.zeros(2), labels)


def test_an_autoencoder_is_scored_by_its_error() -> None:
    inputs = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(anomaly_scores(inputs + np.array([[1], [3]]), inputs), [1, 9])
    np.testing.assert_array_equal(anomaly_scores(np.array([[3.0], [1.0]]), inputs), [3, 1])
    for other in (None, np.zeros((2, 5))):
        with pytest.raises(DataError, match="auc needs an output of one number"):
            anomaly_scores(inputs, other)


@pytest.mark.parametrize("quant", [None, QuantParams.per_tensor(0.5, 3)])
def test_auc_of_a_model(quant: QuantParams | None) -> None:
    values = np.arange(6).reshape(6, 1)
    data = Data({"x": values.astype(np.float32 if quant is None else np.int8)}, np.array([0, 0, 1, 0, 1, 1]))
    found = evaluate(identity(1, quant=quant), data, "auc", "reference")
    assert (found.metric, found.value, found.n) == ("auc", 8 / 9, 6)
    wide = Data(
        {"x": np.zeros((6, 4), values.dtype if quant is None else np.int8).astype(data.inputs["x"].dtype)}, data.labels
    )
    assert evaluate(identity(4, quant=quant), wide, "auc", "reference").value == 0.5


def test_labels_outside_of_the_classes_are_named() -> None:
    with pytest.raises(DataError, match=r"0 to 2; labels outside: 2, the first is 3 of sample 1"):
        top1(np.zeros((4, 3)), np.array([0, 3, 1, -1]))


METRIC = """
from dataclasses import dataclass
import numpy as np

@dataclass
class Kept:
    value: float

def mean_error(outputs, labels):
    return np.abs(outputs.reshape(-1) - labels).mean()

def whole(outputs, labels):
    return len(labels)

def array_of_one(outputs, labels):
    return Kept(np.array([0.25])).value

def nothing(outputs, labels): pass
def text(outputs, labels): return "good"
def nan(outputs, labels): return float("nan")
def many(outputs, labels): return np.zeros(3)
def prints(outputs, labels):
    print("printed")
    return 0.5
def huge(outputs, labels): return 10**400
def silent(outputs, labels):
    class Odd:
        def __str__(self): raise ValueError("no text")
    return Odd()
def fails(outputs, labels):
    raise ValueError("first line\\nsecond line")
def leaves(outputs, labels):
    raise SystemExit(3)
def one_argument(outputs): return 1.0
constant = 3
def n(outputs, labels): return 1.0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.py"
    path.write_text(METRIC)
    return path


def run(metric: str) -> Any:
    data = Data({"x": np.array([[1], [2]], np.float32)}, np.array([1.0, 4.0]))
    return evaluate(identity(1), data, metric)


@pytest.mark.parametrize(("name", "value"), [("mean_error", 1.0), ("whole", 2.0), ("array_of_one", 0.25)])
def test_a_function_of_the_users(file: Path, name: str, value: float) -> None:
    found = run(f"{file}:{name}")
    assert (found.metric, found.value, found.n) == (name, value, 2)
    assert type(found.value) is float


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "gave None, not a finite number"),
        ("text", "gave good, not a finite number"),
        ("nan", "gave nan, not a finite number"),
        ("many", "not a finite number"),
        ("huge", "not a finite number"),
        ("silent", "ValueError: no text"),
        ("fails", r"ValueError: first line \(line \d+ of metrics.py\) on outputs float32\[2, 1\]"),
        ("leaves", "SystemExit: 3"),
        ("one_argument", "TypeError"),
        ("constant", "has no function 'constant'"),
        ("missing", "has no function 'missing'"),
        ("n", "another name"),
    ],
)
def test_a_function_that_fails_gives_one_line(file: Path, name: str, words: str) -> None:
    with pytest.raises(EdgeError, match=words) as caught:
        run(f"{file}:{name}")
    assert "\n" not in str(caught.value)


def test_what_a_function_prints_is_no_result(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"print('loaded')\n{METRIC}")
    assert run(f"{file}:prints").value == 0.5
    assert tuple(capsys.readouterr()) == ("", "loaded\nprinted\n")


def test_files_that_are_no_metrics(tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="no such file"):
        find_metric(f"{tmp_path}/none.py:fn")
    for text, words in (
        ("def f(:", r"SyntaxError: [^()]*\(bad.py, line 1\) while"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("exit(1)", "SystemExit"),
    ):
        (tmp_path / "bad.py").write_text(text)
        with pytest.raises(EdgeError, match=words) as caught:
            find_metric(f"{tmp_path}/bad.py:f")
        assert "\n" not in str(caught.value)
    for other in ("best", "file.py", "file.py:", "file.py:a b", "a:b", ""):
        with pytest.raises(EdgeError, match="there are top1, auc, mse, and FILE"):
            find_metric(other)
