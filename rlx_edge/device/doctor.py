"""What this computer has and lacks for the whole path from a model to a board."""

from __future__ import annotations

import getpass
import grp
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.device.emulator import QEMU
from rlx_edge.device.external import find_gdb
from rlx_edge.device.toolchain import find_compiler
from rlx_edge.errors import ToolError

SERIAL_PATTERNS = ("ttyACM*", "ttyUSB*")


@dataclass(frozen=True)
class Check:
    """One thing that was looked for. `detail`: what was found; `how_to_fix`: what to do, empty when `ok`."""

    name: str
    ok: bool
    detail: str
    how_to_fix: str


def run_checks() -> list[Check]:
    """All checks, in the order in which a deployment needs them. Raises nothing: a failure is a `Check`."""
    return [check_host_compiler(), check_arm_compiler(), check_emulator(), check_gdb(), check_serial()]


def check_host_compiler() -> Check:
    """A C compiler for this computer, which runs models for `evaluate` and `parity`."""
    name = "host C compiler"
    for candidate in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        words = candidate.split()
        if words and shutil.which(words[0]):
            return _version_check(name, [*words, "--version"])
    return Check(name, False, "none found", _install("gcc libc6-dev") + ", or set CC")


def check_arm_compiler() -> Check:
    """arm-none-eabi-gcc, which builds firmware."""
    try:
        return Check("Arm compiler", True, find_compiler().version, "")
    except ToolError as error:
        return Check("Arm compiler", False, str(error), _install("gcc-arm-none-eabi"))


def check_emulator() -> Check:
    """qemu-system-arm, which runs the emulated boards."""
    command = shutil.which(QEMU)
    if command is None:
        return Check("emulator", False, f"{QEMU} not found", _install("qemu-system-arm"))
    return _version_check("emulator", [command, "--version"])


def check_gdb() -> Check:
    """A gdb for Arm, which flashes over a gdb server."""
    try:
        return _version_check("gdb", [find_gdb(), "--version"])
    except ToolError as error:
        return Check("gdb", False, str(error), _install("gdb-multiarch"))


def check_serial(devices: Path = Path("/dev")) -> Check:
    """Whether this user may open the serial ports of boards: those that are there, or ones plugged in later."""
    ports = sorted(port for pattern in SERIAL_PATTERNS for port in devices.glob(pattern))
    refused = [port for port in ports if not os.access(port, os.R_OK | os.W_OK)]
    if refused:
        group = _group_of(refused[0])
        return Check("serial ports", False, f"no permission for {', '.join(map(str, refused))}", _join_group(group))
    if ports:
        return Check("serial ports", True, ", ".join(map(str, ports)), "")
    if os.geteuid() == 0 or _in_group("dialout"):
        return Check("serial ports", True, "no board is connected; permissions are in order", "")
    return Check("serial ports", False, "no board is connected; you are not in group dialout", _join_group("dialout"))


def _version_check(name: str, command: list[str]) -> Check:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, False, f"does not run: {error}", "install it again")
    return Check(name, True, done.stdout.partition("\n")[0].strip(), "")


def _install(packages: str) -> str:
    return f"install it (Debian: apt-get install --no-install-recommends {packages})"


def _join_group(group: str) -> str:
    return f"join the group: sudo usermod -aG {group} {getpass.getuser()}, then log in again"


def _group_of(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError):
        return "dialout"


def _in_group(name: str) -> bool:
    try:
        return grp.getgrnam(name).gr_gid in os.getgroups()
    except KeyError:
        return True  # no such group on this system, so it is not what guards serial ports
