/* rlx_dot.h: sums of int8 products, the inner loop of convolution and matrix product.
 *
 * Up to four output channels at a time share each load of x. `channels` is a constant where these are called, so that
 * the compiler unrolls the loops over it and keeps the sums in registers.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DOT_H
#define RLX_DOT_H

#include <stdint.h>

#define RLX_DOT_CHANNELS 4

enum { RLX_TAP_BYTES = 1 }; /* of a channel's weight for a k; rlx_dot_packed.h has others */

/* The weights of channels from c on. */
static inline const int8_t *rlx_dot_weights(const int8_t *w, int32_t c, int32_t taps)
{
    return w + c * taps;
}

/* sums[j] += sum over n elements of x[i] * (w[j * w_step + i] - w_zp), for each channel j */
static inline void rlx_dot_s8(
    int32_t *sums, int32_t channels, const int8_t *x, const int8_t *w, int32_t w_step, int32_t n, int32_t w_zp)
{
    if (w_zp == 0) {
        for (int32_t i = 0; i < n; i++) {
            for (int32_t j = 0; j < channels; j++) {
                sums[j] += x[i] * w[j * w_step + i];
            }
        }
    } else {
        for (int32_t i = 0; i < n; i++) {
            for (int32_t j = 0; j < channels; j++) {
                sums[j] += x[i] * (w[j * w_step + i] - w_zp);
            }
        }
    }
}

/* The same where every x is one value, as outside an image. */
static inline void rlx_fill_s8(
    int32_t *sums, int32_t channels, int32_t value, const int8_t *w, int32_t w_step, int32_t n, int32_t w_zp)
{
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < channels; j++) {
            sums[j] += value * (w[j * w_step + i] - w_zp);
        }
    }
}

#endif
