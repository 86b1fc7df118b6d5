/* rlx_planes_dsp.h: 4 channels of a block of pixels copied to planes of bytes, one a channel.
 *
 * A plane has lines of pixels, RLX_PLANE_PITCH bytes from line to line. A line runs along one axis of the image (inner),
 * the lines follow each other along the other axis (outer).
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_PLANES_DSP_H
#define RLX_PLANES_DSP_H

#include "rlx_dsp.h"

/* Planes are aligned to RLX_PLANE_PITCH. A line begins at least RLX_PLANE_SPARE bytes after a multiple of that, and ends
 * at most so many after the next one. */
enum { RLX_PLANE_PITCH = 32, RLX_PLANE_SPARE = 4 };

/* How 4 channels of a block of pixels are copied to planes. The assembly loads the fields in this order. */
typedef struct {
    int32_t pixel_step, line_advance; /* bytes of x from pixel to pixel, and from a line's end to the next line */
    int32_t plane_bytes, three_pixels, three_planes, lines;
    int32_t quads, singles, plane_advance; /* 4 quads + singles: pixels of a line; bytes to the plane's next line */
} rlx_planes_t;

/* `channels` channels of a block of pixels, a byte after the other. */
static inline void rlx_planes_copy_bytes(int8_t *plane, const int8_t *x, const rlx_planes_t *job, int32_t channels)
{
    for (int32_t line = 0; line < job->lines; line++) {
        for (int32_t i = 0; i < 4 * job->quads + job->singles; i++) {
            for (int32_t c = 0; c < channels; c++) {
                plane[c * job->plane_bytes] = x[c];
            }
            plane++;
            x += job->pixel_step;
        }
        plane += job->plane_advance;
        x += job->line_advance;
    }
}

#if RLX_DSP

#define RLX_UNSEEN __attribute__((unused)) /* an argument that only the assembly reads */

/* r0 plane, r1 x, r2 pixel step, r3 line advance, r4 plane bytes, r5 3 pixel steps, r6 3 planes, r7 lines left, r8 to r11
 * pixels, r12 scratch, lr quads or singles left; sp: quads, singles, plane advance. GE = 0101 makes SEL take bytes 0 and 2
 * from its first operand, 1 and 3 from its second. */
static RLX_NAKED void rlx_planes_copy(
    RLX_UNSEEN int8_t *plane, RLX_UNSEEN const int8_t *x, RLX_UNSEEN const rlx_planes_t *job)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "mov r12, r2\n\t"
        "ldm r12!, {r2-r7}\n\t"
        "ldm r12, {r8-r10}\n\t"
        "push {r8-r10}\n\t"
        "mov r8, #0x00ff00ff\n\t"
        "uadd8 r8, r8, r8\n"
        "1:\n\t"
        "ldr lr, [sp]\n\t"
        "cmp lr, #0\n\t"
        "beq 3f\n"
        "2:\n\t"
        "ldr r8, [r1]\n\t"
        "ldr r9, [r1, r2]\n\t"
        "ldr r10, [r1, r2, lsl #1]\n\t"
        "ldr r11, [r1, r5]\n\t"
        "add r1, r1, r2, lsl #2\n\t"
        "pkhbt r12, r8, r10, lsl #16\n\t" /* channels 0 1 of pixels 0, 2 */
        "pkhtb r10, r10, r8, asr #16\n\t" /* channels 2 3 of pixels 0, 2 */
        "pkhbt r8, r9, r11, lsl #16\n\t"  /* channels 0 1 of pixels 1, 3 */
        "pkhtb r11, r11, r9, asr #16\n\t" /* channels 2 3 of pixels 1, 3 */
        "lsl r9, r8, #8\n\t"
        "sel r9, r12, r9\n\t"
        "lsr r12, r12, #8\n\t"
        "sel r12, r12, r8\n\t"
        "lsl r8, r11, #8\n\t"
        "sel r8, r10, r8\n\t"
        "lsr r10, r10, #8\n\t"
        "sel r10, r10, r11\n\t"
        "str r12, [r0, r4]\n\t"
        "str r8, [r0, r4, lsl #1]\n\t"
        "str r10, [r0, r6]\n\t"
        "str r9, [r0], #4\n\t"
        "subs lr, lr, #1\n\t"
        "bne 2b\n"
        "3:\n\t"
        "ldr lr, [sp, #4]\n\t"
        "cmp lr, #0\n\t"
        "beq 5f\n"
        "4:\n\t"
        "ldr r8, [r1]\n\t"
        "add r1, r1, r2\n\t"
        "lsr r9, r8, #8\n\t"
        "strb r9, [r0, r4]\n\t"
        "lsr r9, r8, #16\n\t"
        "strb r9, [r0, r4, lsl #1]\n\t"
        "lsr r9, r8, #24\n\t"
        "strb r9, [r0, r6]\n\t"
        "strb r8, [r0], #1\n\t"
        "subs lr, lr, #1\n\t"
        "bne 4b\n"
        "5:\n\t"
        "ldr lr, [sp, #8]\n\t"
        "add r1, r1, r3\n\t"
        "add r0, r0, lr\n\t"
        "subs r7, r7, #1\n\t"
        "bne 1b\n\t"
        "add sp, sp, #12\n\t"
        "pop {r4-r11, pc}");
}

/* `count` times RLX_PLANE_PITCH bytes of a value, `step` bytes apart. All is aligned to 4. */
static RLX_NAKED void rlx_planes_fill(
    RLX_UNSEEN int8_t *to, RLX_UNSEEN int32_t value, RLX_UNSEEN int32_t count, RLX_UNSEEN int32_t step)
{
    __asm__ volatile(
        "push {r4-r9, lr}\n\t"
        "uxtb r1, r1\n\t"
        "orr r1, r1, r1, lsl #8\n\t"
        "orr r4, r1, r1, lsl #16\n\t"
        "mov r5, r4\n\t"
        "mov r6, r4\n\t"
        "mov r7, r4\n\t"
        "mov r8, r4\n\t"
        "mov r9, r4\n\t"
        "mov r12, r4\n\t"
        "mov lr, r4\n"
        "1:\n\t"
        "stm r0, {r4-r9, r12, lr}\n\t"
        "add r0, r0, r3\n\t"
        "subs r2, r2, #1\n\t"
        "bne 1b\n\t"
        "pop {r4-r9, pc}");
}

/* In each of `count` planes, `lines` lines (1 or 2) that begin `offset` bytes after the first one, to where that one
 * does. */
static RLX_NAKED void rlx_planes_move(RLX_UNSEEN int8_t *planes, RLX_UNSEEN int32_t offset, RLX_UNSEEN int32_t lines,
                                      RLX_UNSEEN int32_t count, RLX_UNSEEN int32_t plane_bytes)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "ldr r4, [sp, #36]\n\t"
        "sub r4, r4, r2, lsl #5\n"
        "1:\n\t"
        "add lr, r0, r1\n\t"
        "ldm lr!, {r5-r12}\n\t"
        "stm r0!, {r5-r12}\n\t"
        "cmp r2, #1\n\t"
        "itt ne\n\t"
        "ldmne lr!, {r5-r12}\n\t"
        "stmne r0!, {r5-r12}\n\t"
        "ldr r5, [lr]\n\t"
        "str r5, [r0]\n\t"
        "add r0, r0, r4\n\t"
        "subs r3, r3, #1\n\t"
        "bne 1b\n\t"
        "pop {r4-r11, pc}");
}

#else

static inline void rlx_planes_fill(int8_t *to, int32_t value, int32_t count, int32_t step)
{
    for (; count > 0; count--, to += step) {
        for (int32_t i = 0; i < RLX_PLANE_PITCH; i++) {
            to[i] = (int8_t)value;
        }
    }
}

static inline void rlx_planes_move(int8_t *planes, int32_t offset, int32_t lines, int32_t count, int32_t plane_bytes)
{
    for (; count > 0; count--, planes += plane_bytes) {
        for (int32_t i = 0; i < lines * RLX_PLANE_PITCH + RLX_PLANE_SPARE; i++) {
            planes[i] = planes[i + offset];
        }
    }
}

static inline void rlx_planes_copy(int8_t *plane, const int8_t *x, const rlx_planes_t *job)
{
    rlx_planes_copy_bytes(plane, x, job, 4);
}

#endif
#endif
