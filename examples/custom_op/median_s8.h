/* median_s8.h: the median of each window of a row.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef MEDIAN_S8_H
#define MEDIAN_S8_H

#include "rlx.h"

/* width: elements of a row; size: elements of a window, odd. Positions before and behind a row repeat its ends. */
typedef struct {
    int32_t rows, width, size;
} median_t;

/* x, y: [rows][width]; scratch: size bytes. The whole tensor is row 0. */
void median_s8(const median_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1);

#endif
