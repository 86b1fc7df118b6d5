/* rlx_add_table_s8: sum or difference of two tensors of the same shape, one operand rescaled by a table.
 *
 * The operand of the larger scale is rescaled to the common scale by a power of two, so a product with `factor` does it.
 * The other one, b, has a table of 256 results; the zero points and the sign of a difference are in table and factor:
 *     2 * (rescaled sum) = a * factor + table[b + 128].
 * That is rescaled to the output's scale (rlx_twice.h). Proved by the generator from the table: |sum| < 2^30, the
 * conditions of rlx_twice.h, and that a's rescaling is linear. y may be a or b.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_twice.h"

/* What an element needs beside the table, in registers. */
typedef struct {
    int32_t factor, multiplier, k, shift;
} scale_t;

static inline int8_t element(const scale_t *s, int32_t a, int32_t b)
{
    return rlx_saturate_s8(rlx_twice_rescale(a * s->factor + b, s->multiplier, s->k) >> s->shift);
}

static void add_row(const scale_t *s, const int32_t *table, const int8_t *a, const int8_t *b, int8_t *y, int32_t n)
{
    const int32_t *zero = table + 128;
    const int8_t *end = y + n;
#pragma GCC unroll 1 /* for size */
    for (int32_t rest = n & 3; rest > 0; rest--) {
        *y++ = element(s, *a++, zero[*b++]);
    }
    while (y != end) {
        y[0] = element(s, a[0], zero[b[0]]);
        y[1] = element(s, a[1], zero[b[1]]);
        y[2] = element(s, a[2], zero[b[2]]);
        y[3] = element(s, a[3], zero[b[3]]);
        a += 4;
        b += 4;
        y += 4;
    }
}

void rlx_add_table_s8(const rlx_add_table_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    const scale_t scale = {p->factor, p->multiplier, p->k, p->shift};
    for (int32_t row = y0; row < y1; row++) {
        int8_t *out = rlx_row(y, row);
        add_row(&scale, p->table, rlx_row(a, row), rlx_row(b, row), out, p->width);
        rlx_bound_s8(out, p->width, p->low, p->high);
    }
}
