"""Time and memory of calibration and quantization: MLPerf Tiny's vww, 128 samples, a fresh process each, median of 3.

    python benchmarks/bench_calibration.py [--samples 128 1024] [--methods minmax mse ...]

Needs ../shared/models/vww_float.tflite. Samples are random pixels: what is measured does not depend on their values.
Wall time is what a person waits, on all cores; CPU time tells how much of it a busy machine made wait. Imports and
loading the file are left out of both times. Peak memory is the whole process, as the system counts it; "added" is what
calibration and quantization took beyond the interpreter, its imports, the model and the data.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import rlx_edge as rlx
from rlx_edge.data import Data
from rlx_edge.quant.observers_methods import OBSERVERS

MODEL = Path(__file__).resolve().parents[2] / "shared" / "models" / "vww_float.tflite"
REPEATS = 3
PEERS = "onnxruntime 1.32: min-max 0.60 s, 148 MB; percentile 1.40 s, 430 MB. ai-edge-quantizer 0.10: 0.73 s, 97 MB."


def measure(method: str, samples: int) -> dict[str, float]:
    """One calibration and quantization in this process: seconds, and MB of memory."""
    graph = rlx.load(MODEL)
    (node,) = graph.inputs
    pixels = np.random.default_rng(0).random((samples, *node.type.shape[1:]), np.float32)
    before = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    rlx.quantize(graph, rlx.calibrate(graph, Data({node.name: pixels}), method))
    return {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": peak_mb(),
        "added": peak_mb() - before,
    }


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fresh(method: str, samples: int) -> dict[str, float]:
    """The medians of REPEATS fresh processes."""
    command = [sys.executable, __file__, "--one", method, "--samples", str(samples)]
    made = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(REPEATS)
    ]
    return {key: statistics.median(run[key] for run in made) for key in made[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description="time and memory of calibration and quantization on vww")
    parser.add_argument("--samples", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--methods", nargs="+", default=list(OBSERVERS))
    parser.add_argument("--one", help="measure this method in this process and print JSON")
    options = parser.parse_args()
    if not MODEL.is_file():
        sys.exit(f"no {MODEL.name} in {MODEL.parent}: the benchmark needs it")
    if options.one:
        print(json.dumps(measure(options.one, options.samples[0])))
        return
    print(f"vww, median of {REPEATS}, fresh processes. Peers (128 samples): {PEERS}\n")
    print("| method | samples | wall, s | CPU, s | peak, MB | added, MB |")
    print("|---|---|---|---|---|---|")
    for method in options.methods:
        for samples in options.samples:
            found = fresh(method, samples)
            times = f"{found['wall']:.2f} | {found['cpu']:.2f}"
            print(f"| {method} | {samples} | {times} | {found['peak']:.0f} | {found['added']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
