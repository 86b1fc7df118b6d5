/* rlx_depthwise_v6m.h: the inner loops of rlx_depthwise_v6m_s8.c, which says what they compute; each in assembly and in C.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_V6M_H
#define RLX_DEPTHWISE_V6M_H

#include "rlx_rows_v6m.h"

#if RLX_V6M_ASM

/* Registers: r0 r1 r2 weights, then products and their sums, r3 r4 r5 activations, r6 next word of the table, r7 next
 * activations; r8 2^15, r9 line_rest, r10 r11 lo and hi, r12 the pair's first output, lr return.
 * Stack: a copy of rows_t, whose `mode` becomes an address. */
#define FLUSH(sum)                                                                                                    \
    "    add " sum ", r8\n"                                                                                           \
    "    add r10, " sum "\n"                                                                                          \
    "    asrs " sum ", " sum ", #16\n"                                                                                \
    "    add r11, " sum "\n"
#define BEGIN                                                                                                         \
    "    ldr r6, [sp, #4]\n"                                                                                          \
    "    ldmia r6!, {r0, r1}\n"                                                                                       \
    "    mov r10, r0\n"                                                                                               \
    "    mov r11, r1\n"
#define END                                                                                                           \
    "    ldr r0, [sp, #32]\n"                                                                                         \
    "    adds r7, r7, r0\n"                                                                                           \
    "    bx lr\n"
/* three products in r0, r1, r2 */
#define PRODUCTS                                                                                                      \
    "    ldmia r6!, {r0, r1, r2}\n"                                                                                   \
    "    ldmia r7!, {r3, r4, r5}\n"                                                                                   \
    "    muls r0, r3, r0\n"                                                                                           \
    "    muls r1, r4, r1\n"                                                                                           \
    "    muls r2, r5, r2\n"
#define ROW_GROUP                                                                                                     \
    PRODUCTS                                                                                                          \
    "    adds r0, r0, r1\n"                                                                                           \
    "    adds r0, r0, r2\n" FLUSH("r0")
/* the first accumulator in r0 */
#define FIRST                                                                                                         \
    "    mov r1, r11\n"                                                                                               \
    "    lsls r1, r1, #16\n"                                                                                          \
    "    mov r0, r10\n"                                                                                               \
    "    subs r0, r0, r1\n"

RLX_V6M_NAKED static void run_rows(RLX_V6M_UNUSED const rows_t *rows)
{
    __asm__ volatile(".syntax unified\n"
                     ROWS_ENTER
                     "    movs r0, #128\n"
                     "    lsls r0, r0, #8\n"
                     "    mov r8, r0\n"
                     "    ldr r0, [sp, #28]\n"
                     "    mov r9, r0\n"
                     "    ldr r1, [sp, #40]\n"
                     "    adr r0, 20f\n"
                     "    cmp r1, #1\n"
                     "    blo 1f\n"
                     "    adr r0, 21f\n"
                     "    beq 1f\n"
                     "    adr r0, 22f\n"
                     "1:  adds r0, r0, #1\n" /* Thumb code */
                     "    str r0, [sp, #40]\n"
                     ROWS_RUN(FIRST, "")
                     "20:\n" /* mode 0: columns of three taps, in each its kernel rows */
                     BEGIN
                     "8:  ldr r0, [sp, #56]\n"
                     "    adds r0, r0, r6\n"
                     "    str r0, [sp, #52]\n"
                     "9:\n" PRODUCTS
                     "    adds r0, r0, r1\n" FLUSH("r0") FLUSH("r2")
                     "    add r7, r9\n"
                     "    ldr r0, [sp, #52]\n"
                     "    cmp r6, r0\n"
                     "    bne 9b\n"
                     "    ldr r0, [sp, #60]\n"
                     "    adds r7, r7, r0\n"
                     "    ldr r0, [sp, #64]\n"
                     "    cmp r6, r0\n"
                     "    bne 8b\n" END
                     "    .balign 4\n"
                     "21:\n" /* mode 1; the third product of a row goes with the first one of the next */
                     BEGIN PRODUCTS
                     "    adds r0, r0, r1\n" FLUSH("r0")
                     "    add r7, r9\n"
                     "    ldmia r6!, {r0, r1}\n"
                     "    ldmia r7!, {r3, r4, r5}\n"
                     "    muls r0, r3, r0\n"
                     "    adds r0, r0, r2\n" FLUSH("r0")
                     "    muls r1, r4, r1\n"
                     "    ldmia r6!, {r0}\n"
                     "    muls r0, r5, r0\n"
                     "    adds r0, r0, r1\n" FLUSH("r0")
                     "    add r7, r9\n" PRODUCTS
                     "    adds r0, r0, r1\n" FLUSH("r0") FLUSH("r2") END
                     "    .balign 4\n"
                     "22:\n" /* mode 2 */
                     BEGIN ROW_GROUP
                     "    add r7, r9\n" ROW_GROUP
                     "    add r7, r9\n" ROW_GROUP END);
}

/* Bytes as words; 4 * `words` of them. 10 instructions for four. */
RLX_V6M_NAKED static void widen(
    RLX_V6M_UNUSED int32_t *to, RLX_V6M_UNUSED const int32_t *from, RLX_V6M_UNUSED int32_t words)
{
    __asm__ volatile(".syntax unified\n"
                     "    push {r4-r7, lr}\n"
                     "1:\n"
                     "    ldmia r1!, {r3}\n"
                     "    sxtb r4, r3\n"
                     "    lsls r5, r3, #16\n"
                     "    asrs r5, r5, #24\n"
                     "    lsls r6, r3, #8\n"
                     "    asrs r6, r6, #24\n"
                     "    asrs r7, r3, #24\n"
                     "    stmia r0!, {r4-r7}\n"
                     "    subs r2, r2, #1\n"
                     "    bne 1b\n"
                     "    pop {r4-r7, pc}\n");
}

#else /* the same in C */

typedef struct {
    uint32_t lo;
    int32_t hi;
} sums_t;

/* One group: `count` products. */
static void group(sums_t *s, const int32_t *weights, const uint32_t *acts, int32_t count)
{
    uint32_t f = 1u << 15;
    for (int32_t i = 0; i < count; i++) {
        f += (uint32_t)weights[i] * acts[i];
    }
    rlx_v6m_flush(f, &s->lo, &s->hi);
}

/* Sums of one pair; `next` is where its words begin, and then where the next pair's do. Returns the rescale. */
static const rlx_v6m_scale_t *sum_pair(const rows_t *r, const int32_t **next, sums_t *s)
{
    const int32_t *weights = r->table + 2;
    const int32_t line = r->line_rest / 4 + STEP;
    *s = (sums_t){(uint32_t)r->table[0], r->table[1]};
    if (r->mode == 0) {
        while (weights != r->weights_end) {
            for (int32_t y = 0; y < r->column_bytes / (4 * STEP); y++, weights += STEP, *next += line) {
                const uint32_t acts[STEP] = {(uint32_t)(*next)[0], (uint32_t)(*next)[1], (uint32_t)(*next)[2]};
                group(s, weights, acts, 2);
                group(s, weights + 2, acts + 2, 1);
            }
            *next += r->to_column / 4;
        }
    } else {
        static const uint8_t ends[3][9] = {{0}, {2, 4, 6, 8, 9}, {3, 6, 9}};
        uint32_t acts[9];
        for (int32_t i = 0; i < 9; i++) {
            acts[i] = (uint32_t)(*next)[i / STEP * line + i % STEP];
        }
        int32_t first = 0;
        for (int32_t i = 0; first < 9; first = ends[r->mode][i++]) {
            group(s, weights + first, acts + first, ends[r->mode][i] - first);
        }
        weights += 9;
        *next += 2 * line + STEP;
    }
    *next += r->to_next / 4;
    return (const rlx_v6m_scale_t *)(const void *)weights;
}

static void run_rows(const rows_t *r)
{
    for (int32_t y = 0; y < r->rows; y++) {
        const int32_t *next = r->plane + y * (r->plane_step / 4);
        int8_t *out = r->out + y * r->out_pitch;
        for (int32_t at = 0; at < r->row_bytes; at += 2 * r->out_step) {
            sums_t s;
            const rlx_v6m_scale_t *scale = sum_pair(r, &next, &s);
            if (at != 0 || r->odd == 0) {
                out[at] = rlx_v6m_rescale((int32_t)(s.lo - ((uint32_t)s.hi << 16)), scale);
            }
            out[at + r->out_step] = rlx_v6m_rescale(s.hi, scale);
        }
    }
}

static void widen(int32_t *to, const int32_t *from, int32_t words)
{
    for (int32_t i = 0; i < 4 * words; i++) {
        to[i] = (int8_t)((uint32_t)from[i / 4] >> 8 * (i % 4) & 0xFFu);
    }
}

#endif

#endif
