"""What can go wrong on the link, as kinds of DeviceError whose members carry the facts."""

from __future__ import annotations

from rlx_edge.device.protocol import Fault, Status
from rlx_edge.errors import DeviceError


class NoAnswerError(DeviceError):
    """Nothing, or nothing whole, came back within the time that a request has."""


class RefusedError(DeviceError):
    """The device answered a request with an error; `detail` is the number that came with it."""

    def __init__(self, message: str, status: Status, detail: int) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail


class RestartedError(DeviceError):
    """The device started anew: the session, and the input that it had, are gone."""


class FaultError(DeviceError):
    """The processor met a fault; `fault` has its registers."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault
