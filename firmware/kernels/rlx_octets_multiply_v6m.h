/* rlx_octets_multiply_v6m.h: eight positions times all output channels with packed weights, for Armv6-M (Cortex-M0, M0+).
 *
 * A weight costs one instruction, though its bits are not taken out of its word W: if W holds digits n_0, n_1, ... of
 * RLX_BITS bits, the last one with a sign and the others without, then V_k = W >> RLX_BITS * k, with B = 2^RLX_BITS, is
 * n_k + B V_(k+1). So
 *     sum of n_k x_k = sum of V_k (x_k - B x_(k-1)),
 * modulo 2^32 and for words of two positions as well. What is in brackets is made once a tile (with x_(-1) = 0 at the
 * beginning of each word of weights), and serves all channels. n_k is the weight itself in a word's last place, and
 * B / 2 more in the others; B / 2 times the x of those is what fields begin with too little.
 *
 * Fields begin with 2^15 less that, and take a run of products (rlx_octets.h).
 *
 * stream, all channels: int32 the bias; words of weights; rescale (rlx_v6m_scale_t).
 * The generator proves: |acc| < 2^24; the rescale is exact; rlx_octets.h's bounds of runs.
 *
 * Registers of the assembly: r0 weight, r1 to r4 products, r5 next words of x, r6 next word of the stream, r7 weights;
 * r12 end of the run. On the stack `entry` becomes an address and `taps` the place of the next run in inits.
 * 163 instructions for 16 taps, that is 128 products.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_MULTIPLY_V6M_H
#define RLX_OCTETS_MULTIPLY_V6M_H

#include "rlx_octets_v6m.h"

#define RLX_WORD (32 / RLX_BITS) /* weights of a word */
#define RLX_TAP_BYTES 20         /* of code */
#define RLX_FIRST_TAP_BYTES 18   /* of a word */
#define RLX_LOAD_BYTES 2

/* Bytes of code of a first turn of `taps` taps: it begins after the load of its first word. */
static inline int32_t rlx_octets_entry(int32_t taps)
{
    const int32_t first = RLX_TURN - rlx_octets_first(taps);
    const int32_t whole = first / RLX_WORD; /* words */
    const int32_t loads = (first - 1) / RLX_WORD;
    return RLX_TAP_BYTES * first - (RLX_TAP_BYTES - RLX_FIRST_TAP_BYTES) * whole + RLX_LOAD_BYTES * loads;
}

/* x_k - B x_(k-1) of one word of each of n taps; returns the sum of all x but the last one's. */
RLX_OCTETS_SMALL static uint32_t rlx_octets_differ(uint32_t *x, int32_t n)
{
    uint32_t before = 0;
    uint32_t sum = 0;
    for (; n > 0; n--, x += 4) {
        const uint32_t a = x[0];
        x[0] = a - (before << RLX_BITS);
        sum += before;
        before = a;
    }
    return sum;
}

#if RLX_V6M_ASM
#if RLX_BITS == 4
#define RLX_SHIFT "#4"
#define RLX_HALVES "1"
#define RLX_UNSIGN "#3"
#else
#define RLX_SHIFT "#2"
#define RLX_HALVES "2"
#define RLX_UNSIGN "#1"
#endif
#define RLX_DIFFER(now, before, at)                                                                                   \
    "    ldr " now ", [r0, #" at "]\n"                                                                                \
    "    lsls " before ", " before ", " RLX_SHIFT "\n"                                                                \
    "    subs " before ", " now ", " before "\n"                                                                      \
    "    str " before ", [r0, #" at "]\n"                                                                             \
    "    adds r2, r2, " now "\n"

/* The same of a whole word of weights and all four words of x; takes B / 2 times the sums off `init`. */
RLX_V6M_NAKED static void rlx_octets_differ_word(RLX_V6M_UNUSED uint32_t *x, RLX_V6M_UNUSED uint32_t *init)
{
    __asm__ volatile(".syntax unified\n"
                     "    push {r4-r6, lr}\n"
                     "    movs r6, #4\n"
                     "1:\n"
                     "    movs r2, #0\n"
                     "    movs r3, #0\n"
                     "    movs r5, #" RLX_HALVES "\n"
                     "2:\n"
                     RLX_DIFFER("r4", "r3", "0") RLX_DIFFER("r3", "r4", "16")
                     RLX_DIFFER("r4", "r3", "32") RLX_DIFFER("r3", "r4", "48")
                     RLX_DIFFER("r4", "r3", "64") RLX_DIFFER("r3", "r4", "80")
                     RLX_DIFFER("r4", "r3", "96") RLX_DIFFER("r3", "r4", "112")
                     "    adds r0, r0, #128\n"
                     "    subs r5, r5, #1\n"
                     "    bne 2b\n"
                     "    subs r2, r2, r3\n" /* all but the last one */
                     "    lsls r2, r2, " RLX_UNSIGN "\n"
                     "    ldr r3, [r1]\n"
                     "    subs r3, r3, r2\n"
                     "    stmia r1!, {r3}\n"
                     "    subs r0, r0, #(128 * " RLX_HALVES " - 4)\n"
                     "    subs r6, r6, #1\n"
                     "    bne 1b\n"
                     "    pop {r4-r6, pc}\n");
}
#undef RLX_DIFFER
#else
static void rlx_octets_differ_word(uint32_t *x, uint32_t *init)
{
    for (int32_t i = 0; i < 4; i++) {
        init[i] -= rlx_octets_differ(x + i, RLX_WORD) << (RLX_BITS - 1);
    }
}
#endif

/* The same of all words of a tile, and what its fields begin with. */
RLX_OCTETS_SMALL static void rlx_octets_differ_all(const rlx_octet_t *tile)
{
    uint32_t *x = (uint32_t *)tile->x;
    uint32_t *init = (uint32_t *)tile->inits;
    const uint32_t *run_end = (const uint32_t *)tile->run_end;
    const int32_t first = tile->taps % RLX_WORD;
    for (int32_t i = 0; i < 4; i++) {
        init[i] = 0x8000u - (rlx_octets_differ(x + i, first) << (RLX_BITS - 1));
    }
    x += 4 * first;
    for (;;) {
        for (; x != run_end; x += 4 * RLX_WORD) {
            rlx_octets_differ_word(x, init);
        }
        if (x == (const uint32_t *)tile->x_end) {
            return;
        }
        run_end += tile->run / 4;
        init += 4;
        for (int32_t i = 0; i < 4; i++) {
            init[i] = 0x8000u;
        }
    }
}

#if RLX_V6M_ASM
#define RLX_MULTIPLY(w)                                                                                               \
    "    ldmia r5!, {r1-r4}\n"                                                                                        \
    "    muls r1, " w ", r1\n"                                                                                        \
    "    muls r2, " w ", r2\n"                                                                                        \
    "    muls r3, " w ", r3\n"                                                                                        \
    "    muls r4, " w ", r4\n"                                                                                        \
    "    add r8, r1\n"                                                                                                \
    "    add r9, r2\n"                                                                                                \
    "    add r10, r3\n"                                                                                               \
    "    add r11, r4\n"
#define RLX_TAP(at) "    asrs r0, r7, #" at "\n" RLX_MULTIPLY("r0")
#define RLX_LOAD "    ldmia r6!, {r7}\n"
#if RLX_BITS == 4
#define RLX_EIGHT                                                                                                     \
    RLX_LOAD RLX_MULTIPLY("r7")                                                                                       \
    RLX_TAP("4") RLX_TAP("8") RLX_TAP("12") RLX_TAP("16") RLX_TAP("20") RLX_TAP("24") RLX_TAP("28")
#define RLX_ONE_TURN RLX_EIGHT RLX_EIGHT
#else
#define RLX_ONE_TURN                                                                                                  \
    RLX_LOAD RLX_MULTIPLY("r7")                                                                                       \
    RLX_TAP("2") RLX_TAP("4") RLX_TAP("6") RLX_TAP("8") RLX_TAP("10") RLX_TAP("12") RLX_TAP("14") RLX_TAP("16")        \
    RLX_TAP("18") RLX_TAP("20") RLX_TAP("22") RLX_TAP("24") RLX_TAP("26") RLX_TAP("28") RLX_TAP("30")
#endif

/* What fields begin with, at r5, which moves on. */
#define RLX_BEGIN                                                                                                     \
    "    ldmia r5!, {r0-r3}\n"                                                                                        \
    "    mov r8, r0\n"                                                                                                \
    "    mov r9, r1\n"                                                                                                \
    "    mov r10, r2\n"                                                                                               \
    "    mov r11, r3\n"

RLX_V6M_NAKED static void rlx_octets_channels(RLX_V6M_UNUSED const rlx_octet_t *tile)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_ENTER
                     "    ldr r0, [sp, #84]\n"
                     "    adr r1, 4f\n"
                     "    subs r1, r1, r0\n"
                     "    adds r1, r1, #1\n" /* Thumb code */
                     "    str r1, [sp, #84]\n"
                     "    ldr r6, [sp, #80]\n"
                     "    b 1f\n"
                     "    .balign 4\n"
                     "2:\n" RLX_ONE_TURN
                     "4:\n" /* at a multiple of 4, as a turn's code is */
                     "    cmp r5, r12\n"
                     "    beq 5f\n"
                     "    b 2b\n"
                     "1:\n" /* a channel */
                     "    ldmia r6!, {r1}\n"
                     RLX_BEGIN_SUMS
                     "    ldr r5, [sp, #100]\n"
                     RLX_BEGIN
                     "    str r5, [sp, #104]\n"
                     "    ldr r5, [sp, #72]\n"
                     "    ldr r0, [sp, #92]\n"
                     "    mov r12, r0\n"
                     RLX_LOAD
                     "    ldr r0, [sp, #84]\n"
                     "    bx r0\n"
                     "5:\n"
                     "    ldr r0, [sp, #76]\n"
                     "    cmp r5, r0\n"
                     "    beq 6f\n"
                     RLX_FLUSH_ALL
                     "    ldr r5, [sp, #104]\n"
                     RLX_BEGIN
                     "    str r5, [sp, #104]\n"
                     "    mov r5, r12\n"
                     "    ldr r0, [sp, #96]\n"
                     "    add r12, r0\n"
                     "    b 2b\n"
                     "6:\n" /* rescale and store */
                     "    ldmia r6!, {r0, r3, r4, r7}\n"
                     "    mov lr, r0\n"
                     RLX_END_CHANNEL);
}

#undef RLX_MULTIPLY
#undef RLX_TAP
#undef RLX_LOAD
#undef RLX_ONE_TURN
#undef RLX_BEGIN

#else /* the same in C */

/* A channel's sums, and the stream after its weights. */
static const int32_t *rlx_octets_sums(const rlx_octet_t *tile, const int32_t *stream, int32_t *sums)
{
    const int32_t *x = tile->x;
    const int32_t *end = tile->run_end;
    const int32_t *init = tile->inits;
    int32_t k = rlx_octets_first(tile->taps) % RLX_WORD;
    for (int32_t i = 0; i < RLX_OCTET; i++) {
        sums[i] = stream[0];
    }
    for (stream++;; end += tile->run / 4) {
        uint32_t fields[4];
        for (int32_t i = 0; i < 4; i++) {
            fields[i] = (uint32_t)*init++;
        }
        for (; x != end; x += 4) {
            const int32_t shifted = *stream >> RLX_BITS * k;
            for (int32_t i = 0; i < 4; i++) {
                fields[i] += (uint32_t)x[i] * (uint32_t)shifted;
            }
            k = (k + 1) % RLX_WORD;
            stream += k == 0;
        }
        for (int32_t i = 0; i < 4; i++) {
            sums[2 * i] += (int32_t)(fields[i] & 0xFFFFu) - 0x8000;
            sums[2 * i + 1] += (int32_t)fields[i] >> 16;
        }
        if (x == tile->x_end) {
            return stream;
        }
    }
}

static void rlx_octets_channels(const rlx_octet_t *tile)
{
    const int32_t *stream = tile->stream;
    int32_t sums[RLX_OCTET];
    for (int8_t *out = tile->out; out != tile->out_end; out++, stream += 4) {
        stream = rlx_octets_sums(tile, stream, sums);
        const rlx_v6m_scale_t scale = {stream[0], stream[1], stream[2], stream[3]};
        for (int32_t i = 0; i < RLX_OCTET; i++) {
            out[tile->offsets[i]] = rlx_v6m_rescale(sums[i], &scale);
        }
    }
}

#endif

static void rlx_octets_tile(rlx_octet_t *tile)
{
    rlx_octets_differ_all(tile);
    rlx_octets_channels(tile);
}

#endif
