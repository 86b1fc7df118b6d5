"""What training keeps of five float models with weights of few bits, without labels.

Run by `make bench-qat`, in .venv-torch. Needs the models and data of ../shared: exits 2 without them. Prints progress,
and writes the table to docs/qat.md. `--jobs N`: so many models at a time, each on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from rlx_edge.data import Data
from rlx_edge.formats.load import load
from rlx_edge.ir import Array, Graph
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.batches import batches
from rlx_edge.quant.quality import Sums, judged, quantized_inputs, real_values
from rlx_edge.quant.recipe import EFFORTS
from rlx_edge.quant.widths import LayerRule, everywhere
from rlx_edge.reference import fast_integer

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("RLX_EDGE_SHARED", ROOT.parent / "shared"))
PAGE = ROOT / "docs" / "qat.md"
BEGIN, END = "<!-- begin: written by make bench-qat -->", "<!-- end -->"
TERNARY = (LayerRule("*", 2), *(LayerRule(kind, 4) for kind in (":first", ":last", ":depthwise")))
WEIGHTS = {"4 bits": everywhere(4), "ternary": TERNARY}


@dataclass(frozen=True)
class Case:
    """A training. `epochs` None: as many as `rlx-edge finetune` makes by itself, 1,500 steps' worth."""

    name: str
    weights: str
    epochs: int | None = None
    seed: int = 0


CASES = (
    Case("kws", "ternary", epochs=167),
    Case("ic", "4 bits"),
    *(Case("kws", "4 bits", seed=seed) for seed in range(4)),
    *(Case(name, "4 bits") for name in ("mnist_dw", "mnist_resnet", "mnist_valid")),
    Case("mnist_resnet", "ternary"),
)


@dataclass(frozen=True)
class Result:
    """Top-1 and agreement with float's top-1 in percent, SQNR of the logits in dB, before and after training.

    `module`: the share of samples in percent with the same top-1 in the trained module and in its int8 model.
    """

    case: Case
    float_top1: float
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    module: float
    epochs: int
    best: int
    seconds: float


def samples_of(name: str) -> tuple[Array, Array]:
    """Real inputs and labels of a model's data set."""
    with np.load(SHARED / "data" / f"{name.split('_')[0]}.npz") as file:
        x, labels = file["x"].astype(np.float32), file["y"].astype(np.int64).reshape(-1)
    return (x / np.float32(255) if name.startswith("mnist") else x), labels


def outputs(graph: Graph, int8: Graph, data: Data) -> tuple[Array, Array, float]:
    """The first output [n, classes] of both, and the SQNR of the logits, by the exact integers of the int8 graph."""
    prepared, kept, sums = prepare(graph), ([], []), Sums()
    pairs = judged(prepared, int8)
    for batch in batches(data, prepared, int8, most=100):
        expected = fast_integer.run_all(batch.graphs[0], batch.inputs)
        codes = quantized_inputs(int8, batch.inputs)
        found = real_values(batch.graphs[1], fast_integer.run_all(batch.graphs[1], codes))
        for a, b in pairs:
            sums.add(expected[a.name], found[b.name])
        for rows, node, values in zip(
            kept, (prepared.output_nodes[0], int8.output_nodes[0]), (expected, found), strict=True
        ):
            rows.append(values[node.name].reshape(batch.count, -1))
    return np.concatenate(kept[0]), np.concatenate(kept[1]), sums.db


def run(case: Case) -> Result:
    """Train a model on the samples with an even index, and test it on the others."""
    import torch

    from rlx_edge.qat.finetune import Job, finetune
    from rlx_edge.qat.settings import Settings

    torch.set_num_threads(1)
    graph = load(SHARED / "models" / f"{case.name}_float.tflite")
    x, labels = samples_of(case.name)
    key = graph.inputs[0].name
    start = time.perf_counter()
    recipe = replace(EFFORTS["balanced"], weights=WEIGHTS[case.weights])
    modules = []
    job = Job(graph, Data({key: x[::2]}), recipe, Settings(epochs=case.epochs, seed=case.seed))
    made = finetune(job, after_epoch=lambda training: modules.append(training.module))
    seconds = time.perf_counter() - start
    test, right = Data({key: x[1::2]}), labels[1::2]
    measured = []
    for int8 in (made.start, made.graph):
        exact, found, sqnr_db = outputs(made.float_graph, int8, test)
        top = found.argmax(1)
        measured.append((100 * np.mean(top == right), 100 * np.mean(top == exact.argmax(1)), sqnr_db))
    with torch.no_grad():
        trained = [modules[-1](torch.from_numpy(x[1::2][i : i + 100])).flatten(1) for i in range(0, len(right), 100)]
    same = 100 * np.mean(torch.cat(trained).argmax(1).numpy() == top)
    epochs = made.history[-1].epoch
    float_top1 = 100 * np.mean(exact.argmax(1) == right)
    before, after = (tuple(map(float, figures)) for figures in measured)
    return Result(case, float(float_top1), before, after, float(same), epochs, made.best.epoch, seconds)


def table(results: list[Result]) -> str:
    """As Markdown."""
    lines = [
        "| model | weights | seed | float | before | after | module | epochs (kept) | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        cells = [" / ".join((f"{a:.1f}", f"{b:.1f}", f"{c:.1f}")) for a, b, c in (r.before, r.after)]
        lines.append(
            f"| {r.case.name} | {r.case.weights} | {r.case.seed} | {r.float_top1:.1f} | {cells[0]} | {cells[1]} "
            f"| {r.module:.2f} | {r.epochs} ({r.best}) | {r.seconds:.0f} |"
        )
    return "\n".join(lines)


def write_page(results: list[Result]) -> None:
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{rest.split(END)[1]}")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if not (SHARED / "models").is_dir() or not (SHARED / "data").is_dir():
        print("bench-qat needs ../shared/models and ../shared/data beside the repository", file=sys.stderr)
        return 2
    results = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for result in pool.map(run, CASES):
            results.append(result)
            print(json.dumps(asdict(result)), flush=True)
    results.sort(key=lambda result: (result.case.weights, result.case.name, result.case.seed))
    if PAGE.exists():
        write_page(results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
