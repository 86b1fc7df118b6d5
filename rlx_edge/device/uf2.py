"""UF2, the format that boot ROMs take over a USB drive: blocks of 512 bytes, each of which says where it goes.

The layout is that of Microsoft's specification (https://github.com/microsoft/uf2).
"""

from __future__ import annotations

import struct

BLOCK_BYTES = 512
PAYLOAD_BYTES = 256  # boot ROMs of Raspberry Pi take no other size
MAGIC_START, MAGIC_SECOND, MAGIC_END = 0x0A324655, 0x9E5D5157, 0x0AB16F30
FAMILY_PRESENT = 0x2000
_HEADER = struct.Struct("<8I")
_ROOM = BLOCK_BYTES - _HEADER.size - 4


def uf2_file(image: bytes, start: int, family: int) -> bytes:
    """The image, to lie in flash from the address `start`, as a UF2 file for chips of a family.

    The last page is filled up with 0xFF, as erased flash reads. An image has no gaps, which the RP2040's boot ROM
    writes wrongly (RP2040-E14).
    """
    image += b"\xff" * (-len(image) % PAYLOAD_BYTES)
    count = len(image) // PAYLOAD_BYTES
    blocks = []
    for number in range(count):
        offset = number * PAYLOAD_BYTES
        header = _HEADER.pack(
            *(MAGIC_START, MAGIC_SECOND, FAMILY_PRESENT, start + offset, PAYLOAD_BYTES, number, count, family)
        )
        payload = image[offset : offset + PAYLOAD_BYTES].ljust(_ROOM, b"\0")
        blocks.append(header + payload + struct.pack("<I", MAGIC_END))
    return b"".join(blocks)
