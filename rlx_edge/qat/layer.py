"""The trainable part of a convolution or dense layer: float weights, a learned scale per channel, a bias."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from rlx_edge.ir import QuantParams
from rlx_edge.ir.ops import FakeQuantizeLSQ
from rlx_edge.qat.autograd import lsq, round_half_away, straight
from rlx_edge.quant.schemes import BIAS_MAX, SMALLEST_SCALE, WEIGHT_MAX, QuantizedWeights, quantize_bias
from rlx_edge.quant.simulate import real_bias, real_weights

RATES: Mapping[int, float] = {8: 1.0, 4: 1.0, 3: 1.0, 2: 3.0}
"""By bits: how fast a layer trains beside others. Ternary weights have far to go to the next of their three codes."""

PULLS: Mapping[int, float] = {8: 0.5, 4: 0.5, 3: 0.5, 2: 0.3}
"""By bits: the share of a weight's way back to its code that `settle` goes, in rates."""


class QatLayer(nn.Module):
    """Parameters `weight` (real values, in the graph's layout), `log_scale` [C] and `bias` [C].

    The scale is exp(log_scale): positive, and a step of the optimizer changes it by a share. `x_scale` is the step of
    the layer's input, which the bias is stored with.
    """

    def __init__(self, name: str, axis: int, given: QuantizedWeights, x_scale: float) -> None:
        super().__init__()
        self.name, self.bits, self.axis, self.x_scale = name, given.bits, axis, x_scale
        self.op = FakeQuantizeLSQ(given.bits, axis)
        self.weight = nn.Parameter(torch.from_numpy(real_weights(given)))
        self.log_scale = nn.Parameter(torch.tensor(np.log(given.weight_params.scales), dtype=torch.float32))
        self.bias = nn.Parameter(torch.tensor(real_bias(given), dtype=torch.float32))

    def scale(self) -> Tensor:
        """[C]; large enough for the bias to fit int32."""
        least = (self.bias.detach().abs() / (self.x_scale * BIAS_MAX)).clamp_min(SMALLEST_SCALE)
        return torch.maximum(torch.exp(self.log_scale), least)

    def forward(self) -> tuple[Tensor, Tensor]:
        """The weights and bias that the int8 layer will have, as real values; gradients reach all parameters."""
        scale = self.scale()
        steps = (scale * self.x_scale).detach()
        return lsq(self.weight, scale, self.op), straight(self.bias / steps) * steps

    def rounded(self) -> tuple[Tensor, Tensor]:
        """The codes of the weights as floats, and the scales that go with them, as they broadcast."""
        with torch.no_grad():
            shape = [1] * self.weight.ndim
            shape[self.axis] = -1
            scale, most = self.scale().reshape(shape), WEIGHT_MAX[self.bits]
            return round_half_away(self.weight / scale).clamp(-most, most), scale

    def settle(self, rate: float) -> None:
        """Draw each weight a little to the value that it rounds to.

        What only the noise of batches moves then stays within its code, where it would cross to the next and back;
        a steady gradient is stronger.
        """
        codes, scale = self.rounded()
        with torch.no_grad():
            self.weight.lerp_(codes * scale, min(PULLS[self.bits] * rate, 1.0))

    def codes(self) -> QuantizedWeights:
        """The integers that `forward` stands for."""
        codes, scale = self.rounded()
        scales = tuple(float(s) for s in scale.reshape(-1).cpu().numpy())
        params = QuantParams(scales, (0,) * len(scales), self.axis)
        integers = np.ascontiguousarray(codes.cpu().numpy().astype(np.int8))
        bias = self.bias.detach().cpu().numpy().astype(np.float64)
        return QuantizedWeights(integers, params, *quantize_bias(bias, params, self.x_scale), self.bits)
