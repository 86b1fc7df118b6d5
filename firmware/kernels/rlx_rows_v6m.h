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
