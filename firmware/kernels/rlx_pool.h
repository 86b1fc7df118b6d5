/* rlx_pool.h: the rounding of a mean of int8 values.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_POOL_H
#define RLX_POOL_H

#include <stdint.h>

/* sum / count, rounded half away from zero, or with half_up half towards +infinity */
static inline int32_t rlx_rounded_mean(int32_t sum, int32_t count, int32_t half_up)
{
    if (half_up != 0) {
        return (sum + 128 * count + count / 2) / count - 128; /* of q + 128, never negative */
    }
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}

#endif
