"""All variants, and the kernels of all of them."""

from __future__ import annotations

from rlx_edge.cgen import kernels
from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.variants.variant import Variant

VARIANTS: tuple[Variant, ...] = ()

ALL_KERNELS: tuple[Kernel, ...] = tuple(
    {kernel.name: kernel for kernel in (*kernels.ALL, *(k for variant in VARIANTS for k in variant.kernels))}.values()
)
"""In the order of the case numbers that the resident test firmware knows them by."""
