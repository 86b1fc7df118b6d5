"""Small gray images as text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array

BLOCKS = " ░▒▓█"
PLAIN = " .:+#"
"""For outputs that cannot show blocks."""
GAP = "   "


def picture(image: Array, shades: str = BLOCKS) -> list[str]:
    """An image [height, width], from 0 to 1, as lines of two characters a pixel, which makes pixels about square."""
    levels = np.clip(np.rint(image * (len(shades) - 1)), 0, len(shades) - 1).astype(int)
    return ["".join(2 * shades[level] for level in row) for row in levels]


def side_by_side(images: Sequence[Array], captions: Sequence[str], shades: str = BLOCKS) -> str:
    """Images [height, width] of equal size in a row, a caption below each."""
    columns = [[*picture(image, shades), caption] for image, caption in zip(images, captions, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    return "\n".join(GAP.join(map(str.ljust, row, widths)).rstrip() for row in rows)
