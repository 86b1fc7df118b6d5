"""A runtime in a process of its own: some end the process on files that they do not like, and ours must go on.

`python -m rlx_edge.runtime_process RUNTIME FOLDER` is that process. It reads what to run from the folder, and writes
the tensors of each sample there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rlx_edge.ir import Array
from rlx_edge.runtimes import RUNTIMES, TFLITE, Runtime, RuntimeRefusedError, shortened

_REFUSED = 3
"""The exit code that says that the reason is in `refused.txt`."""


def run_apart(
    runtime: Runtime, model: bytes, tensors: Sequence[str] | None, samples: Sequence[Sequence[Array]]
) -> Iterator[list[Array]]:
    """The wanted tensors (None: the outputs) of each sample, which has the inputs in the file's order.

    Raises RuntimeRefusedError when the runtime does not run the file, or ends its process.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-edge-") as name:
        folder = Path(name)
        (folder / "model").write_bytes(model)
        (folder / "tensors.json").write_text(json.dumps(tensors))
        for number, sample in enumerate(samples):
            np.savez(folder / f"given{number}.npz", *sample)
        _run(runtime, folder)
        for number in range(len(samples)):
            yield _arrays(folder / f"found{number}.npz")


def _run(runtime: Runtime, folder: Path) -> None:
    # -P, and the path of this process: what lies in the working directory is no part of it.
    command = [sys.executable, "-P", "-m", __spec__.name, runtime.name, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        return
    said = "; ".join(filter(None, map(str.strip, done.stderr.decode(errors="replace").splitlines())))
    if done.returncode != _REFUSED:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        reason = f"it ended its process ({how}): {said or 'it said nothing'}"
    elif said and runtime.format == TFLITE:  # There the exceptions say little; the standard error says why.
        reason = said
    else:
        reason = (folder / "refused.txt").read_text()
    raise RuntimeRefusedError(f"{runtime.name}: {shortened(reason)}")


def _arrays(path: Path) -> list[Array]:
    held: Mapping[str, Array]
    with np.load(path, allow_pickle=False) as held:
        return [held[f"arr_{index}"] for index in range(len(held))]


def main(name: str, folder: Path) -> int:
    """The other process."""
    runtime = next(runtime for runtime in RUNTIMES if runtime.name == name)
    try:
        session = runtime.open((folder / "model").read_bytes(), json.loads((folder / "tensors.json").read_text()))
        for number in range(len(list(folder.glob("given*.npz")))):
            np.savez(folder / f"found{number}.npz", *session(_arrays(folder / f"given{number}.npz")))
    except Exception as error:  # Runtimes' own classes share no other base.
        (folder / "refused.txt").write_text(str(error) or type(error).__name__)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
