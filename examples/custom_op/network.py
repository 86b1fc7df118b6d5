"""A network around the median filter: checked, quantized, and saved as median.rlx beside its samples."""

import numpy as np

# isort: split
import median  # noqa: F401 (it registers the op)

import rlx_edge as rlx

print(rlx.check_custom("example.median"), "comparisons of C and reference")
rng = np.random.default_rng(0)
g = rlx.Graph("median")
x = g.input("x", (1, 64))
y = g.custom("example.median", x, attrs=bytes([5]))
g.output(g.relu(g.dense(y, rng.normal(size=(64, 8)) / 8, rng.normal(size=8))), name="scores")
net = g.build()
np.savez("median.npz", x=rng.normal(size=(32, 64)).astype(np.float32))
int8 = rlx.quantize(net, rlx.calibrate(net, rlx.load_data("median.npz", net)))
rlx.save(int8, "median.rlx")
