"""How much RAM the link gets on a board: its buffers must leave room for a model on small chips."""

from __future__ import annotations

from rlx_edge.device.boards import Board

SMALL_RAM_BYTES = 16 * 1024


def max_payload(board: Board) -> int:
    """Bytes of the longest payload; the link has two buffers of about that size."""
    return 1024 if board.placement.data.bytes > SMALL_RAM_BYTES else 256


def ring_bytes(board: Board) -> int:
    """Received bytes that are kept while the device works on a frame; a power of two."""
    return 256 if board.placement.data.bytes > SMALL_RAM_BYTES else 64


def buffer_bytes(board: Board) -> int:
    """All of them together."""
    return 2 * max_payload(board) + ring_bytes(board)
