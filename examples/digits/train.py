"""Train the digits example and write its three files: digits.onnx, digits_calibration.npz, digits_test.npz.

    python examples/digits/train.py

Plain numpy, so that every step can be read: a small residual network on scikit-learn's 8x8 digits, trained with Adam.
Takes about a minute. The files are in the repository; only this script needs scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Floats = NDArray[np.float32]
HERE = Path(__file__).parent
SEED, EPOCHS, BATCH, TEST, CALIBRATION = 7, 40, 64, 500, 128
PIXEL_SCALE = 1 / 16
"""The pixels are integers from 0 to 16."""
TAPS = [(i, j) for i in range(3) for j in range(3)]


class Conv:
    """k x k convolution, stride 1, same size. w is [C_out, C_in, k, k]; images are [N, C, H, W]."""

    def __init__(self, rng: np.random.Generator, c_in: int, c_out: int, k: int) -> None:
        scale = np.sqrt(2 / (c_in * k * k))
        self.w: Floats = (rng.standard_normal((c_out, c_in, k, k)) * scale).astype(np.float32)
        self.b: Floats = np.zeros(c_out, np.float32)

    def forward(self, x: Floats) -> Floats:
        n, _, h, w = x.shape
        self.shape, k = x.shape, self.w.shape[2]
        padded = np.pad(x, ((0, 0), (0, 0), (k // 2, k // 2), (k // 2, k // 2)))
        view = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))
        self.columns = view.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, -1)
        y = self.columns @ self.w.reshape(len(self.w), -1).T + self.b
        return y.reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(self, dy: Floats) -> Floats:
        (n, c, h, w), k = self.shape, self.w.shape[2]
        rows = dy.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        self.dw, self.db = (rows.T @ self.columns).reshape(self.w.shape), rows.sum(axis=0)
        windows = (rows @ self.w.reshape(len(self.w), -1)).reshape(n, h, w, c, k, k).transpose(0, 3, 1, 2, 4, 5)
        dx = np.zeros((n, c, h + k - 1, w + k - 1), np.float32)
        for i in range(k):
            for j in range(k):
                dx[:, :, i : i + h, j : j + w] += windows[..., i, j]
        return dx[:, :, k // 2 : k // 2 + h, k // 2 : k // 2 + w]


class Depthwise:
    """3 x 3 convolution of each channel on its own. w is [C, 1, 3, 3]."""

    def __init__(self, rng: np.random.Generator, channels: int) -> None:
        self.w: Floats = (rng.standard_normal((channels, 1, 3, 3)) * np.sqrt(2 / 9)).astype(np.float32)
        self.b: Floats = np.zeros(channels, np.float32)

    def forward(self, x: Floats) -> Floats:
        self.padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        h, w = x.shape[2:]
        parts = (self.padded[:, :, i : i + h, j : j + w] * self.w[:, 0, i, j][:, None, None] for i, j in TAPS)
        return sum(parts, self.b[:, None, None])

    def backward(self, dy: Floats) -> Floats:
        h, w = dy.shape[2:]
        self.dw, self.db = np.empty_like(self.w), dy.sum(axis=(0, 2, 3))
        dx = np.zeros_like(self.padded)
        for i, j in TAPS:
            self.dw[:, 0, i, j] = (self.padded[:, :, i : i + h, j : j + w] * dy).sum(axis=(0, 2, 3))
            dx[:, :, i : i + h, j : j + w] += dy * self.w[:, 0, i, j][:, None, None]
        return dx[:, :, 1:-1, 1:-1]


class Dense:
    """x [N, K] @ w [K, M] + b."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        self.w: Floats = (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        self.b: Floats = np.zeros(outputs, np.float32)

    def forward(self, x: Floats) -> Floats:
        self.x = x
        return x @ self.w + self.b

    def backward(self, dy: Floats) -> Floats:
        self.dw, self.db = self.x.T @ dy, dy.sum(axis=0)
        return dy @ self.w.T


def pool_windows(x: Floats) -> Floats:
    """[N, C, H, W] -> [N, C, H/2, W/2, 4]: the windows of 2 x 2 pooling."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)


def unpool(windows: Floats) -> Floats:
    """The inverse of pool_windows."""
    n, c, h, w, _ = windows.shape
    return windows.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)


class Network:
    """conv, a residual block (depthwise, pointwise, add), max pool, conv, mean pool, dense."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.stem, self.depthwise, self.pointwise = Conv(rng, 1, 16, 3), Depthwise(rng, 16), Conv(rng, 16, 16, 1)
        self.body, self.head = Conv(rng, 16, 32, 3), Dense(rng, 32 * 4, 10)
        self.layers = dict(vars(self))

    def forward(self, x: Floats) -> Floats:
        """Logits [N, 10]."""
        self.a = np.maximum(self.stem.forward(x), 0)
        self.d = np.maximum(self.depthwise.forward(self.a), 0)
        self.r = np.maximum(self.pointwise.forward(self.d) + self.a, 0)
        windows = pool_windows(self.r)
        pooled = windows.max(axis=-1)
        ties = (windows == pooled[..., None]).astype(np.float32)
        self.winner = ties / ties.sum(axis=-1, keepdims=True)
        self.c = np.maximum(self.body.forward(pooled), 0)
        return self.head.forward(pool_windows(self.c).mean(axis=-1).reshape(len(x), -1))

    def backward(self, dlogits: Floats) -> None:
        pooled = self.head.backward(dlogits).reshape(len(dlogits), 32, 2, 2)
        dc = unpool(np.repeat(pooled[..., None] / 4, 4, axis=-1)) * (self.c > 0)
        dr = unpool(self.body.backward(dc)[..., None] * self.winner) * (self.r > 0)
        dd = self.pointwise.backward(dr) * (self.d > 0)
        self.stem.backward((self.depthwise.backward(dd) + dr) * (self.a > 0))


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def shifted_batches(rng: np.random.Generator, x: Floats, y: NDArray[np.int64]) -> Iterator[tuple[Floats, Floats]]:
    """Images moved by up to one pixel to either side, and one-hot labels."""
    order = rng.permutation(len(x))
    for start in range(0, len(x) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        padded = np.pad(x[chosen], ((0, 0), (0, 0), (0, 0), (1, 1)))
        moved = [image[:, :, j : j + 8] for image, j in zip(padded, rng.integers(0, 3, BATCH), strict=True)]
        yield np.stack(moved), np.eye(10, dtype=np.float32)[y[chosen]]


def train(network: Network, rng: np.random.Generator, x: Floats, y: NDArray[np.int64]) -> None:
    """Adam with a learning rate that falls to 0."""
    moments = {name: [np.zeros_like(p) for p in (v.w, v.w, v.b, v.b)] for name, v in network.layers.items()}
    step, steps = 0, EPOCHS * (len(x) // BATCH)
    for epoch in range(EPOCHS):
        for images, wanted in shifted_batches(rng, x, y):
            network.backward((softmax(network.forward(images)) - wanted) / np.float32(BATCH))
            step += 1
            rate = 4e-3 * (1 - step / steps) * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            for name, layer in network.layers.items():
                mw, vw, mb, vb = moments[name]
                for p, g, m, v in ((layer.w, layer.dw, mw, vw), (layer.b, layer.db, mb, vb)):
                    m += 0.1 * (g - m)
                    v += 0.001 * (g * g - v)
                    p -= (rate * m / (np.sqrt(v) + 1e-8)).astype(np.float32)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: training accuracy {np.mean(network.forward(x).argmax(axis=1) == y):.3f}")


def export(network: Network) -> onnx.ModelProto:
    same: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    halve: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "stem.w", "stem.b"], ["stem"], **same),
        helper.make_node("Relu", ["stem"], ["stem_relu"]),
        helper.make_node("Conv", ["stem_relu", "depthwise.w", "depthwise.b"], ["depthwise"], group=16, **same),
        helper.make_node("Relu", ["depthwise"], ["depthwise_relu"]),
        helper.make_node("Conv", ["depthwise_relu", "pointwise.w", "pointwise.b"], ["pointwise"]),
        helper.make_node("Add", ["pointwise", "stem_relu"], ["residual"]),
        helper.make_node("Relu", ["residual"], ["residual_relu"]),
        helper.make_node("MaxPool", ["residual_relu"], ["max_pool"], **halve),
        helper.make_node("Conv", ["max_pool", "body.w", "body.b"], ["body"], **same),
        helper.make_node("Relu", ["body"], ["body_relu"]),
        helper.make_node("AveragePool", ["body_relu"], ["mean_pool"], **halve),
        helper.make_node("Flatten", ["mean_pool"], ["features"]),
        helper.make_node("Gemm", ["features", "head.w", "head.b"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    weights = [
        numpy_helper.from_array(getattr(layer, which), f"{name}.{which}")
        for name, layer in network.layers.items()
        for which in ("w", "b")
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 1, 8, 8])
    y = helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [x], [y], weights)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="rlx-edge"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    from sklearn.datasets import load_digits
    from threadpoolctl import threadpool_limits

    digits = load_digits()
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(digits.target))
    pixels = digits.images[order].astype(np.uint8)[:, None]
    y = digits.target[order].astype(np.int64)
    x = pixels.astype(np.float32) * np.float32(PIXEL_SCALE)
    network = Network(rng)
    with threadpool_limits(1):  # Sums in one order, so that the same machine writes the same file.
        train(network, rng, x[TEST:], y[TEST:])
    print(f"held-out accuracy {np.mean(network.forward(x[:TEST]).argmax(axis=1) == y[:TEST]):.3f} of {TEST}")
    onnx.save_model(export(network), HERE / "digits.onnx")
    meaning: dict[str, Any] = {"x_scale": np.float32(PIXEL_SCALE), "x_zero_point": np.int64(0)}
    for name, part in (("calibration", slice(TEST, TEST + CALIBRATION)), ("test", slice(0, TEST))):
        labels = y[part].astype(np.uint8)
        np.savez_compressed(HERE / f"digits_{name}.npz", allow_pickle=False, x=pixels[part], y=labels, **meaning)


if __name__ == "__main__":
    main()
