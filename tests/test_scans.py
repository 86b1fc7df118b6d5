"""Recurrences, against scipy's filters where coefficients are constant, and against sums over all earlier steps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from scipy.signal import lfilter

from rlx_edge.ir import Array
from rlx_edge.ir.ops.scans import GatedDeltaNet, Mamba2, SelectiveScan

SEEDS = st.integers(0, 1 << 20)
BATCH, HEADS = 2, 3
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def draws(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    draw = np.random.default_rng(seed).normal
    return [draw(size=shape).astype(np.float32) for shape in shapes]


def unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


@FEW
@given(st.integers(1, 7), st.integers(1, 4), SEEDS)
def test_constant_selective_scan_is_a_bank_of_scipys_filters(length: int, size: int, seed: int) -> None:
    x, delta, a, b, c = draws(seed, (BATCH, length, HEADS), (HEADS,), (HEADS, size), (size,), (size,))
    delta, a = np.abs(delta), -np.abs(a)
    expected = np.zeros(x.shape)
    for channel, n in np.ndindex(HEADS, size):
        step = float(delta[channel])
        poles = [1, -np.exp(step * float(a[channel, n]))]
        expected[:, :, channel] += lfilter([c[n] * step * b[n]], poles, x[:, :, channel], axis=1)
    everywhere = [np.broadcast_to(v, (BATCH, length, len(v))).copy() for v in (delta, b, c)]
    np.testing.assert_allclose(compute(SelectiveScan(size), x, everywhere[0], a, *everywhere[1:]), expected, **CLOSE)


@FEW
@given(st.integers(1, 7), st.integers(1, 4), SEEDS)
def test_selective_scan_is_a_sum_over_earlier_steps(length: int, size: int, seed: int) -> None:
    """y_t is the sum over s <= t and n of c_t[n] b_s[n] delta_s x_s exp(a[n] (delta_(s + 1) + .. + delta_t))."""
    wide, state = (BATCH, length, HEADS), (BATCH, length, size)
    x, delta, a, b, c = draws(seed, wide, wide, (HEADS, size), state, state)
    delta, a = np.abs(delta), -np.abs(a)
    past = np.cumsum(delta.astype(np.float64), axis=1)
    expected = np.zeros(wide)
    for t in range(length):
        for s in range(t + 1):
            decay = np.exp(a * (past[:, t] - past[:, s])[..., None])
            expected[:, t] += np.einsum("bn,bn,bcn->bc", c[:, t], b[:, s], decay) * delta[:, s] * x[:, s]
    np.testing.assert_allclose(compute(SelectiveScan(size), x, delta, a, b, c), expected, **CLOSE)


@FEW
@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), SEEDS)
def test_constant_mamba2_is_scipys_filter(length: int, width: int, size: int, seed: int) -> None:
    x, dt, a, b, c = draws(seed, (BATCH, length, HEADS, width), (HEADS,), (HEADS,), (HEADS, size), (HEADS, size))
    dt, a = np.abs(dt), -np.abs(a)
    expected = np.zeros(x.shape)
    for h in range(HEADS):
        poles = [1, -np.exp(float(dt[h]) * float(a[h]))]
        expected[:, :, h] = lfilter([dt[h] * (b[h] @ c[h])], poles, x[:, :, h], axis=1)
    steps = [np.broadcast_to(v, (BATCH, length, *v.shape)).copy() for v in (dt, b, c)]
    np.testing.assert_allclose(compute(Mamba2(width, size), x, steps[0], a, *steps[1:]), expected, **CLOSE)


@FEW
@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), SEEDS)
def test_mamba2_is_a_masked_product(length: int, width: int, size: int, seed: int) -> None:
    """The dual form: scores c_t . b_s, decayed from s to t, times dt_s x_s."""
    wide, state = (BATCH, length, HEADS, width), (BATCH, length, HEADS, size)
    x, dt, a, b, c = draws(seed, wide, wide[:3], (HEADS,), state, state)
    dt, a = np.abs(dt), -np.abs(a)
    past = np.cumsum(dt * a.astype(np.float64), axis=1).transpose(0, 2, 1)
    decay = np.exp(np.minimum(past[..., :, None] - past[..., None, :], 0)) * np.tri(length)
    expected = np.einsum("bthn,bshn,bhts,bsh,bshp->bthp", c, b, decay, dt, x)
    np.testing.assert_allclose(compute(Mamba2(width, size), x, dt, a, b, c), expected, **CLOSE)


@FEW
@given(st.integers(1, 7), st.integers(1, 4), SEEDS)
def test_a_gated_delta_net_of_one_key_is_scipys_filter(length: int, size: int, seed: int) -> None:
    """What it remembers of the key, u = s^T k, follows u_t = exp(g) (1 - beta) u_(t - 1) + beta v_t."""
    (v, k), gates = draws(seed, (BATCH, length, HEADS, size), (size,)), np.random.default_rng(seed).random((2, HEADS))
    g, beta = -gates[0].astype(np.float32), gates[1].astype(np.float32)
    key = np.broadcast_to(unit(k), v.shape).copy()
    expected = np.zeros(v.shape)
    for h in range(HEADS):
        poles = [1, -np.exp(float(g[h])) * (1 - float(beta[h]))]
        expected[:, :, h] = lfilter([beta[h]], poles, v[:, :, h], axis=1) / np.sqrt(size)
    steps = [np.broadcast_to(each, (BATCH, length, HEADS)).copy() for each in (g, beta)]
    np.testing.assert_allclose(compute(GatedDeltaNet(size, False, False), key, key, v, *steps), expected, **CLOSE)


@FEW
@given(st.integers(1, 6), st.integers(1, 4), st.booleans(), st.booleans(), SEEDS)
def test_gated_delta_net_is_a_sum_over_earlier_steps(
    length: int, size: int, carry: bool, per_channel: bool, seed: int
) -> None:
    """What step s wrote passes each later step r by the matrix (I - beta_r k_r k_r^T) diag(exp(g_r))."""
    wide, narrow = (BATCH, length, HEADS, size), (BATCH, length, HEADS)
    q, k, v, g, beta, state = draws(
        seed, wide, wide, wide, wide if per_channel else narrow, narrow, (BATCH, HEADS, size, size)
    )
    q, k, g, beta = unit(q), unit(k), -np.abs(g), np.abs(beta) % 1
    expected, kept = np.zeros(wide), state.copy()
    for batch, h in np.ndindex(BATCH, HEADS):
        rates = np.broadcast_to(g[batch, :, h].reshape(length, -1), (length, size)).astype(np.float64)
        ks, bs = k[batch, :, h].astype(np.float64), beta[batch, :, h].astype(np.float64)
        passed = [(np.eye(size) - bs[r] * np.outer(ks[r], ks[r])) @ np.diag(np.exp(rates[r])) for r in range(length)]
        for t in range(length):
            total = np.zeros((size, size))
            written = [bs[s] * np.outer(ks[s], v[batch, s, h]) for s in range(t + 1)]
            for s, what in enumerate([state[batch, h] * carry, *written]):
                for r in range(s, t + 1):
                    what = passed[r] @ what
                total += what
            expected[batch, t, h] = total.T @ q[batch, t, h] / np.sqrt(size)
    op = GatedDeltaNet(size, carry, per_channel)
    found = compute(op, q, k, v, g, beta, *([state] if carry else []))
    np.testing.assert_allclose(found, expected, **CLOSE)
    np.testing.assert_array_equal(state, kept)
