"""The errors that a person sees: one line that says what, where, and what to do.

Every error that bad input or a bad environment can cause is an `EdgeError`; the command prints its message without a
traceback and exits with 2. Anything else that escapes is a bug in rlx_edge.
"""

from __future__ import annotations

from collections.abc import Sequence


class EdgeError(Exception):
    """Base of all errors meant for people. `str(error)` is the whole message."""


class ModelError(EdgeError):
    """A model file or a graph that cannot be read, or that is not well formed."""


class UnsupportedError(EdgeError):
    """A valid model that asks for something the importer, a rule or a target does not do; lists everything at once."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__("\n  ".join([message, *problems]))
        self.problems = tuple(problems)


class DataError(EdgeError):
    """Calibration or evaluation data that would give a wrong result: NaN, a wrong shape, a wrong dtype, no samples."""


class ToolError(EdgeError):
    """A compiler, emulator or flashing tool that is missing, or that failed."""


class DeviceError(EdgeError):
    """A port, a board or a firmware that does not answer as it should."""
