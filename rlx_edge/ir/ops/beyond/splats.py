"""Pictures of scenes that are made of 3-D Gaussians, all of them flat f32.

A scene of N Gaussians: positions [3 N], scales [3 N] (logarithms), rotations [4 N] (x, y, z, w), opacities [N]
(logits), colors [3 N] (linear RGB), sh_coeffs [N * sh_coeff_count * 3], meta [23] (camera, background, settings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_dtype
from rlx_edge.ir.ops.checks import require, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType

META = 23
"""Numbers of `meta`."""

SCENE = (("positions", 3), ("scales", 3), ("rotations", 4), ("opacities", 1), ("colors", 3))
"""The operands with a fixed count of numbers for each Gaussian, with that count."""


@dataclass(frozen=True)
class GaussianSplatRender(Op):
    """Operands a scene: the picture, linear RGBA [height * width * 4]."""

    operand_count: ClassVar[Arity] = exact(7)
    text: ClassVar[str] = (
        "gaussian_splat_render({width}x{height},tile={tile_size},r={radius_scale},a={alpha_cutoff},"
        "steps={max_splat_steps},t={transmittance_threshold},list={max_list_entries})"
    )
    width: int
    height: int
    tile_size: int
    radius_scale: float
    alpha_cutoff: float
    max_splat_steps: int
    transmittance_threshold: float
    max_list_entries: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        _check_scene(operands)
        return _picture(self.width, self.height), DType.F32


@dataclass(frozen=True)
class GaussianSplatRenderBackward(Op):
    """Operands a scene, d_loss_rgba [height * width * 4]: the gradients for all of the scene but meta, packed."""

    operand_count: ClassVar[Arity] = exact(8)
    text: ClassVar[str] = "gaussian_splat_render_bwd({width}x{height},clip={loss_grad_clip},sh={sh_band})"
    width: int
    height: int
    tile_size: int
    radius_scale: float
    alpha_cutoff: float
    max_splat_steps: int
    transmittance_threshold: float
    max_list_entries: int
    loss_grad_clip: float
    sh_band: int
    max_anisotropy: float

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        *scene, gradient = operands
        _check_scene(scene)
        require_shape("d_loss_rgba", gradient, _picture(self.width, self.height))
        require_dtype("d_loss_rgba", gradient, DType.F32)
        return (sum(operand.elements for operand in scene[:-1]),), DType.F32


@dataclass(frozen=True)
class GaussianSplatPrepare(Declared):
    """Operands a scene: what GaussianSplatRasterize takes, packed into one axis; its length is declared."""

    operand_count: ClassVar[Arity] = exact(7)
    text: ClassVar[str] = (
        "gaussian_splat_prepare({width}x{height},tile={tile_size},r={radius_scale},a={alpha_cutoff},"
        "steps={max_splat_steps},t={transmittance_threshold},list={max_list_entries})"
    )
    width: int
    height: int
    tile_size: int
    radius_scale: float
    alpha_cutoff: float
    max_splat_steps: int
    transmittance_threshold: float
    max_list_entries: int

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        _check_scene(operands)
        require_rank("the output", out, 1)
        require_dtype("the output", out, DType.F32)


@dataclass(frozen=True)
class GaussianSplatRasterize(Op):
    """Operands the output of GaussianSplatPrepare, meta [23]: the picture, linear RGBA [width * height * 4]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = (
        "gaussian_splat_rasterize({width}x{height},tile={tile_size},a={alpha_cutoff},"
        "steps={max_splat_steps},t={transmittance_threshold},list={max_list_entries})"
    )
    width: int
    height: int
    tile_size: int
    alpha_cutoff: float
    max_splat_steps: int
    transmittance_threshold: float
    max_list_entries: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        prepared, meta = operands
        require_rank("the prepared scene", prepared, 1)
        require_dtype("the prepared scene", prepared, DType.F32)
        require_shape("meta", meta, (META,))
        require_dtype("meta", meta, DType.F32)
        return _picture(self.width, self.height), DType.F32


def _picture(width: int, height: int) -> Shape:
    require(width > 0 and height > 0, f"a picture of {width} x {height}")
    return (width * height * 4,)


def _check_scene(operands: Sequence[TensorType]) -> None:
    *values, sh_coeffs, meta = operands
    count = require_rank("opacities", operands[3], 1)[0]
    for (name, each), operand in zip(SCENE, values, strict=True):
        require_shape(name, operand, (each * count,))
    per_gaussian = require_rank("sh_coeffs", sh_coeffs, 1)[0]
    require(
        count > 0 and per_gaussian % (3 * count) == 0,
        f"sh_coeffs is {sh_coeffs}, not colors of {count} Gaussians",
    )
    require_shape("meta", meta, (META,))
    for operand in operands:
        require_dtype("an operand", operand, DType.F32)


KINDS: tuple[type[Op], ...] = (
    *(GaussianSplatRender, GaussianSplatRenderBackward),
    *(GaussianSplatPrepare, GaussianSplatRasterize),
)
