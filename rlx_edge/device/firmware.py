"""Whether a device runs the firmware of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx_edge.device.link import Link
from rlx_edge.device.protocol import ModelInfo
from rlx_edge.errors import DeviceError

FLASH_AGAIN = "flash the build again: rlx-edge flash BUILD"


class WrongFirmwareError(DeviceError):
    """The device runs other firmware than the build's. `same_model`: the model is the build's, but its bytes in flash,
    or those of the code around it, are not."""

    def __init__(self, message: str, same_model: bool) -> None:
        super().__init__(message)
        self.same_model = same_model


@dataclass(frozen=True)
class ExpectedFirmware:
    """What a build says of its firmware: hashes of the models (32 hex digits, by name), and zlib's CRC-32 over the
    image in flash, or None where another build made the image."""

    model_hashes: Mapping[str, str]
    image_crc: int | None


def check_firmware(link: Link, model: ModelInfo, expected: ExpectedFirmware) -> None:
    """Raises WrongFirmwareError unless the device runs the firmware of that build, with the weights undamaged."""
    device = link.device
    wanted = expected.model_hashes.get(model.name)
    if wanted is None:
        names = ", ".join(expected.model_hashes)
        raise DeviceError(f"the build has no model {model.name!r}; it has: {names}")
    if model.hash != wanted:
        raise WrongFirmwareError(
            f"{link.port}: stale firmware: the device runs another version of {model.name!r} "
            f"(hash {model.hash[:12]}, the build's is {wanted[:12]}): {FLASH_AGAIN}",
            same_model=False,
        )
    if device.image_bytes and expected.image_crc is not None and device.image_crc != expected.image_crc:
        raise WrongFirmwareError(
            f"{link.port}: the device's firmware is not the build's (CRC {device.image_crc:08x} over "
            f"{device.image_bytes} bytes, the build's is {expected.image_crc:08x}): {FLASH_AGAIN}",
            same_model=True,
        )
    if not model.weights_ok:
        mend = "compile the bundle unchanged, and flash it" if expected.image_crc is None else FLASH_AGAIN
        raise WrongFirmwareError(
            f"{link.port}: the weights of {model.name!r} in the device's flash are not those that it was generated "
            f"with: {mend}",
            same_model=True,
        )
