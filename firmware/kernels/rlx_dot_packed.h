/* rlx_dot_packed.h: rlx_dot.h for weights of 4 or 2 bits, which lie in memory by 4 output channels.
 *
 * 4 channels' weights for the same k take 2 bytes (1 with 2 bits), the first channel's in the lowest bits; [channels / 4,
 * rounded up][taps] such. Where the number of channels is no multiple of 4 the last 4 are those that end the row: some are
 * computed and written again. There is no zero point.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DOT_PACKED_H
#define RLX_DOT_PACKED_H

#include <stdint.h>

#define RLX_DOT_CHANNELS 4

enum { RLX_TAP_BYTES = RLX_WEIGHT_BITS * RLX_DOT_CHANNELS / 8 };

/* The weights of channels [c, c + 4), which begin a group of 4 or end the row. */
static inline const int8_t *rlx_dot_weights(const int8_t *w, int32_t c, int32_t taps)
{
    return w + (c + RLX_DOT_CHANNELS - 1) / RLX_DOT_CHANNELS * taps * RLX_TAP_BYTES;
}

/* 4 channels' weights. */
static inline void rlx_unpack(const int8_t *w, int32_t v[RLX_DOT_CHANNELS])
{
    uint32_t bits = (uint8_t)w[0];
#if RLX_WEIGHT_BITS == 4
    bits |= (uint32_t)(uint8_t)w[1] << 8;
#endif
    for (int32_t j = 0; j < RLX_DOT_CHANNELS; j++) {
        v[j] = (int32_t)(bits << (32 - RLX_WEIGHT_BITS * (j + 1))) >> (32 - RLX_WEIGHT_BITS);
    }
}

static inline void rlx_dot_s8(
    int32_t *sums, int32_t channels, const int8_t *x, const int8_t *w, int32_t w_step, int32_t n, int32_t w_zp)
{
    (void)w_step;
    (void)w_zp;
    for (int32_t i = 0; i < n; i++, w += RLX_TAP_BYTES) {
        int32_t v[RLX_DOT_CHANNELS];
        rlx_unpack(w, v);
        for (int32_t j = 0; j < channels; j++) {
            sums[j] += x[i] * v[j];
        }
    }
}

static inline void rlx_fill_s8(
    int32_t *sums, int32_t channels, int32_t value, const int8_t *w, int32_t w_step, int32_t n, int32_t w_zp)
{
    const int8_t x = (int8_t)value;
    for (int32_t i = 0; i < n; i++, w += RLX_TAP_BYTES) {
        rlx_dot_s8(sums, channels, &x, w, w_step, 1, w_zp);
    }
}

#endif
