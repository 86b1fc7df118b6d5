"""Fourier transforms and what is read from spectra, against onnxruntime, numpy.fft and scipy.signal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle
from scipy.signal import welch

from rlx_edge.ir import Array
from rlx_edge.ir.ops.spectral import Fft, FftButterflyStage, FftNorm, FftQ, FftQScale, LogMel, WelchPeaks

SEEDS = st.integers(0, 1 << 20)


def blocks(values: Array) -> Array:
    """Complex numbers as real parts, then imaginary parts, in float32."""
    return np.concatenate([values.real, values.imag], axis=-1).astype(np.float32)


def complex_of(values: Array) -> Array:
    re, im = np.split(values.astype(np.float64), 2, axis=-1)
    return np.asarray(re + 1j * im)


def factor(norm: FftNorm, inverse: bool, size: int) -> float:
    """By which the vocabulary's transform differs from a plain sum."""
    if norm is FftNorm.ORTHO:
        return 1 / np.sqrt(size)
    return 1 / size if norm is FftNorm.FORWARD and inverse else 1.0


def noise(seed: int, *shape: int) -> Array:
    draw = np.random.default_rng(seed).normal
    return np.asarray(draw(size=shape) + 1j * draw(size=shape))


@FEW
@given(st.integers(1, 20), st.booleans(), st.sampled_from(FftNorm), SEEDS)
def test_fft_is_onnxruntimes(size: int, inverse: bool, norm: FftNorm, seed: int) -> None:
    """Its DFT of an inverse has the factor 1 / N."""
    x = noise(seed, 2, size)
    pairs = np.stack([x.real, x.imag], axis=-1).astype(np.float32)
    node = helper.make_node("DFT", ["x"], ["y"], axis=1, inverse=int(inverse))
    (found,) = run_oracle(make_model([node], {"x": pairs.shape}, ["y"]), {"x": pairs})
    expected = (found[..., 0] + 1j * found[..., 1]) * (size if inverse else 1) * factor(norm, inverse, size)
    op = Fft(inverse, norm)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(complex_of(compute(op, blocks(x))), expected, **close)
    np.testing.assert_allclose(compute(op, x.astype(np.complex64)), expected, **close)
    in_f64 = compute(op, np.concatenate([x.real, x.imag], axis=-1))
    matrix = np.exp((2j if inverse else -2j) * np.pi * np.outer(np.arange(size), np.arange(size)) / size)
    np.testing.assert_allclose(complex_of(in_f64), x @ matrix * factor(norm, inverse, size), rtol=1e-9, atol=1e-9)


@FEW
@given(st.integers(0, 6), st.booleans(), st.sampled_from(FftNorm), st.sampled_from(FftQScale), SEEDS)
def test_fixed_point_fft_is_numpys_within_its_roundings(
    stages: int, inverse: bool, norm: FftNorm, scale: FftQScale, seed: int
) -> None:
    """Each stage adds at most a unit or so to what it doubles, or with halves keeps."""
    size, halved = 2**stages, scale is FftQScale.PER_STAGE
    limit = 2**29 if halved else 2**22
    x = np.random.default_rng(seed).integers(-limit, limit, (3, 2 * size), dtype=np.int32)
    exact = np.fft.ifft(complex_of(x)) * size if inverse else np.fft.fft(complex_of(x))
    by_norm = factor(norm, inverse, size)
    error = np.abs(complex_of(compute(FftQ(inverse, norm, scale), x)) - exact * by_norm / (size if halved else 1))
    twiddles = stages * np.abs(complex_of(x)).max() * 2.0**-29
    per_element = stages * 1.5 + twiddles if halved else size * (1.5 + twiddles)
    assert error.max() <= per_element * by_norm + 1


@pytest.mark.parametrize(
    ("scale", "given", "expected"),
    [
        (FftQScale.NONE, [2**31 - 1, 1, 0, 0], [2**31 - 1, 2**31 - 2, 0, 0]),
        (FftQScale.NONE, [-(2**31), 1, 5, -3], [1 - 2**31, -(2**31), 2, 8]),
        (FftQScale.PER_STAGE, [3, 0, -3, 0], [2, 2, -1, -1]),
        (FftQScale.PER_STAGE, [2**31 - 1, 2**31 - 1, -(2**31), -(2**31)], [2**31 - 1, 0, -(2**31), 0]),
    ],
    ids=["saturates above", "saturates below", "halves round up at ties", "the whole range"],
)
def test_two_elements_in_fixed_point(scale: FftQScale, given: list[int], expected: list[int]) -> None:
    """A sum and a difference, of the two real and the two imaginary parts."""
    assert compute(FftQ(False, FftNorm.BACKWARD, scale), np.array([given], np.int32)).tolist() == [expected]


def pairs_of(x: Array) -> Array:
    return np.stack([x.real, x.imag], axis=-1).astype(np.float32)


def stage_factors(stage: int, size: int) -> Array:
    return np.exp(-1j * np.pi * (np.arange(size // 2) % 2**stage) / 2**stage)


@FEW
@given(st.integers(1, 6), SEEDS)
def test_all_butterfly_stages_are_numpys_fft(stages: int, seed: int) -> None:
    size = 2**stages
    x = noise(seed, 2, size)
    order = [sum((place >> bit & 1) << (stages - 1 - bit) for bit in range(stages)) for place in range(size)]
    state, runs = pairs_of(x[:, order]), np.ones(size // 2, np.float32)
    for stage in range(stages):
        w = pairs_of(stage_factors(stage, size))
        state = compute(FftButterflyStage(stage, size), state, runs, 0 * runs, w[:, 0], w[:, 1])
    np.testing.assert_allclose(state[..., 0] + 1j * state[..., 1], np.fft.fft(x), rtol=1e-4, atol=1e-4)


@FEW
@given(st.integers(1, 4), st.integers(0, 3), SEEDS)
def test_gates_leave_butterflies_out_and_rev_swaps_them(stages: int, stage: int, seed: int) -> None:
    """Element by element: the partner of a place differs in the bit that the stage is about."""
    size, stage = 2**stages, stage % stages
    x, w = pairs_of(noise(seed, 2, size)), pairs_of(noise(seed + 1, size // 2))
    gate, rev = np.random.default_rng(seed).integers(0, 2, (2, size // 2)).astype(np.float32)
    found = compute(FftButterflyStage(stage, size), x, gate, rev, w[:, 0], w[:, 1])
    firsts = [place for place in range(size) if not place >> stage & 1]
    for j, place in enumerate(firsts):
        a, b = (x[:, i, 0] + 1j * x[:, i, 1] for i in (place, place | 1 << stage))
        turned = complex(*w[j]) * b
        expected = [a + turned, a - turned]
        if rev[j]:
            expected.reverse()
        if not gate[j]:
            expected = [a, b]
        for i, value in zip((place, place | 1 << stage), expected, strict=True):
            np.testing.assert_allclose(found[:, i], pairs_of(value), rtol=1e-4, atol=1e-5)


@FEW
@given(st.sampled_from([(8,), (5, 16), (2, 3, 64)]), st.integers(1, 6), st.floats(-6, 3), SEEDS)
def test_log_mel_is_whispers(shape: tuple[int, ...], mels: int, loudness: float, seed: int) -> None:
    """As nodes of ONNX. Some frames are silent, so that the floor and the range below the top count."""
    frames = np.random.default_rng(seed).normal(size=shape) * 10.0**loudness
    if len(shape) > 1:
        frames[..., 0, :] = 0
    spectrum, bins = blocks(np.fft.fft(frames)), shape[-1] // 2 + 1
    filters = np.abs(np.random.default_rng(seed).normal(size=(mels, bins))).astype(np.float32)
    constants = {"f": filters.T, "two": np.array(2.0), "floor": np.array(1e-10), "eight": np.array(8.0)}
    constants |= {"four": np.array(4.0), "ten": np.log(np.array(10.0))}
    steps = [
        *(
            "Split x re,im",
            "Mul re,re rr",
            "Mul im,im ii",
            "Add rr,ii p",
            "MatMul half,f m",
            "Max m,floor a",
            "Log a l",
        ),
        *("Div l,ten y", "ReduceMax y top", "Sub y,eight unused", "Sub top,eight low", "Max y,low z"),
        *("Add z,four u", "Div u,four out"),
    ]
    axes = list(range(len(shape)))[-2:]
    attributes: dict[str, dict[str, object]] = {"Split": {"axis": -1}, "ReduceMax": {"axes": axes, "keepdims": 1}}
    nodes = []
    for step in steps:
        kind, operands, results = step.split()
        nodes.append(helper.make_node(kind, operands.split(","), results.split(","), **attributes.get(kind, {})))
    constants |= {"zero": np.array([0]), "bins": np.array([bins]), "last": np.array([-1])}
    nodes.insert(4, helper.make_node("Slice", ["p", "zero", "bins", "last"], ["half"]))
    narrowed = {name: v.astype(np.float32) if v.dtype == np.float64 else v for name, v in constants.items()}
    (expected,) = run_oracle(make_model(nodes, {"x": spectrum.shape}, ["out"], narrowed), {"x": spectrum})
    np.testing.assert_allclose(compute(LogMel(), spectrum, filters), expected, rtol=1e-4, atol=1e-4)


@FEW
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([2, 8, 9, 32]), st.integers(1, 5), SEEDS)
def test_welch_peaks_are_the_largest_of_scipys_density(batch: int, segments: int, size: int, k: int, seed: int) -> None:
    k = min(k, size // 2 + 1)
    signal = np.random.default_rng(seed).normal(size=(batch, segments * size))
    _, density = welch(signal, 1.0, "boxcar", size, 0, detrend=False, return_onesided=False)
    powers = density[:, : size // 2 + 1] * size
    spectra = blocks(np.fft.fft(signal.reshape(-1, size)))
    found = compute(WelchPeaks(k, segments), spectra).reshape(batch, k, 2)
    bins = found[..., 0].astype(np.int64)
    assert all(len(set(row)) == k for row in bins)
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found[..., 1], -np.sort(-powers, axis=1)[:, :k], **close)
    np.testing.assert_allclose(found[..., 1], np.take_along_axis(powers, bins, axis=1), **close)


def test_of_equal_peaks_the_lower_bin_is_first() -> None:
    spectra = np.array([[0, 3, 0, 9, 4, 0, -3, 9]], np.float32)  # Powers 16, 9, 9 and, past the half, one that is not.
    assert compute(WelchPeaks(3, 1), spectra).tolist() == [[0, 16, 1, 9, 2, 9]]
