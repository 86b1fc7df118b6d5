"""What the loops of the portable kernels do, counted: the cost model fits instructions to these counts.

A function per kernel, from a call to counts of the rows [first_row, rows) that it computes. Each count is how often
some piece of the C code runs, so that instructions follow from them nearly linearly. Kernels of instruction sets count
their own work where they are lowered (`Call.work`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.cgen.plan import Call
from rlx_edge.cgen.work_tiles import gathered_dsp, gathered_octets, gathered_v7m
from rlx_edge.ir import Array

Work = Mapping[str, int]

CHANNELS = 4
"""How many output channels share a load (RLX_DOT_CHANNELS)."""


def work_of(call: Call) -> Work | None:
    """The counts of a call: its own, and those that are counted here; None for a kernel that nobody counts."""
    count = _COUNTERS.get(call.kernel.name)
    counted = call.work(call.rows - call.first_row)
    if count is None:
        return counted or None
    return {**counted, **count(call)}


@dataclass(frozen=True, eq=False)
class _Windows:
    """Taps of a call's windows that lie in the image: `y` kernel rows by output row, `x` taps of a row by column; and
    `clips`, the steps that the loops of rlx_clip_taps take in all."""

    y: Array
    x: Array
    k_h: int
    k_w: int
    clips: int

    @property
    def pixels(self) -> int:
        return len(self.y) * len(self.x)

    @property
    def rows(self) -> int:
        return int(self.y.sum()) * len(self.x)

    @property
    def taps(self) -> int:
        return int(self.y.sum()) * int(self.x.sum())

    @property
    def border_rows(self) -> int:
        """Kernel rows in the image of which some taps lie outside."""
        return int(self.y.sum()) * int((self.x < self.k_w).sum())

    @property
    def outside(self) -> int:
        return self.pixels * self.k_h * self.k_w - self.taps


def _windows(call: Call) -> _Windows:
    p = call.params
    y = _inside(np.arange(call.first_row, call.rows), p, "h", "top")
    x = _inside(np.arange(p["out_w"]), p, "w", "left")
    # One loop skips the taps before the image, the other those after it.
    clips = int((p["k_h"] - y).sum()) * len(x) + int((p["k_w"] - x).sum()) * len(y)
    return _Windows(y, x, p["k_h"], p["k_w"], clips)


def _inside(out: Array, p: Mapping[str, int], axis: str, side: str) -> Array:
    """For each output index, how many taps lie inside."""
    dilation = p.get(f"dilation_{axis}", 1)
    taps = np.arange(p[f"k_{axis}"]) * dilation
    places = out[:, None] * p[f"stride_{axis}"] - p[f"pad_{side}"] + taps
    inside = (places >= 0) & (places < p[f"in_{axis}"])
    return np.asarray(inside.sum(axis=1))


def _conv(call: Call) -> Work:
    p, win = call.params, _windows(call)
    groups, group_in, group_out = p["groups"], p["in_c"] // p["groups"], p["out_c"] // p["groups"]
    quads, singles = groups * (group_out // CHANNELS), groups * (group_out % CHANNELS)
    joined = p["dilation_w"] == 1 and groups == 1
    runs = win.rows if joined else win.taps
    zero = "" if p["w_zp"] == 0 else "_zp"
    counts = dict(pixels=win.pixels, clips=win.clips, groups=win.pixels * groups)
    for name, channels in (("quad", quads), ("single", singles)):
        counts |= {
            f"{name}s": win.pixels * channels,
            f"{name}_rows": win.rows * channels,
            f"{name}_runs": runs * channels,
            f"{name}_borders": win.border_rows * channels,
            f"{name}_macs{zero}": win.taps * group_in * channels,
            f"{name}_fills": win.outside * group_in * channels,
        }
    return counts


def _depthwise(call: Call) -> Work:
    p, win = call.params, _windows(call)
    once = p["out_c"] == p["in_c"]
    quads = p["out_c"] // CHANNELS if once else 0
    counts = dict(pixels=win.pixels, clips=win.clips)
    for name, channels in (("quad", quads), ("single", p["out_c"] - CHANNELS * quads)):
        counts |= {
            f"{name}s": win.pixels * channels,
            f"{name}_rows": win.pixels * p["k_h"] * channels,
            f"{name}_inside": win.taps * channels,
            f"{name}_outside": win.outside * channels,
        }
    return counts


def _dense(call: Call) -> Work:
    p, rows = call.params, call.rows - call.first_row
    quads, singles = p["out_c"] // CHANNELS, p["out_c"] % CHANNELS
    zero = "" if p["w_zp"] == 0 else "_zp"
    return {
        "rows": rows,
        "quads": rows * quads,
        "singles": rows * singles,
        f"quad_macs{zero}": rows * quads * p["in_c"],
        f"single_macs{zero}": rows * singles * p["in_c"],
    }


def _by_four(count: Callable[[Call], Work]) -> Callable[[Call], Work]:
    """Of kernels of packed weights, which take 4 channels at a time also where fewer are left."""

    def counted(call: Call) -> Work:
        p = call.params
        filled = -(-p["out_c"] // CHANNELS) * CHANNELS
        in_c = filled if count is _depthwise else p["in_c"]
        return count(replace(call, params={**p, "out_c": filled, "in_c": in_c}))

    return counted


def _pool(call: Call) -> Work:
    win, channels = _windows(call), call.params["channels"]
    return dict(
        pixels=win.pixels,
        clips=win.clips,
        outputs=win.pixels * channels,
        window_rows=win.rows * channels,
        taps=win.taps * channels,
    )


def _pool_by_lanes(call: Call) -> Work:
    """Pools 4 channels at a time, by words where the core loads them at any address or they are aligned."""
    p, win = call.params, _windows(call)
    quads, singles = p["channels"] // CHANNELS, p["channels"] % CHANNELS
    aligned = "" if singles == 0 else "_unaligned"
    whole_rows = call.kernel.name == "rlx_avg_pool_s8" and bool((win.x == p["in_w"]).all())
    window_rows = win.pixels if whole_rows else win.rows  # rows that follow each other in memory are one
    return {
        "pixels": win.pixels,
        "clips": win.clips,
        "outputs": win.pixels * p["channels"],
        "quads": win.pixels * quads,
        "quad_rows": window_rows * quads,
        f"quad_taps{aligned}": win.taps * quads,
        "single_rows": window_rows * singles,
        "single_taps": win.taps * singles,
    }


def _running_sums(call: Call) -> Work:
    p, rows = call.params, call.rows - call.first_row
    return dict(rows=rows, outputs=rows * p["channels"], elements=rows * p["in_w"] * p["channels"])


def _mean_of_sums(call: Call) -> Work:
    rows = call.rows - call.first_row
    return dict(rows=rows, outputs=rows * call.params["channels"])


def _binary(call: Call) -> Work:
    p, rows = call.params, call.rows - call.first_row
    return dict(rows=rows, columns=rows * p["width"], elements=rows * p["width"] * p["channels"])


def _mean(call: Call) -> Work:
    p, rows = call.params, call.rows - call.first_row
    outputs = rows * p["keep_1"] * p["keep_2"]
    return dict(
        rows=rows,
        columns=rows * p["keep_1"],
        outputs=outputs,
        sums=outputs * p["reduce_0"],
        elements=outputs * p["reduce_0"] * p["reduce_1"],
    )


def _mean_by_lanes(call: Call) -> Work:
    p, rows = call.params, call.rows - call.first_row
    columns = rows * p["keep_1"]
    quads, singles = columns * (p["keep_2"] // CHANNELS), columns * (p["keep_2"] % CHANNELS)
    aligned = "" if p["keep_2"] % CHANNELS == 0 else "_unaligned"
    return {
        "rows": rows,
        "columns": columns,
        "outputs": columns * p["keep_2"],
        "quads": quads,
        "quad_blocks": quads * (1 if p["keep_1"] == 1 else p["reduce_0"]),
        f"quad_elements{aligned}": quads * p["reduce_0"] * p["reduce_1"],
        "singles": singles,
        "single_blocks": singles * p["reduce_0"],
        "single_elements": singles * p["reduce_0"] * p["reduce_1"],
    }


def _elements(call: Call) -> Work:
    rows = call.rows - call.first_row
    return dict(rows=rows, elements=rows * call.params["width"])


def _copy(call: Call) -> Work:
    rows, size = call.rows - call.first_row, call.params["bytes"]
    # The compiler copies words or vectors at a time where it can, and the rest byte by byte.
    return dict(rows=rows, elements=rows * size, words=rows * (size // 4), rest=rows * (size % 4))


def _pad(call: Call) -> Work:
    p = call.params
    y = np.arange(call.first_row, call.rows) - p["top"]
    inside_rows = int(((y >= 0) & (y < p["in_h"])).sum())
    rows = call.rows - call.first_row
    inside = inside_rows * p["in_w"]
    return dict(
        rows=rows,
        pixels=rows * p["out_w"],
        elements=rows * p["out_w"] * p["out_c"],
        inside=inside * p["out_c"],
        copied=inside * p["in_c"],
    )


def _transpose(call: Call) -> Work:
    p, rows = call.params, call.rows - call.first_row
    lines = rows * p["d1"] * p["d2"]
    return dict(rows=rows, columns=rows * p["d1"], lines=lines, elements=lines * p["d3"])


_RULED: Mapping[str, Callable[[Call], Work]] = {
    "rlx_conv_s8": _conv,
    "rlx_depthwise_s8": _depthwise,
    "rlx_dense_s8": _dense,
    "rlx_add_s8": _binary,
    "rlx_sub_s8": _binary,
    "rlx_mul_s8": _binary,
    "rlx_softmax_s8": _elements,
    "rlx_quantize_f32": _elements,
}
"""Of kernels whose twins under the rule onnx have the same loops."""

_COUNTERS: Mapping[str, Callable[[Call], Work]] = {
    **_RULED,
    **{name.replace("_s8", "_onnx_s8").replace("_f32", "_onnx_f32"): count for name, count in _RULED.items()},
    "rlx_avg_pool_s8": _pool_by_lanes,
    "rlx_max_pool_s8": _pool_by_lanes,
    "rlx_avg_pool_onnx_s8": _pool,
    "rlx_pool_sum_s8": _running_sums,
    "rlx_pool_mean_s8": _mean_of_sums,
    "rlx_mean_s8": _mean_by_lanes,
    "rlx_mean_onnx_s8": _mean,
    "rlx_requantize_s8": _elements,
    "rlx_clamp_s8": _elements,
    "rlx_lookup_s8": _elements,
    "rlx_dequantize_f32": _elements,
    "rlx_pad_s8": _pad,
    "rlx_transpose_s8": _transpose,
    "rlx_copy_s8": _copy,
    "rlx_conv_w4_s8": _by_four(_conv),
    "rlx_conv_w2_s8": _by_four(_conv),
    "rlx_depthwise_w4_s8": _by_four(_depthwise),
    "rlx_depthwise_w2_s8": _by_four(_depthwise),
    "rlx_dense_w4_s8": _by_four(_dense),
    "rlx_dense_w2_s8": _by_four(_dense),
    "rlx_conv_dsp_s8": gathered_dsp,
    "rlx_conv_dsp_joined_s8": gathered_dsp,
    "rlx_conv_dsp_w16_s8": gathered_dsp,
    "rlx_conv_dsp_w4_s8": gathered_dsp,
    "rlx_conv_dsp_w2_s8": gathered_dsp,
    "rlx_conv_v7m_s8": gathered_v7m,
    **{f"rlx_conv_{core}_{kind}": gathered_octets for core in ("v6m", "v7m") for kind in ("w4", "w2", "skip_w2")},
}
