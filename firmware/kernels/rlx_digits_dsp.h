/* rlx_digits_dsp.h: weights of 4 or 2 bits for the DSP extension, unpacked in registers by one instruction each.
 *
 * The weights of 4 channels for the same k are the digits of a number to the base B = 2^RLX_DIGIT_BITS: channel 0 has
 * the highest digit, which is signed; the others are w + B/2, never negative. With 4 bits the number is an int16, with 2
 * bits an int8, so all weights that the bits hold are taken. Clearing low digits gives, for each value x:
 *     A3 += x * (c0 B^3 + c1 B^2 + c2 B + c3)
 *     A2 += x * (c0 B^3 + c1 B^2 + c2 B)
 *     A1 += x * (c0 B^3 + c1 B^2)
 *     A0 += x * (c0 B^3)
 * a BIC or AND with a constant between two SMLADs, of 2 values of k each. All of that holds modulo 2^32. A0 is B^3 times
 * channel 0's accumulator, A1 - A0 is B^2 times channel 1's, A2 - A1 is B times channel 2's, A3 - A2 is channel 3's;
 * those of the channels 1 to 3 are B/2 * S too large, S being the sum of all x: it is taken off at the end, once found.
 * The generator proves that each of these four differences fits in int32. (SMLAD sets the flag Q on the way.)
 *
 * The stream is a run of int32 words, in the order in which they are read (rlx_dense_digits_dsp.h says what is different
 * there):
 *     2 * out_zp + 1
 *     per 4 channels:
 *         what A0 to A3 begin with: of the biases b0 B^3, + b1 B^2, + b2 B, + b3, modulo 2^32
 *         per 2 steps of 2 values of k, (k0, k2) and (k1, k3):
 *             with 4 bits 2 words: the first step's numbers as int16, the second step's
 *             with 2 bits 1 word: in bytes 0 and 2 the first step's, in bytes 1 and 3 the second step's
 *         4 int32 multipliers; then 4 uint16 e + 256 * (next channel's output address - this one's). A channel may come
 *         again (to fill the last 4): it is computed and written again.
 *
 * Requantization. Multipliers are often 1/2 or more where weights are few steps wide, so right shifts by e = 0 are taken,
 * which rlx_dsp.h has none of. With h = (acc * m + 2^30) >> 31, by SMMULR of 2 acc, and K = (2 * out_zp + 1) << e:
 *     (K + (acc >> 31) + 2 h) >> (e + 1), saturated to int8
 * For e >= 1 that is rlx_dsp.h's (out_zp << e + 2^(e-1) + (acc >> 31) + h) >> e: K is even, and 2 h and -1 are less than
 * 2 h. For e = 0 it is out_zp + h: 1 and 0 are less than 2.
 * The generator proves 0 <= e <= 30, 0 <= m, |acc| < 2^30, and that the sums fit in int32.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DIGITS_DSP_H
#define RLX_DIGITS_DSP_H

#include "rlx_dsp.h"

enum {
    RLX_DIGIT_CHANNELS = 4,
    RLX_DIGIT_WORDS = RLX_DIGIT_BITS / 2,           /* of 2 steps */
    RLX_DIGITS_LOADS = RLX_DIGIT_BITS == 4 ? 1 : 3, /* instructions for 2 steps beside those that clear digits */
};

/* What is to be taken off twice an accumulator of channels 1 to 3, per sum of all x. */
enum { RLX_DIGIT_OFFSET = 1 << RLX_DIGIT_BITS };

#if RLX_DSP

/* Loads the numbers of 2 steps from lr; makes those of each step ready in a register; clears their low digits. */
#if RLX_DIGIT_BITS == 4
#define RLX_DIGITS_LOAD(first, second) "ldrd " first ", " second ", [lr], #8\n\t"
#define RLX_DIGITS_FIRST(first, second)
#define RLX_DIGITS_SECOND(second)
#define RLX_DIGITS_CLEAR_3(w) "bic " w ", " w ", #0x000f000f\n\t"
#define RLX_DIGITS_CLEAR_2(w) "and " w ", " w ", #0xff00ff00\n\t"
#define RLX_DIGITS_CLEAR_1(w) "and " w ", " w ", #0xf000f000\n\t"
#define RLX_DIGITS_TWICE_0 "asr #11"
#define RLX_DIGITS_TWICE_1 "asr #7"
#define RLX_DIGITS_TWICE_2 "asr #3"
#else
#define RLX_DIGITS_LOAD(first, second) "ldr " second ", [lr], #4\n\t"
#define RLX_DIGITS_FIRST(first, second) "sxtb16 " first ", " second "\n\t"
#define RLX_DIGITS_SECOND(second) "sxtb16 " second ", " second ", ror #8\n\t"
#define RLX_DIGITS_CLEAR_3(w) "bic " w ", " w ", #0x00030003\n\t"
#define RLX_DIGITS_CLEAR_2(w) "bic " w ", " w ", #0x000f000f\n\t"
#define RLX_DIGITS_CLEAR_1(w) "bic " w ", " w ", #0x003f003f\n\t"
#define RLX_DIGITS_TWICE_0 "asr #5"
#define RLX_DIGITS_TWICE_1 "asr #3"
#define RLX_DIGITS_TWICE_2 "asr #1"
#endif
#define RLX_DIGITS_TWICE_3 "lsl #1"

/* The requantization: of twice the accumulator, with r8 = m, r9 (or another) = K, r10 = e (low byte) and r11 for a sum. */
#define RLX_DIGITS_REQUANTIZE(acc) RLX_DIGITS_REQUANTIZE_BY(acc, "r9")
#define RLX_DIGITS_REQUANTIZE_BY(acc, k) \
    "add r11, " k ", " acc ", asr #31\n\tsmmulr " acc ", " acc ", r8\n\tadd " acc ", r11, " acc ", lsl #1\n\t" \
    "asr " acc ", " acc ", r10\n\tssat " acc ", #8, " acc ", asr #1\n\t"

#else

/* The number of 4 channels that a step (0 or 1 of 2) has for k (0 or 1 of 2). */
static inline int32_t rlx_digits_number(const int32_t *word, int32_t step, int32_t k)
{
#if RLX_DIGIT_BITS == 4
    return (int16_t)((uint32_t)word[step] >> (16 * k) & 0xFFFFu);
#else
    return (int8_t)((uint32_t)word[0] >> (16 * k + 8 * step) & 0xFFu);
#endif
}

/* The number without the digits that channels behind `channel` have. */
static inline int32_t rlx_digits_from(int32_t number, int32_t channel)
{
    return (int32_t)((uint32_t)number & ~0u << RLX_DIGIT_BITS * (RLX_DIGIT_CHANNELS - 1 - channel));
}

/* A channel's accumulator from A0 to A3 and the sum of all x. */
static inline int32_t rlx_digits_accumulator(const uint32_t a[RLX_DIGIT_CHANNELS], int32_t channel, int32_t sum)
{
    if (channel == 0) {
        return (int32_t)a[0] >> RLX_DIGIT_BITS * (RLX_DIGIT_CHANNELS - 1);
    }
    const int32_t own = (int32_t)(a[channel] - a[channel - 1]) >> RLX_DIGIT_BITS * (RLX_DIGIT_CHANNELS - 1 - channel);
    return own - RLX_DIGIT_OFFSET / 2 * sum;
}

/* Of the scales of n channels: the multiplier is scales[i]; this is what the uint16 behind all of them says. */
static inline int32_t rlx_digits_e_word(const int32_t *scales, int32_t n, int32_t i)
{
    return (int32_t)((uint32_t)scales[n + i / 2] >> (16 * (i % 2)) & 0xFFFFu);
}

/* K = two_zp << e. */
static inline int32_t rlx_digits_offset(int32_t two_zp, int32_t e_word)
{
    return (int32_t)((uint32_t)two_zp << (e_word & 0xFF));
}

#endif
#endif
