"""Limits on a model for CI: `rlx-edge.toml` says what must hold, and `rlx-edge check` measures whether it does."""
