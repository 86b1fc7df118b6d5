"""The command `finetune`: quantization-aware training, for which PyTorch is needed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlx_edge.cli_options import (
    DataFile,
    Dims,
    Json,
    Model,
    Output,
    Preprocessing,
    Rule,
    Samples,
    check_suffix,
    open_model,
    warn,
)
from rlx_edge.cli_quantize import Effort, FixedWeights, changed, fixed_rules
from rlx_edge.data import LABELS, load_data, preprocess_metadata
from rlx_edge.engines import is_float
from rlx_edge.errors import EdgeError
from rlx_edge.formats.rlx import save_rlx
from rlx_edge.ir import Graph, Requant
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.qat import need_torch
from rlx_edge.qat.best import few_held_out
from rlx_edge.qat.settings import Settings
from rlx_edge.quant.quality import Quality, quality
from rlx_edge.quant.recipe import DEFAULT_EFFORT
from rlx_edge.report import finetune_tables, learning, plots
from rlx_edge.report.console import dumps, note, out, print_json, stages
from rlx_edge.report.finetune_lines import Lines

if TYPE_CHECKING:
    from rlx_edge.qat.finetune import Finetuned, Job

CHECKPOINT = ".checkpoint"

TrainLabels = Annotated[
    str | None,
    typer.Option("--labels", help="an array of class numbers to train by, too; without it no labels are used"),
]
Distill = Annotated[
    bool,
    typer.Option("--distill/--no-distill", help="follow the float model's outputs and layers; with --labels: also"),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="passes over the data; by default some 1,500 steps' worth")
]
LearningRate = Annotated[
    float, typer.Option("--learning-rate", help="in quantization steps of a weight, at the start; it falls to 0")
]
Batch = Annotated[int, typer.Option("--batch", help="samples in a step")]
Seed = Annotated[int, typer.Option("--seed", help="of the order of samples, and of which are held out")]
HeldOut = Annotated[float, typer.Option("--held-out", help="share of samples not trained on, to choose the best epoch")]
Patience = Annotated[
    int | None, typer.Option("--patience", help="epochs without a better one that end training; by default two thirds")
]
Mix = Annotated[
    float | None,
    typer.Option("--mix", help="share of samples that become averages of two; by default a half of fewer than 1,000"),
]
Calibrate = Annotated[
    int, typer.Option("--calibrate", help="how many samples, the first ones, quantization starts from")
]
Device = Annotated[str, typer.Option("--device", help="cpu or cuda")]
Threads = Annotated[
    int, typer.Option("--threads", help="of PyTorch on the CPU: more make small models slower, and change the result")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="go on from the checkpoint that a killed run left beside the result")
]
Curve = Annotated[
    Path | None, typer.Option("--plot", help="also draw the learning curve into this .svg, .png or .pdf (extra: plots)")
]
DEFAULTS = Settings()


def finetune(
    model: Model,
    data: DataFile,
    out_file: Output,
    samples: Samples = None,
    labels: TrainLabels = None,
    distill: Distill = True,
    preprocess: Preprocessing = None,
    level: Effort = DEFAULT_EFFORT,
    weights: FixedWeights = None,
    calibrate: Calibrate = 128,
    epochs: Epochs = None,
    learning_rate: LearningRate = DEFAULTS.learning_rate,
    batch: Batch = DEFAULTS.batch,
    seed: Seed = DEFAULTS.seed,
    held_out: HeldOut = DEFAULTS.held_out,
    patience: Patience = None,
    mix: Mix = None,
    device: Device = "cpu",
    threads: Threads = 1,
    resume: Resume = False,
    rule: Rule = Requant.TFLM,
    plot: Curve = None,
    dims: Dims = None,
    json: Json = False,
) -> None:
    """Quantize a float model as `quantize` does, then train it to be what it was in float32.

    No labels are needed: the float model says what is right. A checkpoint is written after each epoch.
    """
    need_torch()
    check_suffix(out_file, ".rlx")
    if plot is not None:
        plots.check_plot(plot)
    rules = fixed_rules(weights, "finetune")
    settings = Settings(epochs, batch, learning_rate, held_out, patience, seed, distill, labels is not None, mix)
    graph = open_model(model, dims)
    if not is_float(graph):
        raise EdgeError(
            f"{model}: is quantized already, and training starts from the float model: give that one, "
            "with the --weights that this one was made with"
        )
    given = load_data(data, graph, samples=samples, labels=labels or LABELS, preprocess=preprocess)

    from rlx_edge.qat.finetune import Job

    recipe = changed(level, {"weights": rules})
    checkpoint = out_file.with_suffix(CHECKPOINT)
    job = Job(graph, given, recipe, settings, calibrate, rule, device, threads, checkpoint, resume)
    few = few_held_out(settings.held_out_for(len(given)))
    warn(few)
    start, lines = time.monotonic(), Lines()
    with _told_what_is_saved(job, lines):
        made = _trained(job, lines)
        seconds = time.monotonic() - start
        qualities = [quality(made.float_graph, int8, made.held_out) for int8 in (made.start, made.graph)]
        facts = _facts(job, made, qualities)
        save_rlx(made.graph.with_metadata(finetune=dumps(facts), **preprocess_metadata(given)), out_file)
        checkpoint.unlink(missing_ok=True)
    warnings = (*given.warnings, *made.calibration.warnings)
    if json:
        print_json("finetune", facts | {"seconds": round(seconds, 1), "warnings": [*few, *warnings]})
    else:
        finetune_tables.show(made.history, qualities, out)
        note(f"wrote {out_file}")
    warn(warnings)
    if plot is not None:
        learning.plot_learning(made.history, len(made.held_out), plot)
        note(f"wrote {plot}")


@contextmanager
def _told_what_is_saved(job: Job, lines: Lines) -> Iterator[None]:
    """After Ctrl-C, where there is a checkpoint of this training."""
    try:
        yield
    except KeyboardInterrupt:
        if lines.begun or job.resume:
            from rlx_edge.qat.checkpoint import saved_epoch

            assert job.checkpoint is not None
            samples = len(job.data)
            epochs = job.settings.epochs_for(samples - job.settings.held_out_for(samples))
            note(
                f"epoch {saved_epoch(job.checkpoint)} of {epochs} is saved in {job.checkpoint}; "
                "the same command with --resume goes on"
            )
        raise


def _trained(job: Job, lines: Lines) -> Finetuned:
    """With a bar while the start is made, then a line on standard error for some of the epochs."""
    from rlx_edge.qat.finetune import finetune

    assert job.checkpoint is not None
    if job.checkpoint.exists() and not job.resume:
        note(f"{job.checkpoint}: an earlier run was not finished; it starts anew, as --resume was not given")
    with stages() as shown:
        made = finetune(job, shown, lines)
    if made.history[-1].epoch < made.epochs:
        note(f"ended early: no epoch after {made.best.epoch} was better on the samples held out")
    for text in finetune_tables.verdict(made.history):
        note(text)
    return made


def _facts(job: Job, made: Finetuned, qualities: Sequence[Quality]) -> dict[str, Any]:
    """The JSON object, but for what differs from run to run."""
    named = {
        name: {"output_sqnr_db": q.output_sqnr_db, "agreement": q.agreement, "top1": q.top1 and q.top1[1]}
        for name, q in zip(("start", "end"), qualities, strict=True)
    }
    return {
        "settings": asdict(job.settings)
        | {"device": job.device, "threads": job.threads, "calibrate": job.calibration_samples},
        "weights": dict(bits_of(made.graph)),
        "samples": len(job.data),
        "held_out": len(made.held_out),
        "history": [asdict(epoch) for epoch in made.history],
        "epochs": made.epochs,
        "best_epoch": made.best.epoch,
        "quality": named,
    }


def bits_of(graph: Graph) -> Counter[str]:
    """How many layers have weights of which stored type."""
    layers = (node for node in graph.nodes if isinstance(node.op, QConv2d | QMatMul))
    return Counter(graph.nodes[node.inputs[1]].type.dtype.value for node in layers)
