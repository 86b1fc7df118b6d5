/* rlx_dot.h: sums of int8 products, the inner loop of convolution and matrix product.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DOT_H
#define RLX_DOT_H

#include <stdint.h>

/* sum of x[i] * (w[i] - w_zp) over n elements */
static inline int32_t rlx_dot_s8(const int8_t *x, const int8_t *w, int32_t n, int32_t w_zp)
{
    int32_t sum = 0;
    int32_t i = 0;
    if (w_zp == 0) {
        for (; i + 4 <= n; i += 4) {
            sum += x[i] * w[i] + x[i + 1] * w[i + 1] + x[i + 2] * w[i + 2] + x[i + 3] * w[i + 3];
        }
    }
    for (; i < n; i++) {
        sum += x[i] * (w[i] - w_zp);
    }
    return sum;
}

/* sum of w[i] - w_zp over n elements */
static inline int32_t rlx_sum_s8(const int8_t *w, int32_t n, int32_t w_zp)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += w[i] - w_zp;
    }
    return sum;
}

#endif
