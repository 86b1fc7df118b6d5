"""The recommended recipe reaches what docs/accuracy.md promises, on the models of ../shared, as generated C."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlx_edge.data import load_data
from rlx_edge.formats.load import load
from rlx_edge.quant.recipe import EFFORTS
from rlx_edge.quant.widths import everywhere

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import accuracy  # noqa: E402

TARGETS = {
    "kws": (99.0, 32.2),
    "ic": (99.5, 34.0),
    "mnist_dw": (99.3, 30.0),
    "mnist_resnet": (99.9, 36.6),
    "mnist_valid": (99.6, 36.6),
}
"""Least agreement with float's top-1 in percent, and least SQNR of the logits in dB."""

FOUR_BITS = {
    "kws": (1.0, 22.0),
    "ic": (2.0, 22.0),
    "mnist_dw": (1.0, 18.0),
    "mnist_resnet": (1.0, 26.0),
    "mnist_valid": (1.0, 21.0),
}
"""With weights of 4 bits in every layer: most points of top-1 below float's, and least SQNR of the logits in dB."""

DIGITS = ROOT / "examples" / "digits"

shared = pytest.mark.skipif(not (accuracy.SHARED / "models").is_dir(), reason="needs ../shared")

found: dict[str, accuracy.Result] = {}


def result(name: str) -> accuracy.Result:
    if name not in found:
        found[name] = accuracy.measure(accuracy.load_case(name), EFFORTS["balanced"])
    return found[name]


@shared
@pytest.mark.parametrize("name", TARGETS)
def test_output_sqnr(name: str) -> None:
    assert result(name).sqnr_db >= TARGETS[name][1]


@shared
@pytest.mark.parametrize("name", TARGETS)
def test_top1_is_within_half_a_point_of_float(name: str) -> None:
    case = accuracy.load_case(name)
    top1 = 100 * float((case.logits.argmax(axis=1) == case.labels).mean())
    assert abs(result(name).top1 - top1) <= 0.5


@shared
@pytest.mark.parametrize("name", TARGETS)
def test_agreement(name: str) -> None:
    assert result(name).agreement >= TARGETS[name][0]


@shared
@pytest.mark.parametrize("name", FOUR_BITS)
def test_four_bits_everywhere(name: str) -> None:
    case = accuracy.load_case(name)
    found = accuracy.measure(case, replace(EFFORTS["balanced"], weights=everywhere(4)))
    loss, sqnr_db = FOUR_BITS[name]
    float_top1 = 100 * float((case.logits.argmax(axis=1) == case.labels).mean())
    assert found.top1 >= float_top1 - loss and found.sqnr_db >= sqnr_db


def test_the_benchmark_on_the_digits_example() -> None:
    graph = load(DIGITS / "digits.onnx")
    calibration, test = (load_data(DIGITS / f"digits_{part}.npz", graph) for part in ("calibration", "test"))
    assert test.labels is not None
    case = accuracy.Case(graph, calibration, test, test.labels, accuracy.logits_of(graph, test))
    fast, best = (accuracy.measure(case, EFFORTS[name]) for name in ("fast", "best"))
    assert best.sqnr_db > fast.sqnr_db + 2
    assert min(fast.agreement, best.agreement) > 98
    rows = {"a row": dict.fromkeys(accuracy.NAMES, best)}
    text = accuracy.page(rows, dict.fromkeys(accuracy.NAMES, 90.0))
    assert f"| a row | {' | '.join([str(best)] * 5)} |" in text
    assert "onnxruntime 1.32, min-max" in text


def test_the_benchmark_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(accuracy, "SHARED", tmp_path)
    assert accuracy.main() == 2
    assert "needs ../shared/models" in capsys.readouterr().err
