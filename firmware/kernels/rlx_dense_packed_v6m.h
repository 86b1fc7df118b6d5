/* rlx_dense_packed_v6m.h: rlx_dense_packed.h's loops for Armv6-M (Cortex-M0, M0+). Inputs are words in scratch, with zeros
 * before the first one up to a multiple of 8.
 *
 * A rescale is rlx_v6m_scale_t. The generator proves: |acc| < 2^24; the rescale is exact.
 *
 * Registers of the assembly: r0 two weights; r1 r2 words; r3 r4 inputs; r5 next inputs; r6 next word of the stream; r7
 * mask; r8 to r11 fields; r12 end of the inputs; lr the chunk.
 * Instructions for 8 inputs and 8 channels: 139 with weights of 4 bits, 137 with weights of 2; for 4 channels 73 and 72.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_PACKED_V6M_H
#define RLX_DENSE_PACKED_V6M_H

#include "rlx_v6m.h"

#define RLX_DENSE_ASM RLX_V6M_ASM
#define RLX_DENSE_LEAST 4
#define RLX_DENSE_SIGN 1u

#include "rlx_dense_packed.h"

#if RLX_V6M_ASM
#define RLX_PAIR(weights, x, field)                                                                                   \
    "    " weights "\n"                                                                                               \
    "    ands r0, r7\n"                                                                                               \
    "    muls r0, " x ", r0\n"                                                                                        \
    "    add " field ", r0\n"
#define RLX_SHIFTED(word, shift, x, field) RLX_PAIR("lsrs r0, " word ", #" shift, x, field)
#define RLX_FIRST(word, x) RLX_PAIR("movs r0, " word, x, "r8")
#define RLX_INPUTS "    ldmia r5!, {r3, r4}\n"
#define RLX_WORDS "    ldmia r6!, {r1, r2}\n"
#if RLX_BITS == 4
#define RLX_MASK "0x000F000F"
#define RLX_INPUT(word, x)                                                                                            \
    RLX_FIRST(word, x)                                                                                                \
    RLX_SHIFTED(word, "4", x, "r9") RLX_SHIFTED(word, "8", x, "r10") RLX_SHIFTED(word, "12", x, "r11")
#define RLX_TWO RLX_WORDS RLX_INPUTS RLX_INPUT("r1", "r3") RLX_INPUT("r2", "r4")
#define RLX_ONE_TURN RLX_TWO RLX_TWO RLX_TWO RLX_TWO
#define RLX_HALF(word)                                                                                                \
    RLX_INPUTS RLX_FIRST(word, "r3")                                                                                  \
    RLX_SHIFTED(word, "4", "r3", "r9") RLX_SHIFTED(word, "8", "r4", "r8") RLX_SHIFTED(word, "12", "r4", "r9")
#define RLX_HALF_TURN RLX_WORDS RLX_HALF("r1") RLX_HALF("r2") RLX_WORDS RLX_HALF("r1") RLX_HALF("r2")
#else
#define RLX_MASK "0x00030003"
#define RLX_WORD_OF_TWO(word)                                                                                         \
    RLX_INPUTS RLX_FIRST(word, "r3")                                                                                  \
    RLX_SHIFTED(word, "2", "r3", "r9") RLX_SHIFTED(word, "4", "r3", "r10") RLX_SHIFTED(word, "6", "r3", "r11")        \
    RLX_SHIFTED(word, "8", "r4", "r8") RLX_SHIFTED(word, "10", "r4", "r9")                                            \
    RLX_SHIFTED(word, "12", "r4", "r10") RLX_SHIFTED(word, "14", "r4", "r11")
#define RLX_FOUR RLX_WORDS RLX_WORD_OF_TWO("r1") RLX_WORD_OF_TWO("r2")
#define RLX_ONE_TURN RLX_FOUR RLX_FOUR
#define RLX_HALF(word)                                                                                                \
    RLX_INPUTS RLX_FIRST(word, "r3")                                                                                  \
    RLX_SHIFTED(word, "2", "r3", "r9") RLX_SHIFTED(word, "4", "r4", "r8") RLX_SHIFTED(word, "6", "r4", "r9")          \
    RLX_INPUTS RLX_SHIFTED(word, "8", "r3", "r8") RLX_SHIFTED(word, "10", "r3", "r9")                                 \
    RLX_SHIFTED(word, "12", "r4", "r8") RLX_SHIFTED(word, "14", "r4", "r9")
#define RLX_HALF_TURN RLX_WORDS RLX_HALF("r1") RLX_HALF("r2")
#endif
#define RLX_ADD(field)                                                                                                \
    "    ldmia r5!, {r2, r3}\n"                                                                                       \
    "    subs r5, r5, #8\n"                                                                                           \
    "    mov r0, " field "\n"                                                                                         \
    "    asrs r1, r0, #16\n"                                                                                          \
    "    uxth r0, r0\n"                                                                                               \
    "    adds r0, r0, r2\n"                                                                                           \
    "    adds r1, r1, r3\n"                                                                                           \
    "    stmia r5!, {r0, r1}\n"

RLX_V6M_NAKED static const int32_t *rlx_dense_chunk(RLX_V6M_UNUSED rlx_dense_chunk_t *chunk)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_V6M_SAVE
                     "    mov lr, r0\n"
                     "    ldr r6, [r0, #24]\n"
                     "    ldr r1, [r0, #4]\n"
                     "    mov r12, r1\n"
                     "    ldr r7, 5f\n"
                     "1:\n" /* 8 channels, or the last 4 */
                     "    mov r0, lr\n"
                     "    ldr r5, [r0]\n"
                     "    ldr r1, [r0, #8]\n"
                     "    mov r8, r1\n"
                     "    mov r9, r1\n"
                     "    ldr r2, [r0, #16]\n"
                     "    ldr r3, [r0, #20]\n"
                     "    subs r3, r3, r2\n"
                     "    cmp r3, #16\n"
                     "    bne 7f\n"
                     "    b 6f\n"
                     "7:\n"
                     "    mov r10, r1\n"
                     "    mov r11, r1\n"
                     "2:\n" RLX_ONE_TURN
                     "    cmp r5, r12\n"
                     "    beq 3f\n"
                     "    b 2b\n"
                     "3:\n"
                     "    mov r4, lr\n"
                     "    ldr r5, [r4, #16]\n"
                     RLX_ADD("r8") RLX_ADD("r9") RLX_ADD("r10") RLX_ADD("r11")
                     "    str r5, [r4, #16]\n"
                     "    ldr r0, [r4, #20]\n"
                     "    cmp r5, r0\n"
                     "    beq 4f\n"
                     "    b 1b\n"
                     "4:\n"
                     "    movs r0, r6\n"
                     RLX_V6M_RETURN
                     "    .balign 4\n"
                     "5:  .word " RLX_MASK "\n"
                     "6:\n" RLX_HALF_TURN
                     "    cmp r5, r12\n"
                     "    bne 6b\n"
                     "    mov r4, lr\n"
                     "    ldr r5, [r4, #16]\n"
                     RLX_ADD("r8") RLX_ADD("r9")
                     "    b 4b\n");
}

#undef RLX_PAIR
#undef RLX_SHIFTED
#undef RLX_FIRST
#undef RLX_INPUTS
#undef RLX_WORDS
#undef RLX_ONE_TURN
#undef RLX_HALF
#undef RLX_HALF_TURN
#undef RLX_ADD
#else
static inline int32_t rlx_dense_input(const rlx_dense_chunk_t *chunk, int32_t k)
{
    return ((const int32_t *)chunk->x)[k];
}

static inline bool rlx_dense_more(const rlx_dense_chunk_t *chunk, int32_t k)
{
    return (const int32_t *)chunk->x + k != chunk->x_end;
}
#endif

static RLX_V6M_NOINLINE uint32_t rlx_dense_prepare(rlx_dense_chunk_t *chunk, const int8_t *x, int32_t n)
{
    int32_t sum = 0;
    int32_t *to = chunk->words;
    for (int32_t zeros = rlx_dense_up(n, RLX_DENSE_TURN) - n; zeros > 0; zeros--) {
        *to++ = 0;
    }
    for (; n % 4 != 0; n--) {
        sum += *to++ = *x++;
    }
    for (; n > 0; n -= 4, x += 4, to += 4) {
        sum += to[0] = x[0];
        sum += to[1] = x[1];
        sum += to[2] = x[2];
        sum += to[3] = x[3];
    }
    chunk->x = chunk->words;
    chunk->x_end = to;
    chunk->first = RLX_DENSE_TURN;
    return (uint32_t)sum;
}

#if RLX_V6M_ASM
/* Registers: as RLX_V6M_RESCALE_ says, with the shift in r5; r7 next word of the stream, r8 next sum, r9 output, r12 its
 * end. About 28 instructions an output, 37 with the long rescale. */
RLX_V6M_NAKED static const int32_t *rlx_dense_rescale(RLX_V6M_UNUSED const int32_t *sums,
                                                      RLX_V6M_UNUSED const int32_t *stream, RLX_V6M_UNUSED int8_t *out,
                                                      RLX_V6M_UNUSED const int8_t *end)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_V6M_SAVE
                     "    mov r8, r0\n"
                     "    movs r7, r1\n"
                     "    mov r9, r2\n"
                     "    mov r12, r3\n"
                     "    ldr r6, 4f\n"
                     "1:\n"
                     "    ldmia r7!, {r0, r3, r4, r5}\n"
                     "    mov lr, r0\n"
                     "    mov r1, r8\n"
                     "    ldmia r1!, {r0}\n"
                     "    mov r8, r1\n"
                     "    cmp r5, #255\n"
                     "    bls 2f\n" RLX_V6M_RESCALE_SHORT("r5")
                     "    b 3f\n"
                     "2:\n" RLX_V6M_RESCALE_LONG("r5")
                     "3:\n"
                     "    mov r1, r9\n"
                     "    strb r0, [r1]\n"
                     "    adds r1, r1, #1\n"
                     "    mov r9, r1\n"
                     "    cmp r1, r12\n"
                     "    bne 1b\n"
                     "    movs r0, r7\n"
                     RLX_V6M_RETURN
                     "    .balign 4\n"
                     "4:  .word " RLX_V6M_INNER "\n");
}
#else
static const int32_t *rlx_dense_rescale(const int32_t *sums, const int32_t *stream, int8_t *out, const int8_t *end)
{
    for (; out != end; out++, stream += 4) {
        const rlx_v6m_scale_t scale = {stream[0], stream[1], stream[2], stream[3]};
        *out = rlx_v6m_rescale(*sums++, &scale);
    }
    return stream;
}
#endif

static const int32_t *rlx_dense_finish(
    const rlx_dense_packed_t *p, const int32_t *stream, const int32_t *sums, int8_t *out, int32_t count)
{
    (void)p;
    return rlx_dense_rescale(sums, stream, out, out + count);
}

#endif
