"""Settings that all tests share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import HostCases, build_host_cases
from flash_bench import Builds, Desk, builds_of
from hypothesis import HealthCheck, settings
from once import once

# Tests start the command hundreds of times, which takes twice as long where its modules are compiled every time.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).resolve().parents[1] / "build" / "bytecode")

# Whoever runs the tests may have boards of their own, which are none of the tests' business.
os.environ["RLX_EDGE_BOARDS"] = str(Path(tempfile.gettempdir()) / "rlx-edge-tests" / "no boards")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("ci", max_examples=100, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("RLX_EDGE_TESTS", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the generated C of the golden model anew")


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """Builds by the name of their board, each made once."""
    return builds_of(tmp_path_factory.mktemp("builds"))


@pytest.fixture(scope="session")
def host_cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCases]:
    """The runner of kernel calls on the host, under sanitizers."""
    cases = HostCases(once(tmp_path_factory, "host-cases", build_host_cases) / "cases")
    yield cases
    cases.close()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    """A computer with nothing on its USB ports and no tools."""
    monkeypatch.setenv("RLX_EDGE_BOARDS", str(tmp_path / "boards"))
    return Desk(tmp_path, monkeypatch, capsys)
