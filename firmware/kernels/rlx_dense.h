/* rlx_dense.h: output columns of a matrix product.
 *
 * A kernel includes it once RLX_RESCALE(x, multiplier, shift) is its rounding rule, and RLX_WEIGHT_BITS is 4 or 2 where
 * weights are packed (rlx_dot_packed.h).
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_H
#define RLX_DENSE_H

#if defined(RLX_WEIGHT_BITS)
#include "rlx_dot_packed.h"
#else
#include "rlx_dot.h"
#endif
#include "rlx_kernels.h"
#include "rlx_requant.h"

/* Output columns [c, c + n) of a row; n is 1 or RLX_DOT_CHANNELS. */
static inline void columns(const rlx_dense_t *p, const int8_t *in, int32_t c, int32_t n, int8_t *out)
{
    int32_t acc[RLX_DOT_CHANNELS] = {0};
    rlx_dot_s8(acc, n, in, rlx_dot_weights(p->weights, c, p->in_c), p->in_c, p->in_c, p->w_zp);
    for (int32_t j = 0; j < n; j++) {
        const int32_t i = (c + j) * p->per_channel;
        const int32_t q = RLX_RESCALE(acc[j] + p->bias[c + j], p->multipliers[i], p->shifts[i]) + p->out_zp;
        out[c + j] = (int8_t)rlx_bound(q, p->low, p->high);
    }
}

#endif
