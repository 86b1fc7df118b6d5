"""PyTorch modules through PyTorch's exporter: our float outputs are PyTorch's. Skipped where torch is not installed."""

from __future__ import annotations

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


def check(module: Any, *shape: int) -> Graph:
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean), nn.init.uniform_(part.running_var, 0.5, 2.0)
    module.eval()
    x = torch.randn(shape)
    graph = load(module, torch.zeros(shape))
    expected = module(x)
    found = run(graph, {graph.inputs[0].name: x.numpy()})
    for node, wanted in zip(graph.output_nodes, expected if isinstance(expected, tuple) else [expected], strict=True):
        np.testing.assert_allclose(found[node.name], wanted.detach().numpy(), rtol=1e-5, atol=2e-6)
    same = prepare(graph)
    again = run(same, {same.inputs[0].name: x.numpy()})
    for name, value in found.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-4, atol=1e-5)
    return graph


class Activations(nn.Module):  # type: ignore[name-defined,misc]
    """Each of them on its own, as outputs of one model: an export takes seconds."""

    def __init__(self) -> None:
        super().__init__()
        arguments = {nn.Threshold: (0.1, -2.0), nn.GLU: (1,), nn.LogSoftmax: (1,), nn.Softmin: (1,)}
        self.all = nn.ModuleList(kind(*arguments.get(kind, ())) for kind in ACTIVATIONS)

    def forward(self, x: Any) -> Any:
        return tuple(activation(3.0 * x) for activation in self.all)


def test_activations() -> None:
    check(Activations(), 1, 4, 5, 6)


def test_residual_network_with_batchnorm() -> None:
    graph = check(Residual(), 1, 3, 16, 16)
    assert graph.name == "Residual"
    fns = {node.op.fn for node in graph.nodes if isinstance(node.op, Activation)}
    assert fns == {ActivationFn.RELU, ActivationFn.HARD_SWISH}
    assert sum(isinstance(node.op, Conv) for node in graph.nodes) == 3


def test_attention_block() -> None:
    graph = check(Attention(), 1, 6, 16)
    assert any(isinstance(node.op, LayerNorm) for node in graph.nodes)


def test_indexing_and_padding() -> None:
    check(Slices(), 1, 3, 6, 7)


LAYERS = [
    (nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.MaxPool1d(2), nn.AvgPool1d(3, 2, 1)), (1, 3, 16)),
    (nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), nn.InstanceNorm2d(4, affine=True)), (1, 3, 5, 6)),
    (nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.MaxPool3d(2), nn.AdaptiveAvgPool3d(1)), (1, 2, 4, 6, 6)),
    (nn.Sequential(nn.GroupNorm(2, 4), nn.PixelShuffle(2), nn.AvgPool2d(3, 2, 1, ceil_mode=True)), (1, 4, 6, 7)),
    (nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 3), nn.Unflatten(1, (2, 2))), (1, 4, 8)),
    (nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.ReflectionPad2d(1), nn.ReplicationPad2d(2), nn.LocalResponseNorm(2)),
     (1, 3, 6, 6)),
]  # fmt: skip


@pytest.mark.parametrize(("module", "shape"), LAYERS, ids=[str(i) for i in range(len(LAYERS))])
def test_layers(module: Any, shape: tuple[int, ...]) -> None:
    check(module, *shape)


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_other_opsets_mean_the_same(opset: int) -> None:
    module = Residual().eval()
    program = torch.onnx.export(module, (torch.zeros(1, 3, 16, 16),), dynamo=True, verbose=False, opset_version=opset)
    graph = load_onnx(program.model_proto.SerializeToString())
    x = torch.randn(1, 3, 16, 16)
    (found,) = run(graph, {graph.inputs[0].name: x.numpy()}).values()
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=2e-6)


def test_module_keeps_its_mode_and_the_exporter_keeps_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    module = Residual()
    module.stem.eval()
    load(module, np.zeros((1, 3, 16, 16), np.float32))
    assert module.training
    assert not module.stem[1].training
    assert capfd.readouterr() == ("", "")


def test_what_goes_wrong_is_one_line() -> None:
    class Broken(nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            raise RuntimeError("out of order")

    for module, example, words in [
        (nn.ReLU(), None, "needs an example input"),
        (nn.ReLU(), "x", "must be a tensor"),
        (Broken(), torch.zeros(1), "PyTorch cannot export Broken"),
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
