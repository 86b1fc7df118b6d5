"""Small `.tflite` files from plain records, so that tests can ask about any operator, well formed or not."""

from __future__ import annotations

from rlx_edge.formats.export_tflite_file import OpSpec, TensorSpec, write_model
from rlx_edge.ir import Array

__all__ = ["Array", "OpSpec", "TensorSpec", "write_model"]
