/* rlx_lines_v6m.h: lines of words of one channel of an image, for depthwise convolution on Armv6-M.
 *
 * A word is a[i] + a[i + stride] * 2^16 (rlx_v6m.h): the same tap of two neighboring outputs. Lines run along one axis
 * of the image, side by side across the other one; outside of the image a is its zero point.
 * With stride 1, word i of a line is value i - 1 and, above it, value i; the first word is not used, and pairs of
 * outputs share the others. Otherwise each pair of outputs has words of its own.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_LINES_V6M_H
#define RLX_LINES_V6M_H

#include "rlx_kernels.h"
#include "rlx_v6m.h"

enum { STEP = 3 }; /* taps that are multiplied together */

/* Lines with stride 1: `left` times the zero point, `inside` values of x, `right` times the zero point. The assembly
 * loads the fields in this order. */
typedef struct {
    int32_t blank;   /* a word of two zero points */
    int32_t advance; /* bytes of x from where a line's values end to the next line */
    int32_t inside, left;
    int32_t before;  /* the value before those of x */
    int32_t lines, right, step; /* step: bytes of x from value to value */
} shared_t;

#if RLX_V6M_ASM

/* Returns the end of what was written. 6 instructions a word of x.
 * r0 words, r1 x, r2 step, r3 counter, r4 and r5 values, r6 0, r7 word; r8 blank, r9 advance, r10 inside, r11 lines
 * left, r12 left, lr before; sp: right. */
RLX_V6M_NAKED static int32_t *shared_words(
    RLX_V6M_UNUSED int32_t *words, RLX_V6M_UNUSED const int8_t *x, RLX_V6M_UNUSED const shared_t *job)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_V6M_SAVE
                     "    ldmia r2!, {r3-r7}\n"
                     "    mov r8, r3\n"
                     "    mov r9, r4\n"
                     "    mov r10, r5\n"
                     "    mov r12, r6\n"
                     "    mov lr, r7\n"
                     "    ldmia r2!, {r3-r5}\n"
                     "    mov r11, r3\n"
                     "    movs r2, r5\n"
                     "    push {r4}\n"
                     "    movs r6, #0\n"
                     "1:\n"
                     "    mov r7, r8\n"
                     "    mov r3, r12\n"
                     "    b 3f\n"
                     "2:  stmia r0!, {r7}\n"
                     "3:  subs r3, r3, #1\n"
                     "    bpl 2b\n"
                     "    mov r4, lr\n"
                     "    mov r3, r10\n"
                     "    lsrs r3, r3, #1\n"
                     "    bcc 4f\n"
                     "    ldrsb r5, [r1, r6]\n"
                     "    adds r1, r1, r2\n"
                     "    lsls r7, r5, #16\n"
                     "    adds r4, r4, r7\n"
                     "    stmia r0!, {r4}\n"
                     "    movs r4, r5\n"
                     "4:  cmp r3, #0\n"
                     "    beq 6f\n"
                     "5:\n"
                     "    ldrsb r5, [r1, r6]\n"
                     "    adds r1, r1, r2\n"
                     "    lsls r7, r5, #16\n"
                     "    adds r4, r4, r7\n"
                     "    stmia r0!, {r4}\n"
                     "    ldrsb r4, [r1, r6]\n"
                     "    adds r1, r1, r2\n"
                     "    lsls r7, r4, #16\n"
                     "    adds r5, r5, r7\n"
                     "    stmia r0!, {r5}\n"
                     "    subs r3, r3, #1\n"
                     "    bne 5b\n"
                     "6:\n"
                     "    ldr r3, [sp]\n"
                     "    subs r3, r3, #1\n"
                     "    bmi 9f\n"
                     "    mov r7, r8\n"
                     "    lsls r5, r7, #16\n" /* the zero point, high */
                     "    adds r4, r4, r5\n"
                     "    stmia r0!, {r4}\n"
                     "    b 8f\n"
                     "7:  stmia r0!, {r7}\n"
                     "8:  subs r3, r3, #1\n"
                     "    bpl 7b\n"
                     "9:\n"
                     "    add r1, r9\n"
                     "    mov r3, r11\n"
                     "    subs r3, r3, #1\n"
                     "    mov r11, r3\n"
                     "    bne 1b\n"
                     "    add sp, #4\n"
                     RLX_V6M_RETURN);
}

/* Words of pairs of three taps with stride 2: five values a pair, of which the last one is the next pair's first one.
 * Returns the end of what was written; pairs >= 1. 18 instructions a pair. */
RLX_V6M_NAKED static int32_t *pair_words(
    RLX_V6M_UNUSED int32_t *words, RLX_V6M_UNUSED const int8_t *values, RLX_V6M_UNUSED int32_t pairs)
{
    __asm__ volatile(".syntax unified\n"
                     "    push {r4-r7, lr}\n"
                     "    movs r3, #0\n"
                     "    ldrsb r4, [r1, r3]\n"
                     "1:\n"
                     "    adds r3, r3, #1\n"
                     "    ldrsb r5, [r1, r3]\n"
                     "    adds r3, r3, #1\n"
                     "    ldrsb r6, [r1, r3]\n"
                     "    lsls r7, r6, #16\n"
                     "    adds r4, r4, r7\n"
                     "    adds r3, r3, #1\n"
                     "    ldrsb r7, [r1, r3]\n"
                     "    lsls r7, r7, #16\n"
                     "    adds r5, r5, r7\n"
                     "    stmia r0!, {r4, r5}\n"
                     "    adds r3, r3, #1\n"
                     "    ldrsb r4, [r1, r3]\n"
                     "    lsls r7, r4, #16\n"
                     "    adds r6, r6, r7\n"
                     "    stmia r0!, {r6}\n"
                     "    subs r2, r2, #1\n"
                     "    bne 1b\n"
                     "    pop {r4-r7, pc}\n");
}

/* `count` times a word; count >= 1. Returns the end of what was written. */
RLX_V6M_NAKED static int32_t *same_words(
    RLX_V6M_UNUSED int32_t *words, RLX_V6M_UNUSED int32_t word, RLX_V6M_UNUSED int32_t count)
{
    __asm__ volatile(".syntax unified\n"
                     "1:  stmia r0!, {r1}\n"
                     "    subs r2, r2, #1\n"
                     "    bne 1b\n"
                     "    bx lr\n");
}

#else /* the same in C */

static int32_t *shared_words(int32_t *words, const int8_t *x, const shared_t *job)
{
    for (int32_t line = 0; line < job->lines; line++, x += job->advance) {
        int32_t before = job->before;
        for (int32_t i = 0; i < job->left; i++) {
            *words++ = job->blank;
        }
        for (int32_t i = 0; i < job->inside; i++, x += job->step) {
            *words++ = before + *x * (1 << 16);
            before = *x;
        }
        for (int32_t i = 0; i < job->right; i++) {
            *words++ = i > 0 ? job->blank : before + (int16_t)job->blank * (1 << 16);
        }
    }
    return words;
}

static int32_t *pair_words(int32_t *words, const int8_t *values, int32_t pairs)
{
    for (; pairs > 0; pairs--, values += 4) {
        for (int32_t k = 0; k < STEP; k++) {
            *words++ = values[k] + values[k + 2] * (1 << 16);
        }
    }
    return words;
}

static int32_t *same_words(int32_t *words, int32_t word, int32_t count)
{
    for (; count > 0; count--) {
        *words++ = word;
    }
    return words;
}

#endif

/* A direction of the image: rows or columns. Outputs [0, outputs) read x from `first` on. */
typedef struct {
    int32_t size, kernel, stride; /* of x */
    int32_t first, outputs;
    int32_t out_step; /* bytes from an output to the next one */
} axis_t;

/* Lines in scratch: along one axis, side by side across the other one. A line has the values of x from `first` on. */
typedef struct {
    axis_t along, across;
    int32_t columns; /* of three taps */
    int32_t odd, pairs, first, values;
    int32_t words;   /* of a line; with stride 1 one that is not used, then those that the pairs share */
    int32_t pair;    /* words from a pair to the next one */
} lines_t;

/* The axis of rows [y0, y1) of outputs, or of columns. */
static RLX_V6M_NOINLINE void set_axis(
    axis_t *axis, const rlx_depthwise_v6m_t *p, bool rows, int32_t y_pitch, int32_t y0, int32_t y1)
{
    axis->size = rows ? p->in_h : p->in_w;
    axis->kernel = rows ? p->k_h : p->k_w;
    axis->stride = rows ? p->stride_h : p->stride_w;
    axis->first = rows ? y0 * p->stride_h - p->pad_top : -p->pad_left;
    axis->outputs = rows ? y1 - y0 : p->out_w;
    axis->out_step = rows ? y_pitch : p->out_c;
}

static void set_lines(lines_t *s, const rlx_depthwise_v6m_t *p, int32_t y_pitch, int32_t y0, int32_t y1)
{
    set_axis(&s->along, p, p->upright != 0, y_pitch, y0, y1);
    set_axis(&s->across, p, p->upright == 0, y_pitch, y0, y1);
    s->columns = (s->along.kernel + STEP - 1) / STEP;
    s->odd = s->along.outputs & 1;
    s->pairs = (s->along.outputs + 1) >> 1;
    s->first = s->along.first - s->odd * s->along.stride;
    s->values = (2 * s->pairs - 1) * s->along.stride + STEP * s->columns;
    s->words = s->along.stride == 1 ? s->values : s->pairs * STEP * s->columns;
    s->pair = s->along.stride == 1 ? 2 : STEP * s->columns;
}

static int32_t pair_of(int32_t first, int32_t second)
{
    return first + second * (1 << 16);
}

typedef struct {
    const rlx_depthwise_v6m_t *p;
    const rlx_view_t *x;
    int32_t channel;
    shared_t inside; /* lines inside the image */
    int8_t *values;  /* stride above 1: room for those of a line, as bytes */
} source_t;

/* Where x has value i of a line; both must be inside the image. */
static RLX_V6M_NOINLINE const int8_t *value_at(const source_t *s, int32_t line, int32_t i)
{
    const bool upright = s->p->upright != 0;
    return rlx_row(*s->x, upright ? i : line) + (upright ? line : i) * s->p->in_c + s->channel;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Bytes of x between values of a line. */
static int32_t step_of(const source_t *s)
{
    return s->p->upright != 0 ? s->x->pitch : s->p->in_c;
}

/* How many of `count` rows from `row` on follow each other. */
static RLX_V6M_NOINLINE int32_t straight(const rlx_view_t *view, int32_t row, int32_t count)
{
    return view->ring != 0 ? smaller(count, view->ring - row % view->ring) : count;
}

static void prepare(source_t *s, const lines_t *lines)
{
    const int32_t left = lines->first < 0 ? -lines->first : 0;
    const int32_t inside = smaller(lines->values, lines->along.size - lines->first) - left;
    s->inside.blank = pair_of(s->p->x_zp, s->p->x_zp);
    s->inside.before = s->p->x_zp;
    s->inside.left = left;
    s->inside.inside = inside;
    s->inside.right = lines->values - left - inside;
    s->inside.step = step_of(s);
    s->inside.advance = (s->p->upright != 0 ? s->p->in_c : s->x->pitch) - inside * s->inside.step;
}

/* The values of a line inside the image, as bytes. */
static void copy_values(const source_t *s, const lines_t *lines, int32_t line, bool cut, int8_t *values)
{
    const shared_t *in = &s->inside;
    for (int32_t i = in->left; i > 0; i--) {
        *values++ = (int8_t)in->before;
    }
    const int8_t *x = value_at(s, line, lines->first + in->left);
    for (int32_t i = 0; i < in->inside; i++) {
        if (cut) {
            x = value_at(s, line, lines->first + in->left + i);
        }
        *values++ = *x;
        x += in->step;
    }
    for (int32_t i = in->right; i > 0; i--) {
        *values++ = (int8_t)in->before;
    }
}

/* A line inside the image, any stride: its values, then the words of each pair, or (stride 1) all that pairs share. The
 * values of the latter lie at the end of the words' place, of which they take a fourth: word k, of values k - 1 and k, is
 * written to where only values up to k were. */
static RLX_V6M_NOINLINE int32_t *fill_line(
    const source_t *s, const lines_t *lines, int32_t line, bool cut, int32_t *to)
{
    const int32_t stride = lines->along.stride;
    int32_t *const end = to + lines->words;
    int8_t *value = stride == 1 ? (int8_t *)end - lines->values : s->values;
    copy_values(s, lines, line, cut, value);
    if (stride == 2 && lines->pair == STEP) {
        return pair_words(to, value, lines->pairs);
    }
    const int32_t words = stride == 1 ? lines->words - 1 : lines->pair;
    for (to += stride == 1 ? 1 : 0; to < end; value += 2 * stride) {
        for (int32_t k = 0; k < words; k++) {
            *to++ = pair_of(value[k], value[k + stride]);
        }
    }
    return to;
}

/* Lines [line, line + count) of a channel. */
static RLX_V6M_NOINLINE void fill_plane(
    source_t *s, const lines_t *lines, int32_t line, int32_t count, int32_t *plane)
{
    const bool cut = s->p->upright != 0 && s->x->ring != 0; /* a line lies in two parts */
    const bool together = lines->along.stride == 1 && !cut;
    for (; count > 0; count--, line++) {
        if (line < 0 || line >= lines->across.size || s->inside.inside <= 0) {
            plane = same_words(plane, s->inside.blank, lines->words);
        } else if (together) {
            const int32_t now = straight(s->x, line, smaller(count, lines->across.size - line));
            s->inside.lines = now;
            plane = shared_words(plane, value_at(s, line, lines->first + s->inside.left), &s->inside);
            line += now - 1;
            count -= now - 1;
        } else {
            plane = fill_line(s, lines, line, cut, plane);
        }
    }
}

#endif
