"""libFuzzer on the device's end of the link: `python tests/fuzz_link.py RUNS [FOLDER]` (or `make fuzz`).

Needs clang. Inputs that reach something new are kept in FOLDER, and a crash lies beside them.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from rlx_edge.device.protocol import Command
from rlx_edge.resources import firmware_dir

SOURCES = Path(__file__).parent / "link"
FLAGS = ("-std=gnu11", "-g", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror")
# Comparisons are not traced: the target makes checksums and sessions right by itself, and is a third faster so.
SANITIZE = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-fno-sanitize-coverage=trace-cmp")


def build(folder: Path, payload: int = 128) -> Path:
    """Compiles tests/link/fuzz_target.c with the link; only the link and the target are watched, for speed."""
    link, kernels = firmware_dir() / "link", firmware_dir() / "kernels"
    options = [*FLAGS, f"-DRLX_LINK_MAX_PAYLOAD={payload}", *(f"-I{path}" for path in (kernels, link, SOURCES))]
    plain = [SOURCES / "models.c", kernels / "rlx_crc32.c"]
    objects = [folder / f"{source.stem}.o" for source in plain]
    for source, made in zip(plain, objects, strict=True):
        subprocess.run(["clang", *options, "-c", str(source), "-o", str(made)], check=True)
    watched = [str(path) for path in (SOURCES / "fuzz_target.c", *sorted(link.glob("*.c")), *objects)]
    program = folder / "fuzz_target"
    subprocess.run(["clang", *options, *SANITIZE, *watched, "-o", str(program)], check=True)
    return program


def record(command: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """A request, as fuzz_target.c reads it."""
    return bytes([command | flags, len(payload)]) + payload


def write(model: int, tensor: int, offset: int, data: bytes, flags: int = 0) -> bytes:
    return record(Command.WRITE, struct.pack("<BBHI", model, flags, tensor, offset) + data)


def seeds() -> dict[str, bytes]:
    """Conversations with the test models, for the fuzzer to start from."""
    hello = record(Command.HELLO, b"\x07")
    run, read = record(Command.RUN, b"\x01"), record(Command.READ, struct.pack("<BBHIH", 1, 0, 1, 0, 8))
    describe = [record(Command.MODEL, b"\0"), record(Command.TENSOR, b"\0\0\2\0"), record(Command.LAYER, bytes(8))]
    chain = [write(0, 0, at, bytes(100)) for at in range(0, 1500, 100)] + [write(0, 1, 0, b"abcd")]
    steps = [record(Command.STEP, struct.pack("<BBHI", 0, 0, 0, step)) for step in range(3)]
    rows = [record(Command.ROW, struct.pack("<BBHII", 4, 0, 0, 0, row)) for row in range(8)]
    inner = record(Command.READ, struct.pack("<BBHIH", 4, 0, 3, 0, 8))
    return {
        "describe": hello + b"".join(describe) + record(Command.PING, b"abc"),
        "run": hello + record(Command.CLEAR, b"\1") + write(1, 0, 0, bytes(8)) + run + read,
        "repeat": hello + write(1, 0, 0, bytes(8)) + run + record(Command.RUN, b"\1", 0x10) + read,
        "chain": hello + b"".join(chain) + b"".join(steps),
        "rows": hello
        + write(4, 0, 0, bytes(range(32)))
        + rows[0]
        + inner
        + b"".join(rows[1:])
        + record(Command.RUN, b"\4"),
        "image": hello
        + record(Command.IMAGE, struct.pack("<IH", 0, 64))
        + record(Command.IMAGE, struct.pack("<IH", 60, 9)),
        "variable": hello + write(2, 0, 0, b"\3\0abc", 1) + record(Command.RUN, b"\2"),
        "refused": record(Command.RUN, b"\1") + hello + record(Command.RUN, b"\1", 0x20) + record(15),
        "noise": b"\x85hello" + hello + record(Command.RESET) + b"\x83\0\0\1" + record(Command.PING, b"x", 0x40),
        "fault": hello + write(3, 0, 0, b"\1") + record(Command.RUN, b"\3"),
    }


def fuzz(runs: int, folder: Path, seed: int = 1) -> str:
    """Runs the fuzzer; returns what it says. Raises CalledProcessError when it finds something."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (corpus / name).write_bytes(data)
    limits = [f"-runs={runs}", f"-seed={seed}", "-max_len=400", "-timeout=10", f"-artifact_prefix={folder}/"]
    done = subprocess.run(
        [str(build(folder)), *limits, "-print_final_stats=1", str(corpus)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(done.stderr[-5000:])
    return done.stderr


if __name__ == "__main__":
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.mkdtemp(prefix="rlx-edge-fuzz-"))
    said = fuzz(int(sys.argv[1]), place).splitlines()
    print("\n".join([line for line in said if "cov:" in line][-1:] + [line for line in said if "stat::" in line]))
