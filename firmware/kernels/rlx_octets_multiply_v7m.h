/* rlx_octets_multiply_v7m.h: eight positions times all output channels with packed weights, for Armv7-M (Cortex-M3).
 *
 * MLS takes word * w from a field, that is two products.
 *
 * stream, all channels: int32 the negated bias; words of weights; int32 -m; int32 e (rlx_v7m.h).
 * Proved by the generator: rlx_v7m.h's conditions, and rlx_octets.h's of runs.
 *
 * Registers of the assembly, beside those of rlx_octets_v7m.h: r4 to r7 words of x; r8 weight; r9 weights; r10 end of the
 * run; r12 reads x. A turn is entered in its middle when it is short.
 * Instructions for 16 taps, that is 128 products: 100 with weights of 4 bits, 99 with weights of 2.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_MULTIPLY_V7M_H
#define RLX_OCTETS_MULTIPLY_V7M_H

#include "rlx_octets_v7m.h"

#define RLX_WORD (32 / RLX_BITS) /* weights of a word */
#define RLX_TAP_BYTES 24         /* of code */
#define RLX_LOAD_BYTES 4

/* Bytes of code of a first turn of `taps` taps: it begins after the load of its first word. */
static inline int32_t rlx_octets_entry(int32_t taps)
{
    const int32_t first = RLX_TURN - rlx_octets_first(taps);
    return RLX_TAP_BYTES * first + RLX_LOAD_BYTES * ((first - 1) / RLX_WORD);
}

#if RLX_V7M
#define RLX_TAP(at, bits) \
    "ldm.w r12!, {r4-r7}\n\t" \
    "sbfx r8, r9, #" at ", #" bits "\n\t" \
    "mls r0, r4, r8, r0\n\t" \
    "mls r1, r5, r8, r1\n\t" \
    "mls r2, r6, r8, r2\n\t" \
    "mls r3, r7, r8, r3\n\t"
#define RLX_LOAD "ldr.w r9, [lr], #4\n\t"
#if RLX_BITS == 4
#define RLX_EIGHT \
    RLX_LOAD \
    RLX_TAP("0", "4") RLX_TAP("4", "4") RLX_TAP("8", "4") RLX_TAP("12", "4") \
    RLX_TAP("16", "4") RLX_TAP("20", "4") RLX_TAP("24", "4") RLX_TAP("28", "4")
#define RLX_ONE_TURN RLX_EIGHT RLX_EIGHT
#else
#define RLX_ONE_TURN \
    RLX_LOAD \
    RLX_TAP("0", "2") RLX_TAP("2", "2") RLX_TAP("4", "2") RLX_TAP("6", "2") \
    RLX_TAP("8", "2") RLX_TAP("10", "2") RLX_TAP("12", "2") RLX_TAP("14", "2") \
    RLX_TAP("16", "2") RLX_TAP("18", "2") RLX_TAP("20", "2") RLX_TAP("22", "2") \
    RLX_TAP("24", "2") RLX_TAP("26", "2") RLX_TAP("28", "2") RLX_TAP("30", "2")
#endif


RLX_V7M_NAKED static void rlx_octets_tile(__attribute__((unused)) rlx_octet_t *tile)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "mov r11, r0\n\t"
        "ldr r1, [r0, #84]\n\t"
        "adr.w r2, 3f\n\t"
        "subs r2, r2, r1\n\t"
        "orr.w r2, r2, #1\n\t"
        "ldr r3, [r0, #64]\n\t"
        "push {r2, r3}\n\t" /* where a channel's first turn begins; output */
        "ldr.w lr, [r0, #80]\n"
        "1:\n\t" /* a channel */
        "ldr.w r5, [lr], #4\n\t"
        RLX_BEGIN
        "ldr.w r12, [r11, #72]\n\t"
        "ldr.w r10, [r11, #92]\n\t"
        RLX_LOAD
        "ldr.w pc, [sp]\n\t"
        ".balign 4\n"
        "2:\n\t"
        RLX_ONE_TURN
        "3:\n\t"
        "cmp r12, r10\n\t"
        "bne.w 2b\n\t"
        "ldr.w r4, [r11, #76]\n\t"
        "cmp r12, r4\n\t"
        "bne 4f\n\t"
        "ldrd r8, r9, [lr], #8\n\t"
        RLX_ALL_OUTPUTS("1")
        "4:\n\t"
        RLX_FLUSH_ALL
        "ldr.w r10, [r11, #96]\n\t"
        "add r10, r12\n\t"
        "b.w 2b\n\t");
}

#undef RLX_TAP
#undef RLX_LOAD
#undef RLX_ONE_TURN

#else /* the same in C */

/* A run of one field: products of x up to `end`, a word of each tap; *at is the first weight's place in its word. */
static uint32_t rlx_octets_fields(const int32_t *x, const int32_t *end, const int32_t *words, int32_t first)
{
    uint32_t fields = 0x8000u;
    for (int32_t k = first; x != end; x += 4, k++) {
        const int32_t shift = RLX_BITS * (RLX_WORD - 1 - k % RLX_WORD);
        const int32_t w = (int32_t)((uint32_t)words[k / RLX_WORD] << shift) >> (32 - RLX_BITS);
        fields -= (uint32_t)*x * (uint32_t)w;
    }
    return fields;
}

/* A channel's sums, negated, and the stream after its weights. */
static const int32_t *rlx_octets_sums(const rlx_octet_t *tile, const int32_t *stream, int32_t *sums)
{
    const int32_t *x = tile->x;
    const int32_t *end = tile->run_end;
    int32_t first = rlx_octets_first(tile->taps) % RLX_WORD;
    for (int32_t i = 0; i < RLX_OCTET; i++) {
        sums[i] = stream[0];
    }
    for (stream++;; x = end, end += tile->run / 4, first = 0) {
        for (int32_t i = 0; i < RLX_OCTET; i += 2) {
            const uint32_t fields = rlx_octets_fields(x + i / 2, end + i / 2, stream, first);
            sums[i] += (int32_t)(fields & 0xFFFFu) - 0x8000;
            sums[i + 1] += (int32_t)fields >> 16;
        }
        stream += (first + (int32_t)(end - x) / 4) / RLX_WORD;
        if (end == tile->x_end) {
            return stream;
        }
    }
}

static void rlx_octets_tile(rlx_octet_t *tile)
{
    int32_t sums[RLX_OCTET];
    const int32_t *stream = tile->stream;
    for (int8_t *out = tile->out; out != tile->out_end; out++, stream += 2) {
        stream = rlx_octets_sums(tile, stream, sums);
        for (int32_t i = RLX_OCTET - 1; i >= 0; i--) {
            out[tile->offsets[i]] = rlx_v7m_requantize_any(sums[i], stream[0], stream[1], tile->c);
        }
    }
}
#endif

#endif
