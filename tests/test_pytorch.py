"""PyTorch modules through PyTorch's exporter: our float outputs are PyTorch's. Skipped where torch is not installed."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from rlx_edge.errors import ModelError, ToolError, UnsupportedError
from rlx_edge.formats.load import load
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Graph
from rlx_edge.ir.ops import Activation, ActivationFn, Conv, LayerNorm
from rlx_edge.passes.pipeline import prepare
from rlx_edge.reference import run

torch = pytest.importorskip("torch", reason="torch is an extra: pip install 'rlx-edge[torch]'")
pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript")
nn = torch.nn


class Residual(nn.Module):  # type: ignore[name-defined,misc]
    """Convolution, batch-norm and a sum of two branches, then pooled and classified."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.depthwise = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 5))

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        return torch.softmax(self.head(torch.relu(x + self.pointwise(self.depthwise(x)))), dim=1)


class Attention(nn.Module):  # type: ignore[name-defined,misc]
    """A transformer block's parts: LayerNorm, matrix products of activations, softmax, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.mlp = nn.LayerNorm(16), nn.Linear(16, 48), nn.Sequential(nn.Linear(16, 32), nn.GELU())
        self.out = nn.Linear(32, 4)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + torch.softmax(q @ k.transpose(-1, -2) / 4.0, dim=-1) @ v
        return self.out(self.mlp(x)).mean(dim=1)


class Slices(nn.Module):  # type: ignore[name-defined,misc]
    """Indexing, interpolation, padding, einsum-like sums: what forward methods do by hand."""

    def forward(self, x: Any) -> Any:
        up = nn.functional.interpolate(x, scale_factor=2, mode="nearest")
        wide = nn.functional.pad(x, (1, 2, 0, 1), mode="reflect")
        best, index = x.flatten(2).topk(3, dim=-1)
        return (
            up[:, :, ::2, 1:].mean((2, 3)),
            wide.amax(1),
            torch.cat([best, index.float()], -1),
            x.roll(1, 2).clamp(-1, 1),
        )


ACTIVATIONS = [
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Sigmoid, nn.Tanh, nn.Softsign, nn.LogSigmoid, nn.Tanhshrink),
    *(nn.GLU, nn.LogSoftmax, nn.Softmin, nn.Threshold),
]


def check(module: Any, *shape: int, torches: bool = True) -> Graph:
    """The graph of a module in any mode, which it keeps, once its outputs are PyTorch's. `torches`: from a tensor."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean), nn.init.uniform_(part.running_var, 0.5, 2.0)
    x = torch.randn(shape)
    modes = [part.training for part in module.modules()]
    graph = load(module, torch.zeros(shape) if torches else np.zeros(shape, np.float32))
    assert [part.training for part in module.modules()] == modes
    module.eval()
    expected = module(x)
    found = run(graph, {graph.inputs[0].name: x.numpy()})
    for node, wanted in zip(graph.output_nodes, expected if isinstance(expected, tuple) else [expected], strict=True):
        np.testing.assert_allclose(found[node.name], wanted.detach().numpy(), rtol=1e-5, atol=2e-6)
    same = prepare(graph)
    again = run(same, {same.inputs[0].name: x.numpy()})
    for name, value in found.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-4, atol=1e-5)
    return graph


class Together(nn.Module):  # type: ignore[name-defined,misc]
    """Modules, each on a part of the input of its own, as outputs of one model: an export takes seconds."""

    def __init__(self, parts: list[tuple[Any, tuple[int, ...]]]) -> None:
        super().__init__()
        self.all, self.shapes = nn.ModuleList(module for module, _ in parts), [shape for _, shape in parts]
        self.sizes = [math.prod(shape) for shape in self.shapes]

    def forward(self, x: Any) -> Any:
        found = []
        for module, part, shape in zip(self.all, x.split(self.sizes, 1), self.shapes, strict=True):
            y = module(part.reshape(shape))
            found += y if isinstance(y, tuple) else [y]
        return tuple(found)


def together(*parts: tuple[Any, tuple[int, ...]]) -> Graph:
    """The graph of them all, once its outputs are PyTorch's."""
    module = Together(list(parts))
    return check(module, 1, sum(module.sizes))


def test_activations() -> None:
    arguments = {nn.Threshold: (0.1, -2.0), nn.GLU: (1,), nn.LogSoftmax: (1,), nn.Softmin: (1,)}
    together(*((kind(*arguments.get(kind, ())), (1, 4, 5, 6)) for kind in ACTIVATIONS))


def test_residual_network_with_batchnorm(capfd: pytest.CaptureFixture[str]) -> None:
    """Of which a part is in evaluation mode already; and the exporter keeps quiet."""
    module = Residual()
    module.stem.eval()
    graph = check(module, 1, 3, 16, 16, torches=False)
    assert module.stem[1].running_mean.abs().max() > 0
    assert capfd.readouterr() == ("", "")
    assert graph.name == "Residual"
    fns = {node.op.fn for node in graph.nodes if isinstance(node.op, Activation)}
    assert fns == {ActivationFn.RELU, ActivationFn.HARD_SWISH}
    assert sum(isinstance(node.op, Conv) for node in graph.nodes) == 3


LAYERS = [
    (nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.MaxPool1d(2), nn.AvgPool1d(3, 2, 1)), (1, 3, 16)),
    (nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), nn.InstanceNorm2d(4, affine=True)), (1, 3, 5, 6)),
    (nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.MaxPool3d(2), nn.AdaptiveAvgPool3d(1)), (1, 2, 4, 6, 6)),
    (nn.Sequential(nn.GroupNorm(2, 4), nn.PixelShuffle(2), nn.AvgPool2d(3, 2, 1, ceil_mode=True)), (1, 4, 6, 7)),
    (nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 3), nn.Unflatten(1, (2, 2))), (1, 4, 8)),
    (nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.ReflectionPad2d(1), nn.ReplicationPad2d(2), nn.LocalResponseNorm(2)),
     (1, 3, 6, 6)),
]  # fmt: skip


def test_layers_attention_indexing_and_padding() -> None:
    graph = together(*LAYERS, (Attention(), (1, 6, 16)), (Slices(), (1, 3, 6, 7)))
    assert any(isinstance(node.op, LayerNorm) for node in graph.nodes)


def test_other_opsets_mean_the_same() -> None:
    module, x = Residual().eval(), torch.randn(1, 3, 16, 16)
    captured = torch.export.export(module, (torch.zeros(1, 3, 16, 16),))
    for opset in (18, 20, 23):
        program = torch.onnx.export(captured, dynamo=True, verbose=False, opset_version=opset)
        (used,) = (known.version for known in program.model_proto.opset_import if known.domain == "")
        assert used == opset
        graph = load_onnx(program.model_proto.SerializeToString())
        (found,) = run(graph, {graph.inputs[0].name: x.numpy()}).values()
        np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=2e-6)


def test_what_goes_wrong_is_one_line() -> None:
    for module, example, words in [
        (nn.ReLU(), None, "needs an example input"),
        (nn.ReLU(), "x", "must be a tensor"),
        (nn.Linear(3, 2), torch.zeros(1, 4), "PyTorch cannot export Linear"),
    ]:
        with pytest.raises(ModelError, match=words) as caught:
            load(module, example)
        assert "\n" not in str(caught.value)
    with pytest.raises(UnsupportedError, match="DFT"):
        load(FourierNet(), torch.zeros(1, 8))


class FourierNet(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.fft.rfft(x).abs()


def test_missing_exporter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr(torch.onnx, "export", _import_onnxscript)
    with pytest.raises(ToolError, match=r"lacks a package \(onnxscript\): pip install 'rlx-edge\[torch\]'"):
        load(nn.ReLU(), torch.zeros(1))


def _import_onnxscript(*arguments: Any, **options: Any) -> None:
    import onnxscript  # noqa: F401
