"""Models in and out. Every importer gives a verified graph or raises EdgeError with what to do."""

from __future__ import annotations

from rlx_edge.formats.load import load
from rlx_edge.formats.rlx import load_rlx, save_rlx
from rlx_edge.formats.tflite import load_tflite

__all__ = ["load", "load_rlx", "load_tflite", "save_rlx"]
