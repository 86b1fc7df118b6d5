"""The doctor: each thing missing is named, with how to get it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlx_edge.device.doctor import Check, check_serial, run_checks

NAMES = ["host C compiler", "Arm compiler", "emulator", "gdb", "serial ports"]


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_everything_is_looked_for_and_found_here() -> None:
    checks = run_checks()
    assert [check.name for check in checks] == NAMES
    for check in checks[:4]:
        assert check.ok, check
        assert check.how_to_fix == ""
    assert "GNU gdb" in by_name(checks)["gdb"].detail


def test_what_is_missing_comes_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    checks = by_name(run_checks())
    packages = dict(
        zip(NAMES[:4], ["gcc libc6-dev", "gcc-arm-none-eabi", "qemu-system-arm", "gdb-multiarch"], strict=True)
    )
    for name, package in packages.items():
        assert not checks[name].ok
        assert package in checks[name].how_to_fix


def test_a_tool_that_does_not_run_is_not_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "qemu-system-arm"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    emulator = by_name(run_checks())["emulator"]
    assert not emulator.ok
    assert "does not run" in emulator.detail


def test_ports_that_are_there_are_listed(tmp_path: Path) -> None:
    (tmp_path / "ttyACM0").touch()
    (tmp_path / "ttyS0").touch()
    check = check_serial(tmp_path)
    assert check.ok
    assert check.detail == str(tmp_path / "ttyACM0")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every port")
def test_a_port_without_permission_names_the_group(tmp_path: Path) -> None:
    port = tmp_path / "ttyUSB0"
    port.touch()
    port.chmod(0)
    check = check_serial(tmp_path)
    assert not check.ok
    assert "usermod -aG" in check.how_to_fix
