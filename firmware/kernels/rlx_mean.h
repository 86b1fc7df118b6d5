/* rlx_mean.h: the sum that a mean is made of.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_MEAN_H
#define RLX_MEAN_H

#include "rlx_kernels.h"

/* x: one element of [reduce_0][keep_1][reduce_1][keep_2]; the sum over both groups of reduced axes */
static int32_t sum_of(const rlx_mean_t *p, const int8_t *x)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < p->reduce_0; i++, x += p->keep_1 * p->reduce_1 * p->keep_2) {
        for (int32_t j = 0; j < p->reduce_1; j++) {
            sum += x[j * p->keep_2] - p->x_zp;
        }
    }
    return sum;
}

#endif
