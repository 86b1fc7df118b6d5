"""Fake quantization in PyTorch: the reference's bits forward, its gradients backward, and PyTorch's own where they mean
the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_edge.ir import Array, DType, GraphBuilder, TensorType
from rlx_edge.ir.ops import (
    EMA,
    FakeQuantize,
    FakeQuantizeBackward,
    FakeQuantizeLSQ,
    FakeQuantizeLSQBackwardScale,
    FakeQuantizeLSQBackwardX,
    Fixed,
    Op,
    PerBatch,
    ScaleMode,
    SteKind,
)
from rlx_edge.ir.ops.fake_quant import largest
from rlx_edge.reference import run

torch = pytest.importorskip("torch", reason="torch is an extra: make test-qat")

from rlx_edge.qat.autograd import fake_quantize, lsq, quantize_affine, round_half_away  # noqa: E402

AXES = [None, 0, 1, -1]
BITS = [2, 3, 4, 8]


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def reference(op: Op, *operands: Array) -> Array:
    builder = GraphBuilder("one")
    names = [f"x{i}" for i in range(len(operands))]
    inputs = [builder.input(n, TensorType(v.shape, DType.F32)) for n, v in zip(names, operands, strict=True)]
    return run(builder.build([builder.add(op, inputs, "y")]), dict(zip(names, operands, strict=True)))["y"]


def leaf(values: Array) -> Any:
    return torch.tensor(values, requires_grad=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_exact(dtype: type) -> None:
    halves = (np.arange(-4000, 4000) / 2).astype(dtype)
    large = (2.0**22 + np.arange(-9, 9) / 2).astype(dtype)
    x = np.concatenate([halves, np.nextafter(halves, dtype(9e9)), np.nextafter(halves, dtype(-9e9)), large, -large])
    whole = np.trunc(x)
    wanted = whole + np.sign(x) * (np.abs(x - whole) >= 0.5)
    np.testing.assert_array_equal(round_half_away(torch.from_numpy(x)).numpy(), wanted)


@pytest.mark.parametrize("mode", [PerBatch(), EMA(0.9), Fixed()], ids=str)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("bits", BITS)
def test_forward_has_the_references_bits(bits: int, axis: int | None, mode: ScaleMode) -> None:
    x = random(1, 3, 4, 5)
    channels = 1 if axis is None else x.shape[axis]
    state = np.abs(random(2, channels)) / largest(bits)
    op = FakeQuantize(bits, axis, scale_mode=mode)
    operands = (x,) if isinstance(mode, PerBatch) else (x, state)
    held = None if isinstance(mode, PerBatch) else torch.tensor(state)
    np.testing.assert_array_equal(fake_quantize(torch.tensor(x), op, held).numpy(), reference(op, *operands))
    if isinstance(mode, EMA):
        assert held is not None
        assert not np.array_equal(held.numpy(), state)
        fixed = FakeQuantize(bits, axis, scale_mode=Fixed())
        np.testing.assert_array_equal(reference(op, *operands), reference(fixed, x, held.numpy()))
    elif held is not None:
        np.testing.assert_array_equal(held.numpy(), state)


@pytest.mark.parametrize("ste", SteKind, ids=lambda ste: ste.value)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("bits", BITS)
def test_backward_is_the_references(bits: int, axis: int | None, ste: SteKind) -> None:
    x, dy = random(3, 3, 4, 5), random(4, 3, 4, 5)
    held = leaf(x)
    fake_quantize(held, FakeQuantize(bits, axis, ste)).backward(torch.tensor(dy))
    wanted = reference(FakeQuantizeBackward(bits, axis, ste), x, dy)
    np.testing.assert_allclose(held.grad.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("bits", BITS)
def test_lsq_is_the_references(bits: int, axis: int | None) -> None:
    x, dy = random(5, 3, 4, 5), random(6, 3, 4, 5)
    scale = (np.abs(random(7, 1 if axis is None else x.shape[axis])) + np.float32(0.3)) / np.float32(largest(bits))
    held, steps = leaf(x), leaf(scale)
    y = lsq(held, steps, FakeQuantizeLSQ(bits, axis))
    y.backward(torch.tensor(dy))
    np.testing.assert_array_equal(y.detach().numpy(), reference(FakeQuantizeLSQ(bits, axis), x, scale))
    by_x = reference(FakeQuantizeLSQBackwardX(bits, axis), x, scale, dy)
    by_scale = reference(FakeQuantizeLSQBackwardScale(bits, axis), x, scale, dy)
    np.testing.assert_array_equal(held.grad.numpy(), by_x)
    np.testing.assert_allclose(steps.grad.numpy(), by_scale, rtol=1e-4, atol=1e-4)
    assert np.any(by_x == 0)
    assert np.any(by_x != 0)


@pytest.mark.parametrize("bits", BITS)
def test_lsq_is_pytorchs_learnable_fake_quantization(bits: int) -> None:
    """PyTorch's zeroes gradients by the rounded value: it differs within half a step of the edge, left out here."""
    x, dy, most = random(8, 6, 50), random(9, 6, 50), largest(bits)
    scale = (np.abs(random(10, 6)) + np.float32(0.5)) / np.float32(most)
    steps = np.abs(x / scale[:, None])
    x = np.where((steps > most) & (steps < most + 0.5), np.float32(0), x)
    ours, theirs = (leaf(x), leaf(scale)), (leaf(x), leaf(scale))
    y = lsq(*ours, FakeQuantizeLSQ(bits, 0))
    zeros = torch.zeros(6)
    z = torch._fake_quantize_learnable_per_channel_affine(*theirs, zeros, 0, -most, most, 1.0)
    for made in (y, z):
        made.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(ours[0].grad.numpy(), theirs[0].grad.numpy())
    np.testing.assert_allclose(ours[1].grad.numpy(), theirs[1].grad.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("zero_point", [-128, 0, 37])
def test_affine_is_pytorchs_fake_quantization(zero_point: int) -> None:
    x, dy = 20 * random(11, 1000), random(12, 1000)
    ours, theirs = leaf(x), leaf(x)
    y = quantize_affine(ours, 0.13, zero_point)
    z = torch.fake_quantize_per_tensor_affine(theirs, 0.13, zero_point, -128, 127)
    for made in (y, z):
        made.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())
    assert np.any(ours.grad.numpy() == 0)


def test_affine_ties() -> None:
    """Away from zero: of x, or of the code; 2.5 - 3 is -0.5, which goes to -1, where 2.5 goes to 3 and 3 - 3 to 0."""
    x = torch.tensor([2.5, -2.5])
    assert quantize_affine(x, 1.0, -3).tolist() == [3, -3]
    assert quantize_affine(x, 1.0, -3, codes_tie=True).tolist() == [2, -3]
    assert quantize_affine(torch.tensor([1.49, 1.46]), 1.0, 0, shift=4.0).tolist() == [2, 1]


@pytest.mark.parametrize("bits", BITS)
def test_gradcheck_where_rounding_stands_still(bits: int) -> None:
    """Beyond the largest magnitude, the op is clipping, whose derivatives are true ones: 0 by x, +-m by the scale."""
    scale = torch.tensor([0.2, 0.5], dtype=torch.float64, requires_grad=True)
    most = largest(bits)
    x = torch.tensor([[1.1 * most * 0.2, -3.0 * most * 0.2], [2.0 * most * 0.5, -1.3 * most * 0.5]])
    x = x.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, s: lsq(a, s, FakeQuantizeLSQ(bits, 0)), (x, scale))


@pytest.mark.parametrize("bits", BITS)
def test_lsq_is_what_autograd_makes_of_its_definition(bits: int) -> None:
    """clamp(z + r, -m, m) s with the rounding error r held still, differentiated by PyTorch itself, in float64."""
    x = torch.randn(4, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(bits)).requires_grad_()
    scale = torch.tensor([0.05, 0.2, 0.7, 2.0], dtype=torch.float64, requires_grad=True)
    most = largest(bits)
    dy = torch.randn(4, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    ours = torch.autograd.grad(lsq(x, scale, FakeQuantizeLSQ(bits, 0)), (x, scale), dy)
    z = x / scale[:, None]
    inside = z.abs() <= most
    defined = torch.where(inside, z + (round_half_away(z) - z).detach(), torch.sign(z).detach() * most) * scale[:, None]
    theirs = torch.autograd.grad(defined, (x, scale), dy)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("ste", [SteKind.TANH, SteKind.HARD_TANH], ids=lambda ste: ste.value)
def test_smooth_estimators_are_what_autograd_makes_of_their_integrals(ste: SteKind) -> None:
    x = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    dy = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    (ours,) = torch.autograd.grad(fake_quantize(x, FakeQuantize(3, None, ste)), x, dy)
    scale = x.detach().abs().max() / 3

    def smooth(x: Any) -> Any:
        return scale * torch.tanh(x / scale) if ste is SteKind.TANH else x - x * x.abs() / (6 * scale)

    assert torch.autograd.gradcheck(smooth, (x,))
    (theirs,) = torch.autograd.grad(smooth(x), x, dy)
    torch.testing.assert_close(ours, theirs)
