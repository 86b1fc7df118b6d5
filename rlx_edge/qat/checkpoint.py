"""A training in the middle, as a file: to go on after a kill, with the same bits in the end."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlx_edge.data import Data
from rlx_edge.errors import EdgeError
from rlx_edge.files import replacing
from rlx_edge.ir import Graph, to_text
from rlx_edge.qat.settings import Epoch
from rlx_edge.qat.train import State, Training

FORMAT = "rlx-edge checkpoint 3"


@dataclass(frozen=True)
class Identity:
    """What a training is of: hashes of the float model and of the data, and all choices by name."""

    model: str
    data: str
    choices: Mapping[str, str]


def identity(graph: Graph, data: Data, choices: Mapping[str, object]) -> Identity:
    """Of a training of a graph on data."""
    model = hashlib.sha256(to_text(replace(graph, metadata={})).encode())
    for name, values in sorted(graph.params.items()):
        model.update(name.encode() + np.ascontiguousarray(values).tobytes())
    samples = hashlib.sha256()
    labels = {} if data.labels is None else {"labels": data.labels}
    for name, values in (*sorted(data.inputs.items()), *labels.items()):
        samples.update(f"{name} {values.dtype} {values.shape}".encode())
        samples.update(np.ascontiguousarray(values).data)
    return Identity(model.hexdigest(), samples.hexdigest(), {name: repr(value) for name, value in choices.items()})


def save_checkpoint(path: Path, training: Training, identity: Identity) -> None:
    """Write the state after an epoch; a kill while it is written leaves the one before."""
    state = training.state()
    content = {
        "format": FORMAT,
        "identity": asdict(identity),
        "module": state.module,
        "optimizer": state.optimizer,
        "best": state.best,
        "history": [asdict(epoch) for epoch in state.history],
    }
    with replacing(path) as file:
        torch.save(content, file)


def read_checkpoint(path: Path, identity: Identity) -> State:
    """Where a training was left.

    Raises EdgeError for a missing or damaged file, and for a checkpoint of another model, other data or other choices.
    """
    content = _read(path)
    try:
        _check_identity(path, content["identity"], identity)
        history = tuple(Epoch(**epoch) for epoch in content["history"])
        state = State(content["module"], content["optimizer"], content["best"], history)
    except (KeyError, TypeError) as error:
        raise _damaged(path) from error
    if not history:
        raise _damaged(path)
    return state


def restore(path: Path, training: Training, state: State) -> None:
    """Go on from the state in a file. Raises EdgeError where it is not one of this training's."""
    try:
        training.module.load_state_dict(state.best)  # Else a wrong one would be found at the end only.
        training.restore(state)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> EdgeError:
    return EdgeError(f"{path}: the checkpoint is damaged; start without --resume")


def saved_epoch(path: Path) -> int:
    """The last epoch that a checkpoint holds. Raises EdgeError for a missing or damaged file."""
    return int(_read(path)["history"][-1]["epoch"])


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise EdgeError(f"{path}: there is no checkpoint to resume from; start without --resume")
    try:
        with zipfile.ZipFile(path) as archive:  # PyTorch itself does not look at the checksums.
            if archive.testzip() is not None:
                raise _damaged(path)
        content = torch.load(path, map_location="cpu", weights_only=True)  # Runs no code that the file brings.
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise EdgeError(f"{path}: no readable checkpoint; start without --resume") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise EdgeError(f"{path}: no checkpoint of this version of rlx-edge; start without --resume")
    return content


def _check_identity(path: Path, held: Mapping[str, Any], wanted: Identity) -> None:
    for what, said in (("model", "another model"), ("data", "other data")):
        if held[what] != getattr(wanted, what):
            raise EdgeError(f"{path}: a checkpoint of {said}; start without --resume")
    for name in sorted({*held["choices"], *wanted.choices}):
        then, now = held["choices"].get(name), wanted.choices.get(name)
        if then != now:
            raise EdgeError(f"{path}: the checkpoint was made with {name} {then}, not {now}; start without --resume")
