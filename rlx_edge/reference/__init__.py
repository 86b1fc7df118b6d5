"""What each op means, in numpy: obvious rather than fast."""

from __future__ import annotations

from rlx_edge.reference.run import observe, run, run_all

__all__ = ["observe", "run", "run_all"]
