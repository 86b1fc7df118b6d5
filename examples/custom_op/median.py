"""A median filter as a custom op: shape function, reference, C kernel. Its one attribute is the window's size."""

from math import prod
from pathlib import Path

import numpy as np

import rlx_edge as rlx

HERE = Path(__file__).resolve().parent


def infer(op, operands):
    (x,) = operands
    return x.shape, x.dtype


def reference(op, operands, types, out):
    (x,), size = operands, op.attrs[0]
    ends = [(0, 0)] * (x.ndim - 1) + [(size // 2, size // 2)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ends, mode="edge"), size, axis=-1)
    return np.sort(windows, axis=-1)[..., size // 2]


def params(op, operands, out):
    return {"rows": prod(out.shape[:-1]), "width": out.shape[-1], "size": op.attrs[0]}


def examples(rng):
    shape = rng.integers(1, 9, rng.integers(1, 5))
    return bytes([2 * rng.integers(0, 4) + 1]), (tuple(int(size) for size in shape),)


rlx.register_custom(
    rlx.CustomOp(
        "example.median",
        infer,
        reference,
        rlx.CustomKernel(
            "median_s8",
            "median_t",
            (HERE / "median_s8.h").read_text(),
            (HERE / "median_s8.c").read_text(),
            params,
            scratch=lambda op, operands, out: op.attrs[0],
        ),
        same_quant=True,
        examples=examples,
    )
)
