"""`python -m rlx_edge`, where the command `rlx-edge` is not on the path."""

from __future__ import annotations

from rlx_edge.cli import main

main()
