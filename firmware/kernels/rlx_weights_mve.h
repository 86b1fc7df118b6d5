/* rlx_weights_mve.h: weights of 8, 4 or 2 bits in the inner loops of matrix products on MVE.
 *
 * RLX_WEIGHT_BITS says how many. A byte of the stream holds the weights w0, w1, ... of 8 / bits neighboring channels at
 * a place of the window, joined: w0 + 2^bits * w1 + 4^bits * w2 + ..., with |w| < 2^(bits - 1) (so -8 and -2 are no
 * weights: 16 * -8 - 1 would be no int8).
 * - VMLADAV with that byte sums the products of all these channels at once: S0 = A0 + 2^bits * A1 + ...
 * - VRSHR by `bits` leaves the byte without w0, exactly, since w0 / 2^bits lies within a half: the next VMLADAV gives
 *   S1 = A1 + 2^bits * A2 + ..., and so on. A shift takes the place of a load: no more instructions than with bytes.
 * - After the last block A0 = S0 - 2^bits * S1, and so on: a subtraction a sum, but for the last channel's.
 * S0 fits in int32 as the generator proves |A| < 2^26 (4 bits: 17 * 2^26 < 2^31), 2^24 (2 bits: 85 * 2^24 < 2^31).
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_WEIGHTS_MVE_H
#define RLX_WEIGHTS_MVE_H

#include <stdint.h>

#include "rlx_mve.h"

/* The channels that share a byte; groups of four have 4 / RLX_SHARING times 16 bytes a block. */
enum { RLX_SHARING = 8 / RLX_WEIGHT_BITS };

/* Whether shifts to the right may be 0 whatever the bounds are: scales of few bits come close to 1. Weights of 2 bits
 * that need it go to the kernels for 4. */
enum { RLX_ANY_SHIFT = RLX_WEIGHT_BITS == 4 };

#if RLX_MVE

#define RLX_LOAD_WEIGHTS(TO) "vldrb.u8 " TO ", [r5], #16\n"

/* RLX_SECOND: from the weights of channel 0 or 2 of four to those of 1 or 3; RLX_THIRD: from those of 1 to those of 2.
 * RLX_SEPARATE: the sums of four channels, A of channel 0, from those of their joined weights. */
#if RLX_WEIGHT_BITS == 8
#define RLX_SECOND(TO, FROM) RLX_LOAD_WEIGHTS(TO)
#define RLX_THIRD(TO, FROM) RLX_LOAD_WEIGHTS(TO)
#define RLX_SEPARATE(A, B, C, D)
#elif RLX_WEIGHT_BITS == 4
#define RLX_SECOND(TO, FROM) "vrshr.s8 " TO ", " FROM ", #4\n"
#define RLX_THIRD(TO, FROM) RLX_LOAD_WEIGHTS(TO)
#define RLX_SEPARATE(A, B, C, D)                                                                                       \
    "sub " A ", " A ", " B ", lsl #4\n"                                                                                \
    "sub " C ", " C ", " D ", lsl #4\n"
#else
#define RLX_SECOND(TO, FROM) "vrshr.s8 " TO ", " FROM ", #2\n"
#define RLX_THIRD(TO, FROM) RLX_SECOND(TO, FROM)
#define RLX_SEPARATE(A, B, C, D)                                                                                       \
    "sub " A ", " A ", " B ", lsl #2\n"                                                                                \
    "sub " B ", " B ", " C ", lsl #2\n"                                                                                \
    "sub " C ", " C ", " D ", lsl #2\n"
#endif

/* Adds the sign of Q to it, by way of T, but (RLX_ANY_SHIFT) where S, -shift, is 0. */
#if RLX_WEIGHT_BITS == 4
#define RLX_ADD_SIGN(Q, T, S)                                                                                          \
    "vshr.s32 " T ", " Q ", #31\n"                                                                                     \
    "vmax.s32 " T ", " T ", " S "\n"                                                                                   \
    "vadd.i32 " Q ", " Q ", " T "\n"
#else
#define RLX_ADD_SIGN(Q, T, S)                                                                                          \
    "vshr.s32 " T ", " Q ", #31\n"                                                                                     \
    "vadd.i32 " Q ", " Q ", " T "\n"
#endif

#else

static inline int32_t rlx_add_sign(int32_t h, int32_t shift)
{
    return h < 0 && (shift != 0 || !RLX_ANY_SHIFT) ? h - 1 : h;
}

/* Adds the products of 16 bytes at x with as many bytes of weights to the sums of the channels that share them. */
static inline void rlx_multiply(int32_t *sums, const int8_t *x, const int8_t *weights)
{
    for (int32_t i = 0; i < RLX_MVE_BYTES; i++) {
        int32_t joined = weights[i];
        for (int32_t j = 0; j < RLX_SHARING; j++) {
            sums[j] += x[i] * joined;
            joined = (joined + (1 << (RLX_WEIGHT_BITS - 1))) >> RLX_WEIGHT_BITS;
        }
    }
}

static inline void rlx_separate(int32_t *sums, int32_t channels)
{
    for (int32_t j = 0; j < channels; j++) {
        if (j % RLX_SHARING != RLX_SHARING - 1) {
            sums[j] -= sums[j + 1] * (1 << RLX_WEIGHT_BITS);
        }
    }
}

#endif

#endif
