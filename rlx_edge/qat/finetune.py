"""From a float model to a trained int8 model in one call: quantize by a recipe, train on data, convert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from rlx_edge.data import Data
from rlx_edge.errors import DataError, EdgeError
from rlx_edge.ir import Array, Graph, Requant
from rlx_edge.qat.checkpoint import identity, read_checkpoint, restore, save_checkpoint
from rlx_edge.qat.integers import trained
from rlx_edge.qat.module import QatModule
from rlx_edge.qat.settings import Epoch, Settings
from rlx_edge.qat.train import Training, class_labels, split
from rlx_edge.quant.calibrate import Calibration
from rlx_edge.quant.quantize import Progress, assigned, build_int8, calibrated, stage
from rlx_edge.quant.recipe import Recipe

CALIBRATION_SAMPLES = 128
"""Samples that ranges and the weights at the start come from, unless told otherwise: the first ones."""


@dataclass(frozen=True)
class Job:
    """What is trained, and how. `checkpoint`: a file to write after each epoch; `resume`: go on from it.

    `threads`: PyTorch's on the CPU. Models for microcontrollers are so small that a second one makes training slower;
    and sums, so results, depend on how many there are.
    """

    graph: Graph
    data: Data
    recipe: Recipe
    settings: Settings
    calibration_samples: int = CALIBRATION_SAMPLES
    requant: Requant = Requant.TFLM
    device: str = "cpu"
    threads: int = 1
    checkpoint: Path | None = None
    resume: bool = False


@dataclass(frozen=True)
class Finetuned:
    """The trained int8 graph, beside the one that training started from; what they were made from; what happened.

    `held_out` are the samples that were not trained on; `float_graph` is the one that inner tensors compare with.
    """

    graph: Graph
    start: Graph
    float_graph: Graph
    calibration: Calibration
    held_out: Data
    history: tuple[Epoch, ...]
    best: Epoch
    epochs: int


def check_device(name: str) -> None:
    """Raise EdgeError for a device that PyTorch does not have here."""
    devices = ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))] if torch.cuda.is_available() else []
    if name in ("cpu", *devices):
        return
    if name.split(":")[0] != "cuda":
        raise EdgeError(f"no device {name!r}; there are cpu and cuda")
    if not devices:
        raise EdgeError(f"PyTorch {torch.__version__} finds no CUDA device here; use --device cpu")
    raise EdgeError(f"no device {name!r} here; there are cpu, {', '.join(devices)}")


def finetune(
    job: Job, progress: Progress | None = None, after_epoch: Callable[[Training], None] | None = None
) -> Finetuned:
    """Quantize, train and convert. The same job gives the same bits on the CPU, resumed or not.

    `after_epoch` is called once before the first epoch of this call, too, and each time when the checkpoint is written.
    Raises EdgeError for data that do not fit, for a training that diverges, and for a checkpoint of another job.
    """
    check_device(job.device)
    if job.threads < 1:
        raise EdgeError(f"{job.threads} threads: 1 or more are needed")
    if job.calibration_samples < 1:
        raise DataError(f"{job.calibration_samples} samples to calibrate on: 1 or more are needed")
    if job.settings.labels:
        class_labels(job.data, job.graph)  # Before the work that comes first.
    ours = identity(job.graph, job.data, choices(job))
    left = read_checkpoint(job.checkpoint, ours) if job.checkpoint is not None and job.resume else None
    few = rows(job.data, slice(0, job.calibration_samples))
    float_graph, calibration = calibrated(job.graph, few, job.recipe, progress)
    assignment = assigned(float_graph, calibration, job.recipe, few, stage("quantizing", progress))
    module = QatModule(assignment, job.requant)

    def done(now: Training) -> None:
        if job.checkpoint is not None:
            save_checkpoint(job.checkpoint, now, ours)
        if after_epoch is not None:
            after_epoch(now)

    with threads(job.threads):
        training = Training(module, job.data, job.settings, job.device)
        if left is not None and job.checkpoint is not None:
            check_start(job, training.history[0], left.history[0])
            restore(job.checkpoint, training, left)
        done(training)
        training.run(done)
    return Finetuned(
        build_int8(trained(module), job.requant),
        build_int8(assignment, job.requant),
        float_graph,
        calibration,
        rows(job.data, split(len(job.data), job.settings)[0]),
        tuple(training.history),
        training.best_epoch,
        training.epochs,
    )


def choices(job: Job) -> dict[str, object]:
    """All that a result depends on, beside model and data."""
    fixed = {name: getattr(job, name) for name in ("calibration_samples", "device", "threads")}
    return asdict(job.recipe) | asdict(job.settings) | fixed | {"requant": job.requant.value}


def check_start(job: Job, ours: Epoch, saved: Epoch) -> None:
    """Quantization sums in numpy, whose sums differ by machine and by the threads of its BLAS."""
    if job.device == "cpu" and (ours.held_out_loss, ours.sqnr_db) != (saved.held_out_loss, saved.sqnr_db):
        raise EdgeError(
            f"{job.checkpoint}: here the start has a loss of {ours.held_out_loss:.8g}, not {saved.held_out_loss:.8g}: "
            "another machine, or another OMP_NUM_THREADS; start without --resume"
        )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch computes with so many of them inside, and with as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rows(data: Data, picked: Array | slice) -> Data:
    """These samples, with their labels."""
    inputs = {name: values[picked] for name, values in data.inputs.items()}
    return replace(data, inputs=inputs, labels=None if data.labels is None else data.labels[picked])
