/* rlx_lanes.h: sums and maxima of int8 pixels, 4 channels at a time.
 *
 * A word of 4 channels is added as two words of two 16-bit lanes: even holds channels 0 and 2, odd 1 and 3. A lane holds
 * the sum of 256 values; then it is added to the int32 sums. With the DSP extension (SXTAB16, SSUB8 and SEL) lanes are
 * signed; without it they hold codes + 128, which are never negative. Cores without unaligned loads, and other
 * compilers, add byte by byte where a word would not be aligned.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_LANES_H
#define RLX_LANES_H

#include "rlx_dsp.h"

enum { RLX_LANES = 4, RLX_LANES_PIXELS = 256 };

#if defined(__GNUC__) && defined(__ARM_FEATURE_UNALIGNED)
#define RLX_WORDS(x, step) 1
#elif defined(__GNUC__)
#define RLX_WORDS(x, step) ((((uintptr_t)(x) | (uintptr_t)(step)) & 3u) == 0)
#endif

#if defined(RLX_WORDS) && !RLX_DSP
static inline uint32_t rlx_lanes_word(const int8_t *x)
{
#if defined(__ARM_FEATURE_UNALIGNED)
    typedef struct __attribute__((packed, may_alias)) {
        uint32_t word;
    } word_t;
#else
    typedef struct __attribute__((may_alias)) {
        uint32_t word;
    } word_t;
#endif
    return ((const word_t *)(const void *)x)->word ^ 0x80808080u;
}
#endif

/* sums[c] += x[c] + x[step + c] + ... of n pixels, for the channels c of 0 to 3 */
static inline void rlx_lanes_add(int32_t *sums, const int8_t *x, int32_t step, int32_t n)
{
#if RLX_DSP
    while (n > 0) {
        const int32_t now = n < RLX_LANES_PIXELS ? n : RLX_LANES_PIXELS;
        uint32_t even = 0;
        uint32_t odd = 0;
        for (int32_t i = now; i > 0; i--) {
            uint32_t word;
            __asm__("ldr %0, [%3]\n\tsxtab16 %1, %1, %0\n\tsxtab16 %2, %2, %0, ror #8"
                    : "=&r"(word), "+&r"(even), "+&r"(odd)
                    : "r"(x), "m"(*(const int8_t(*)[4])x));
            x += step;
        }
        sums[0] += (int16_t)even;
        sums[1] += (int16_t)odd;
        sums[2] += (int32_t)even >> 16;
        sums[3] += (int32_t)odd >> 16;
        n -= now;
    }
#else
#if defined(RLX_WORDS)
    if (RLX_WORDS(x, step)) {
        while (n > 0) {
            const int32_t now = n < RLX_LANES_PIXELS ? n : RLX_LANES_PIXELS;
            uint32_t even = 0;
            uint32_t odd = 0;
            for (int32_t i = now; i > 0; i--) {
                const uint32_t word = rlx_lanes_word(x);
                even += word & 0x00FF00FFu;
                odd += (word >> 8) & 0x00FF00FFu;
                x += step;
            }
            sums[0] += (int32_t)(even & 0xFFFFu) - 128 * now;
            sums[1] += (int32_t)(odd & 0xFFFFu) - 128 * now;
            sums[2] += (int32_t)(even >> 16) - 128 * now;
            sums[3] += (int32_t)(odd >> 16) - 128 * now;
            n -= now;
        }
        return;
    }
#endif
    for (; n > 0; n--) {
        for (int32_t c = 0; c < RLX_LANES; c++) {
            sums[c] += x[c];
        }
        x += step;
    }
#endif
}

/* max[c] = the largest of max[c] and x[c], x[step + c] ... of n pixels */
static inline void rlx_lanes_max(int8_t *max, const int8_t *x, int32_t step, int32_t n)
{
#if RLX_DSP
    uint32_t largest;
    __builtin_memcpy(&largest, max, 4);
    for (; n > 0; n--) {
        uint32_t word;
        uint32_t difference;
        __asm__("ldr %0, [%3]\n\tssub8 %1, %0, %2\n\tsel %2, %0, %2"
                : "=&r"(word), "=&r"(difference), "+&r"(largest)
                : "r"(x), "m"(*(const int8_t(*)[4])x)
                : "cc");
        x += step;
    }
    __builtin_memcpy(max, &largest, 4);
#else
    int32_t a = max[0];
    int32_t b = max[1];
    int32_t c = max[2];
    int32_t d = max[3];
    for (; n > 0; n--) {
        a = x[0] > a ? x[0] : a;
        b = x[1] > b ? x[1] : b;
        c = x[2] > c ? x[2] : c;
        d = x[3] > d ? x[3] : d;
        x += step;
    }
    max[0] = (int8_t)a;
    max[1] = (int8_t)b;
    max[2] = (int8_t)c;
    max[3] = (int8_t)d;
#endif
}

#endif
