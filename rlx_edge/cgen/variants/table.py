"""All variants, and the kernels of all of them."""

from __future__ import annotations

from rlx_edge.cgen import kernels
from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.variants import (
    add,
    add_mve,
    conv_dsp,
    conv_mve,
    conv_skip,
    conv_v6m,
    conv_v6m_packed,
    conv_v7m,
    conv_v7m_packed,
    dense_digits,
    dense_dsp,
    dense_mve,
    dense_packed,
    dense_v6m,
    dense_v7m,
    depthwise_dsp,
    depthwise_mve,
    depthwise_v6m,
    depthwise_v6m_packed,
    depthwise_v7m,
    depthwise_v7m_packed,
    packed,
    pool_mve,
)
from rlx_edge.cgen.variants.variant import Variant

VARIANTS: tuple[Variant, ...] = (
    *conv_mve.VARIANTS,
    *depthwise_mve.VARIANTS,
    *dense_mve.VARIANTS,
    *add_mve.VARIANTS,
    *pool_mve.VARIANTS,
    *conv_dsp.VARIANTS,
    *dense_digits.VARIANTS,
    *dense_dsp.VARIANTS,
    *depthwise_dsp.VARIANTS,
    *add.VARIANTS,
    *conv_v6m.VARIANTS,
    *conv_v6m_packed.VARIANTS,
    *depthwise_v6m.VARIANTS,
    *dense_v6m.VARIANTS,
    *conv_v7m.VARIANTS,
    *conv_v7m_packed.VARIANTS,
    *conv_skip.VARIANTS,
    *dense_packed.VARIANTS,
    *depthwise_v6m_packed.VARIANTS,
    *depthwise_v7m.VARIANTS,
    *depthwise_v7m_packed.VARIANTS,
    *dense_v7m.VARIANTS,
    *packed.VARIANTS,
)

ALL_KERNELS: tuple[Kernel, ...] = tuple(
    {kernel.name: kernel for kernel in (*kernels.ALL, *(k for variant in VARIANTS for k in variant.kernels))}.values()
)
"""In the order of the case numbers that the resident test firmware knows them by."""
