"""The second client, examples/link-client/client.c, written from docs/protocol.md alone, against real devices."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from models import ModelMaker
from test_link_faulty import BOARD, Case, faulty, make_case

from rlx_edge import api
from rlx_edge.device.emulator import Emulator

CLIENT = Path(__file__).parents[1] / "examples" / "link-client" / "client.c"
FLAGS = (
    "-std=c11",
    "-D_DEFAULT_SOURCE",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Werror",
    "-fsanitize=address,undefined",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("client") / "client"
    subprocess.run(["gcc", *FLAGS, "-o", str(program), str(CLIENT)], check=True)
    return program


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """An input of several frames."""
    maker = ModelMaker("wide", 4)
    graph = maker.builder.build([maker.dense(maker.input((1, 2500)), 3)])
    return make_case(graph, tmp_path_factory.mktemp("build"))


@pytest.mark.parametrize("rate", [0, 0.02])
def test_a_client_in_c_gets_the_right_outputs(client: Path, case: Case, rate: float) -> None:
    """Over a good line, and over one that harms frames."""
    with Emulator(api.load_board(BOARD), case.firmware.elf) as emulator, faulty(emulator.port, rate=rate) as line:
        for sample, output in zip(case.samples[:8], case.outputs[:8], strict=True):
            done = subprocess.run([client, line.port], input=sample.tobytes(), capture_output=True, check=False)
            assert done.returncode == 0, done.stderr
            assert done.stdout == output.tobytes()


def test_it_says_what_is_wrong(client: Path, case: Case) -> None:
    with Emulator(api.load_board(BOARD), case.firmware.elf) as emulator:
        done = subprocess.run([client, emulator.port], input=b"short", capture_output=True, text=False, check=False)
    assert (done.returncode, done.stderr) == (1, b"the input ends early\n")
