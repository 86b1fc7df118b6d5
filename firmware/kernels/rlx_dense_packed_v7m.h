/* rlx_dense_packed_v7m.h: rlx_dense_packed.h's loops for Armv7-M (Cortex-M3).
 *
 * A rescale is int32 -m, int32 e (rlx_v7m.h, whose conditions the generator proved).
 *
 * Registers of the assembly: r0 to r3 fields; r4 to r7 words; r8 two weights; r9 input; r10 next input, r11 their end;
 * r12 mask; lr reads the stream. A turn is entered in its middle when it is short.
 * Instructions for 8 inputs, that is 64 products: 76 with weights of 4 bits, 75 with weights of 2.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_PACKED_V7M_H
#define RLX_DENSE_PACKED_V7M_H

#include "rlx_v7m.h"

#define RLX_DENSE_ASM RLX_V7M
#define RLX_DENSE_LEAST 8
#define RLX_DENSE_SIGN (0u - 1u)

#include "rlx_dense_packed.h"

#if RLX_V7M
#define RLX_PAIR(field, word, shift) \
    "and.w r8, r12, " word ", lsr #" shift "\n\t" \
    "mls " field ", r8, r9, " field "\n\t"
#define RLX_FIRST(word) \
    "ldrsb r9, [r10], #1\n\t" \
    "and.w r8, r12, " word "\n\t" \
    "mls r0, r8, r9, r0\n\t"
#define RLX_LOAD "ldm.w lr!, {r4-r7}\n\t"
#if RLX_BITS == 4
#define RLX_MASK "0x000F000F"
#define RLX_INPUT(word) RLX_FIRST(word) RLX_PAIR("r1", word, "4") RLX_PAIR("r2", word, "8") RLX_PAIR("r3", word, "12")
#define RLX_HALF RLX_LOAD RLX_INPUT("r4") RLX_INPUT("r5") RLX_INPUT("r6") RLX_INPUT("r7")
#define RLX_ONE_TURN RLX_HALF RLX_HALF
#else
#define RLX_MASK "0x00030003"
#define RLX_TWO(word) \
    RLX_FIRST(word) RLX_PAIR("r1", word, "2") RLX_PAIR("r2", word, "4") RLX_PAIR("r3", word, "6") \
    "ldrsb r9, [r10], #1\n\t" RLX_PAIR("r0", word, "8") RLX_PAIR("r1", word, "10") RLX_PAIR("r2", word, "12") \
    RLX_PAIR("r3", word, "14")
#define RLX_ONE_TURN RLX_LOAD RLX_TWO("r4") RLX_TWO("r5") RLX_TWO("r6") RLX_TWO("r7")
#endif
#define RLX_ADD(field) \
    "ldrd r4, r5, [r9]\n\t" \
    "uxth r6, " field "\n\t" \
    "add r4, r6\n\t" \
    "add.w r5, r5, " field ", asr #16\n\t" \
    "strd r4, r5, [r9], #8\n\t"

/* skip: bytes of the stream before a group's first load; entry: bytes of code of the first turn, after that load. */
RLX_V7M_NAKED static const int32_t *rlx_dense_groups(__attribute__((unused)) rlx_dense_chunk_t *chunk,
                                                     __attribute__((unused)) int32_t skip,
                                                     __attribute__((unused)) int32_t entry)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldr r11, [r0, #4]\n\t"
        "ldr.w lr, [r0, #24]\n\t"
        "mov.w r12, #" RLX_MASK "\n\t"
        "adr.w r3, 3f\n\t"
        "subs r2, r3, r2\n\t"
        "orr.w r2, r2, #1\n\t"
        "push {r0-r2}\n"
        "1:\n\t" /* 8 channels */
        "ldrd r4, r5, [sp]\n\t"
        "add lr, r5\n\t"
        "ldr.w r10, [r4]\n\t"
        "ldr r0, [r4, #8]\n\t"
        "mov r1, r0\n\t"
        "mov r2, r0\n\t"
        "mov r3, r0\n\t"
        RLX_LOAD
        "ldr.w pc, [sp, #8]\n\t"
        ".balign 4\n"
        "2:\n\t"
        RLX_ONE_TURN
        "3:\n\t"
        "cmp r10, r11\n\t"
        "bne.w 2b\n\t"
        "ldr.w r8, [sp]\n\t"
        "ldr.w r9, [r8, #16]\n\t"
        RLX_ADD("r0") RLX_ADD("r1") RLX_ADD("r2") RLX_ADD("r3")
        "str.w r9, [r8, #16]\n\t"
        "ldr.w r4, [r8, #20]\n\t"
        "cmp r9, r4\n\t"
        "bne.w 1b\n\t"
        "mov r0, lr\n\t"
        "add sp, #12\n\t"
        "pop {r4-r11, pc}\n\t");
}

#undef RLX_PAIR
#undef RLX_FIRST
#undef RLX_LOAD
#undef RLX_ONE_TURN
#undef RLX_ADD

static const int32_t *rlx_dense_chunk(rlx_dense_chunk_t *chunk)
{
    const int32_t input = 36, load = 4; /* bytes of code */
    const int32_t half = RLX_DENSE_TURN / 2;
    if (RLX_BITS == 4 && chunk->first <= half) {
        return rlx_dense_groups(chunk, 4 * half, input * chunk->first);
    }
    return rlx_dense_groups(chunk, 0, input * chunk->first + (RLX_BITS == 4 ? load : 0));
}
#else
static inline int32_t rlx_dense_input(const rlx_dense_chunk_t *chunk, int32_t k)
{
    return ((const int8_t *)chunk->x)[k];
}

static inline bool rlx_dense_more(const rlx_dense_chunk_t *chunk, int32_t k)
{
    return (const int8_t *)chunk->x + k != chunk->x_end;
}
#endif

static uint32_t rlx_dense_prepare(rlx_dense_chunk_t *chunk, const int8_t *x, int32_t n)
{
    int32_t sum = 0;
    chunk->x = x;
    chunk->x_end = x + n;
    chunk->first = (n - 1) % RLX_DENSE_TURN + 1;
    for (; n > 0; n--) {
        sum += *x++;
    }
    return (uint32_t)sum;
}

#if RLX_V7M
/* 14 instructions an output. */
RLX_V7M_NAKED static const int32_t *rlx_dense_requantize(
    __attribute__((unused)) const int32_t *sums, __attribute__((unused)) const int32_t *stream,
    __attribute__((unused)) int8_t *out, __attribute__((unused)) int32_t count, __attribute__((unused)) int32_t c)
{
    __asm__ volatile(
        "push {r4-r8, lr}\n\t"
        "ldr r4, [sp, #24]\n"
        "1:\n\t"
        "ldr r5, [r0], #4\n\t"
        "ldrd r6, r7, [r1], #8\n\t"
        "lsl.w r8, r4, r7\n\t"
        "tst.w r7, #256\n\t"
        "bne 3f\n\t"
        RLX_V7M_REQUANTIZE("r5", "r6", "r7", "r8", "r12", "[r2], #1")
        "2:\n\t"
        "subs r3, #1\n\t"
        "bne 1b\n\t"
        "mov r0, r1\n\t"
        "pop {r4-r8, pc}\n"
        "3:\n\t" /* a large scale */
        "lsls r5, r5, #8\n\t"
        "smull r12, r5, r5, r6\n\t"
        "sub.w r5, r5, r8\n\t"
        "asr.w r5, r5, r7\n\t"
        "ssat r5, #8, r5, asr #1\n\t"
        "strb r5, [r2], #1\n\t"
        "b 2b\n\t");
}
#else
static const int32_t *rlx_dense_requantize(
    const int32_t *sums, const int32_t *stream, int8_t *out, int32_t count, int32_t c)
{
    for (int32_t i = 0; i < count; i++, stream += 2) {
        out[i] = rlx_v7m_requantize_any(sums[i], stream[0], stream[1], c);
    }
    return stream;
}
#endif

static const int32_t *rlx_dense_finish(
    const rlx_dense_packed_t *p, const int32_t *stream, const int32_t *sums, int8_t *out, int32_t count)
{
    return rlx_dense_requantize(sums, stream, out, count, -(2 * p->out_zp + 1));
}

#endif
