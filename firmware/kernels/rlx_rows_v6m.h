/* rlx_rows_v6m.h: rows of outputs of one channel, as the kernels for depthwise convolution on Armv6-M compute them.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_ROWS_V6M_H
#define RLX_ROWS_V6M_H

#include "rlx_lines_v6m.h"

/* Rows of outputs of one channel (columns, if upright). Byte counts are for the assembly, which knows nothing else of the shape. */
typedef struct {
    const int32_t *plane;   /* the first pair's first word */
    const int32_t *table;   /* lo, hi, weights [columns][k_h][STEP], rescale */
    int8_t *out;            /* the first pair's first output */
    int32_t out_step;       /* bytes from an output to the next one in its row */
    int32_t out_pitch;      /* bytes to the next row */
    int32_t rows;
    int32_t row_bytes;      /* 2 * pairs * out_step */
    int32_t line_rest;      /* bytes of a line, less the three words that were read */
    int32_t to_next;        /* bytes from where a pair's last word ends to the next pair's first word */
    int32_t plane_step;     /* bytes from a row's first word to the next row's */
    int32_t mode;
    int32_t odd;            /* 1: the first output of each row does not exist */
    int32_t row_end;        /* these two are the assembly's */
    int32_t column_end;
    int32_t column_bytes;   /* mode 0: bytes of a column of weights; bytes to the next column of words */
    int32_t to_column;
    const int32_t *weights_end;
    int32_t unused;
} rows_t;

/* All of them, from words and a table that are in scratch. */
static void run_rows(const rows_t *rows);

/* A channel of the stream into the table; returns the next one. */
static const int32_t *load_channel(const int32_t *next, rows_t *r, int32_t *table, int32_t taps);

#if RLX_V6M_ASM
/* Saves registers and copies rows_t to the stack. */
#define ROWS_ENTER                                                                                                    \
    RLX_V6M_SAVE                                                                                                      \
    "    adds r0, r0, #48\n"                                                                                          \
    "    ldmia r0!, {r1-r6}\n"                                                                                        \
    "    push {r1-r6}\n"                                                                                              \
    "    subs r0, r0, #48\n"                                                                                          \
    "    ldmia r0!, {r1-r6}\n"                                                                                        \
    "    push {r1-r6}\n"                                                                                              \
    "    subs r0, r0, #48\n"                                                                                          \
    "    ldmia r0!, {r1-r6}\n"                                                                                        \
    "    push {r1-r6}\n"
/* All rows: calls the code whose address is `mode` for the products of a pair, rescales, stores. `both` makes the first
 * accumulator in r0 and the second one in r11, `second` at least the latter. While rescaling: as RLX_V6M_RESCALE_ says, with
 * the shift in r5; r7 and r12 stay. */
#define ROWS_RUN(both, second)                                                                                        \
    "2:\n" /* a row */                                                                                                \
    "    ldr r0, [sp, #8]\n"                                                                                          \
    "    mov r12, r0\n"                                                                                               \
    "    ldr r1, [sp, #24]\n"                                                                                         \
    "    adds r0, r0, r1\n"                                                                                           \
    "    str r0, [sp, #48]\n"                                                                                         \
    "    ldr r7, [sp]\n"                                                                                              \
    "    ldr r0, [sp, #44]\n"                                                                                         \
    "    cmp r0, #0\n"                                                                                                \
    "    beq 3f\n"                                                                                                    \
    "    ldr r0, [sp, #40]\n"                                                                                         \
    "    blx r0\n"                                                                                                    \
    "    ldmia r6!, {r0, r3, r4, r5}\n"                                                                               \
    "    mov lr, r0\n" second                                                                                         \
    "    cmp r5, #255\n"                                                                                              \
    "    bhi 4f\n"                                                                                                    \
    "    ldr r6, 10f\n"                                                                                               \
    "    b 6f\n"                                                                                                      \
    "    .balign 4\n"                                                                                                 \
    "10: .word " RLX_V6M_INNER "\n"                                                                                   \
    "3:\n" /* a pair */                                                                                               \
    "    ldr r0, [sp, #40]\n"                                                                                         \
    "    blx r0\n"                                                                                                    \
    "    ldmia r6!, {r0, r3, r4, r5}\n"                                                                               \
    "    mov lr, r0\n"                                                                                                \
    "    cmp r5, #255\n"                                                                                              \
    "    bls 5f\n"                                                                                                    \
    both RLX_V6M_RESCALE_SHORT("r5")                                                                                  \
    "    mov r1, r12\n"                                                                                               \
    "    strb r0, [r1]\n"                                                                                             \
    "4:\n"                                                                                                            \
    "    mov r0, r11\n"                                                                                               \
    RLX_V6M_RESCALE_SHORT("r5")                                                                                       \
    "    ldr r2, [sp, #12]\n"                                                                                         \
    "    mov r1, r12\n"                                                                                               \
    "    strb r0, [r1, r2]\n"                                                                                         \
    "    b 7f\n"                                                                                                      \
    "5:\n" /* the long way, rare enough to be there only once: r10 becomes 0, then out_step */                        \
    "    ldr r6, 11f\n"                                                                                               \
    both                                                                                                              \
    "    movs r1, #0\n"                                                                                               \
    "13: mov r10, r1\n"                                                                                               \
    RLX_V6M_RESCALE_LONG("r5")                                                                                        \
    "    mov r1, r12\n"                                                                                               \
    "    mov r2, r10\n"                                                                                               \
    "    strb r0, [r1, r2]\n"                                                                                         \
    "    cmp r2, #0\n"                                                                                                \
    "    bne 7f\n"                                                                                                    \
    "6:\n"                                                                                                            \
    "    mov r0, r11\n"                                                                                               \
    "    ldr r1, [sp, #12]\n"                                                                                         \
    "    b 13b\n"                                                                                                     \
    "7:  add r12, r2\n"                                                                                               \
    "    add r12, r2\n"                                                                                               \
    "    ldr r0, [sp, #48]\n"                                                                                         \
    "    cmp r12, r0\n"                                                                                               \
    "    bne 3b\n"                                                                                                    \
    "    ldr r0, [sp]\n"                                                                                              \
    "    ldr r1, [sp, #36]\n"                                                                                         \
    "    adds r0, r0, r1\n"                                                                                           \
    "    str r0, [sp]\n"                                                                                              \
    "    ldr r0, [sp, #8]\n"                                                                                          \
    "    ldr r1, [sp, #16]\n"                                                                                         \
    "    adds r0, r0, r1\n"                                                                                           \
    "    str r0, [sp, #8]\n"                                                                                          \
    "    ldr r0, [sp, #20]\n"                                                                                         \
    "    subs r0, r0, #1\n"                                                                                           \
    "    str r0, [sp, #20]\n"                                                                                         \
    "    beq 12f\n"                                                                                                   \
    "    b 2b\n"                                                                                                      \
    "12:\n"                                                                                                           \
    "    add sp, #72\n"                                                                                               \
    RLX_V6M_RETURN                                                                                                    \
    "    .balign 4\n"                                                                                                 \
    "11: .word " RLX_V6M_INNER "\n"

/* Words to a place before them, from the first one on. 4 instructions for five. */
RLX_V6M_NAKED static void move_words(
    RLX_V6M_UNUSED int32_t *to, RLX_V6M_UNUSED const int32_t *from, RLX_V6M_UNUSED int32_t count)
{
    __asm__ volatile(".syntax unified\n"
                     "    push {r4-r7, lr}\n"
                     "    b 2f\n"
                     "1:\n"
                     "    ldmia r1!, {r3-r7}\n"
                     "    stmia r0!, {r3-r7}\n"
                     "2:\n"
                     "    subs r2, r2, #5\n"
                     "    bhs 1b\n"
                     "    adds r2, r2, #5\n"
                     "    beq 4f\n"
                     "3:\n"
                     "    ldmia r1!, {r3}\n"
                     "    stmia r0!, {r3}\n"
                     "    subs r2, r2, #1\n"
                     "    bne 3b\n"
                     "4:\n"
                     "    pop {r4-r7, pc}\n");
}
#else
static void move_words(int32_t *to, const int32_t *from, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        to[i] = from[i];
    }
}
#endif

#endif
