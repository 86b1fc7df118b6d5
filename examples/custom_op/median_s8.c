/* median_s8.c: the window is sorted by insertion in scratch memory.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "median_s8.h"

static int32_t within(int32_t i, int32_t width)
{
    return i < 0 ? 0 : i < width ? i : width - 1;
}

void median_s8(const median_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    int8_t *sorted = (int8_t *)scratch;
    (void)y0;
    (void)y1;
    for (int32_t row = 0; row < p->rows; row++) {
        const int8_t *in = rlx_row(x, 0) + row * p->width;
        int8_t *out = rlx_row(y, 0) + row * p->width;
        for (int32_t i = 0; i < p->width; i++) {
            for (int32_t k = 0; k < p->size; k++) {
                const int8_t value = in[within(i + k - p->size / 2, p->width)];
                int32_t place = k;
                for (; place > 0 && sorted[place - 1] > value; place--) {
                    sorted[place] = sorted[place - 1];
                }
                sorted[place] = value;
            }
            out[i] = sorted[p->size / 2];
        }
    }
}
