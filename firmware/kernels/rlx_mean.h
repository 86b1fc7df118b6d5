/* rlx_mean.h: the sum that a mean is made of.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_MEAN_H
#define RLX_MEAN_H

#include "rlx_kernels.h"
#include "rlx_lanes.h"

/* x: one element of [reduce_0][keep_1][reduce_1][keep_2]; the sum over both groups of reduced axes */
static inline int32_t sum_of(const rlx_mean_t *p, const int8_t *x)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < p->reduce_0; i++, x += p->keep_1 * p->reduce_1 * p->keep_2) {
        for (int32_t j = 0; j < p->reduce_1; j++) {
            sum += x[j * p->keep_2] - p->x_zp;
        }
    }
    return sum;
}

/* The same of n <= RLX_LANES neighbors of the last axis, as sums[0 .. n). */
static inline void sums_of(const rlx_mean_t *p, const int8_t *x, int32_t n, int32_t *sums)
{
    if (n < RLX_LANES) {
#pragma GCC unroll 1 /* for size */
        for (int32_t c = 0; c < n; c++) {
            sums[c] = sum_of(p, x + c);
        }
        return;
    }
    const int32_t step = p->keep_1 * p->reduce_1 * p->keep_2;
    const int32_t joined = p->keep_1 == 1 ? p->reduce_0 : 1; /* blocks that follow each other are one */
    for (int32_t c = 0; c < RLX_LANES; c++) {
        sums[c] = -p->reduce_0 * p->reduce_1 * p->x_zp;
    }
    for (int32_t i = 0; i < p->reduce_0; i += joined, x += step) {
        rlx_lanes_add(sums, x, p->keep_2, joined * p->reduce_1);
    }
}

#endif
