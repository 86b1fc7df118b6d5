/* rlx_octets_v6m.h: what the kernels of rlx_octets.h share on Armv6-M (Cortex-M0, M0+): words of x, fields, outputs.
 *
 * Fields (rlx_v6m.h). At the end of a run the upper half of a register is the sum of its second position, its lower half
 * that of the first one and 2^15.
 *
 * Registers of the assembly: r8 to r11 fields. Stack: rlx_octet_t, of which some members change.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_V6M_H
#define RLX_OCTETS_V6M_H

#include "rlx_octets.h"
#include "rlx_v6m.h"

#if RLX_V6M_ASM
/* The tile at r0, to the stack. */
#define RLX_ENTER                                                                                                     \
    RLX_V6M_SAVE                                                                                                      \
    "    sub sp, #108\n"                                                                                              \
    "    mov r1, sp\n"                                                                                                \
    "    ldmia r0!, {r2-r7}\n"                                                                                        \
    "    stmia r1!, {r2-r7}\n"                                                                                        \
    "    ldmia r0!, {r2-r7}\n"                                                                                        \
    "    stmia r1!, {r2-r7}\n"                                                                                        \
    "    ldmia r0!, {r2-r7}\n"                                                                                        \
    "    stmia r1!, {r2-r7}\n"                                                                                        \
    "    ldmia r0!, {r2-r7}\n"                                                                                        \
    "    stmia r1!, {r2-r7}\n"                                                                                        \
    "    ldmia r0!, {r2-r3}\n"                                                                                        \
    "    stmia r1!, {r2-r3}\n"
#define RLX_LEAVE                                                                                                     \
    "    add sp, #108\n" RLX_V6M_RETURN
/* The sums of a channel whose bias is in r1; r0 to r3 and r5 are lost. */
#define RLX_BEGIN_SUMS                                                                                                \
    "    movs r2, #128\n"                                                                                             \
    "    lsls r2, r2, #8\n"                                                                                           \
    "    subs r0, r1, r2\n"                                                                                           \
    "    movs r2, r0\n"                                                                                               \
    "    movs r3, r1\n"                                                                                               \
    "    mov r5, sp\n"                                                                                                \
    "    stmia r5!, {r0-r3}\n"                                                                                        \
    "    stmia r5!, {r0-r3}\n"
/* Fields of a run that is not the last one, to the sums at r5. r4 = 2^15. */
#define RLX_FLUSH(f)                                                                                                  \
    "    ldmia r5!, {r2, r3}\n"                                                                                       \
    "    subs r5, r5, #8\n"                                                                                           \
    "    mov r0, " f "\n"                                                                                             \
    "    asrs r1, r0, #16\n"                                                                                          \
    "    uxth r0, r0\n"                                                                                               \
    "    subs r0, r0, r4\n"                                                                                           \
    "    adds r0, r0, r2\n"                                                                                           \
    "    adds r1, r1, r3\n"                                                                                           \
    "    stmia r5!, {r0, r1}\n"
#define RLX_FLUSH_ALL                                                                                                 \
    "    mov r5, sp\n"                                                                                                \
    "    movs r4, #128\n"                                                                                             \
    "    lsls r4, r4, #8\n"                                                                                           \
    RLX_FLUSH("r8") RLX_FLUSH("r9") RLX_FLUSH("r10") RLX_FLUSH("r11")
/* The accumulators of a field's two positions: in r0 and, to be kept, in the field's register. */
#define RLX_SPLIT(f, lo, hi)                                                                                          \
    "    mov r0, " f "\n"                                                                                             \
    "    asrs r1, r0, #16\n"                                                                                          \
    "    ldr r2, [sp, #" hi "]\n"                                                                                     \
    "    adds r1, r1, r2\n"                                                                                           \
    "    mov " f ", r1\n"                                                                                             \
    "    uxth r0, r0\n"                                                                                               \
    "    ldr r2, [sp, #" lo "]\n"                                                                                     \
    "    adds r0, r0, r2\n"
/* r3, r4, lr: as RLX_V6M_RESCALE_SHORT says; r7 shift, r5 output. */
#define RLX_OUTPUTS(f, lo, hi, low_offset, high_offset)                                                               \
    RLX_SPLIT(f, lo, hi) RLX_V6M_RESCALE_SHORT("r7")                                                                  \
    "    ldr r1, [sp, #" low_offset "]\n"                                                                             \
    "    strb r0, [r5, r1]\n"                                                                                         \
    "    mov r0, " f "\n" RLX_V6M_RESCALE_SHORT("r7")                                                                 \
    "    ldr r1, [sp, #" high_offset "]\n"                                                                            \
    "    strb r0, [r5, r1]\n"
/* For the long way: the accumulators where the sums were. */
#define RLX_KEEP(f, lo, hi)                                                                                           \
    RLX_SPLIT(f, lo, hi)                                                                                              \
    "    str r0, [sp, #" lo "]\n"                                                                                     \
    "    str r1, [sp, #" hi "]\n"
#define RLX_ALL_OUTPUTS                                                                                               \
    RLX_OUTPUTS("r8", "0", "4", "32", "36")                                                                           \
    RLX_OUTPUTS("r9", "8", "12", "40", "44")                                                                          \
    RLX_OUTPUTS("r10", "16", "20", "48", "52")                                                                        \
    RLX_OUTPUTS("r11", "24", "28", "56", "60")
/* The long way, rare enough for a loop. r6 = RLX_V6M_INNER, r9: four times the position; r6 and lr are kept. */
#define RLX_KEEP_ALL                                                                                                  \
    RLX_KEEP("r8", "0", "4")                                                                                          \
    RLX_KEEP("r9", "8", "12")                                                                                         \
    RLX_KEEP("r10", "16", "20")                                                                                       \
    RLX_KEEP("r11", "24", "28")
#define RLX_LONG_OUTPUTS                                                                                              \
    "    movs r0, #0\n"                                                                                               \
    "11:\n"                                                                                                           \
    "    mov r9, r0\n"                                                                                                \
    "    add r0, sp\n"                                                                                                \
    "    ldr r0, [r0]\n" RLX_V6M_RESCALE_LONG("r7")                                                                   \
    "    mov r1, sp\n"                                                                                                \
    "    add r1, r9\n"                                                                                                \
    "    ldr r1, [r1, #32]\n"                                                                                         \
    "    strb r0, [r5, r1]\n"                                                                                         \
    "    mov r0, r9\n"                                                                                                \
    "    adds r0, r0, #4\n"                                                                                           \
    "    cmp r0, #32\n"                                                                                               \
    "    bne 11b\n"

/* The outputs of a channel by its scale in lr, r3, r4 and r7 from the sums and the last fields; then the next channel at
 * 1 or, after the last one, the end. */
#define RLX_END_CHANNEL                                                                                               \
    "    ldr r5, [sp, #64]\n"                                                                                         \
    "    cmp r7, #255\n"                                                                                              \
    "    bhi 7f\n"                                                                                                    \
    "    b 8f\n"                                                                                                      \
    "7:\n"                                                                                                            \
    RLX_ALL_OUTPUTS                                                                                                   \
    "9:\n"                                                                                                            \
    "    adds r5, r5, #1\n"                                                                                           \
    "    str r5, [sp, #64]\n"                                                                                         \
    "    ldr r0, [sp, #68]\n"                                                                                         \
    "    cmp r5, r0\n"                                                                                                \
    "    beq 10f\n"                                                                                                   \
    "    b 1b\n"                                                                                                      \
    "10:\n"                                                                                                           \
    RLX_LEAVE                                                                                                         \
    "8:\n" RLX_KEEP_ALL                                                                                               \
    "    mov r10, r6\n"                                                                                               \
    "    ldr r6, 12f\n"                                                                                               \
    RLX_LONG_OUTPUTS                                                                                                  \
    "    mov r6, r10\n"                                                                                               \
    "    b 9b\n"                                                                                                      \
    "    .balign 4\n"                                                                                                 \
    "12: .word " RLX_V6M_INNER "\n"

/* Two lines' bytes as words 16 bytes apart: 14 instructions for two. */
RLX_V6M_NAKED static void rlx_octets_widen_two(RLX_V6M_UNUSED int32_t *to, RLX_V6M_UNUSED const int8_t *a,
                                               RLX_V6M_UNUSED const int8_t *b, RLX_V6M_UNUSED int32_t n)
{
    __asm__ volatile(".syntax unified\n"
                     "    push {r4-r6, lr}\n"
                     "    adds r1, r1, r3\n"
                     "    adds r2, r2, r3\n"
                     "    rsbs r3, r3, #0\n"
                     "    adds r6, r3, #1\n"
                     "    lsls r5, r3, #31\n" /* an odd number begins with one */
                     "    beq 1f\n"
                     "    subs r0, r0, #16\n"
                     "    movs r6, r3\n"
                     "    subs r3, r3, #1\n"
                     "    b 2f\n"
                     "1:\n"
                     "    ldrsb r4, [r1, r3]\n"
                     "    ldrsb r5, [r2, r3]\n"
                     "    lsls r5, r5, #16\n"
                     "    adds r4, r4, r5\n"
                     "    str r4, [r0]\n"
                     "2:\n"
                     "    ldrsb r4, [r1, r6]\n"
                     "    ldrsb r5, [r2, r6]\n"
                     "    lsls r5, r5, #16\n"
                     "    adds r4, r4, r5\n"
                     "    str r4, [r0, #16]\n"
                     "    adds r0, r0, #32\n"
                     "    adds r6, r6, #2\n"
                     "    adds r3, r3, #2\n"
                     "    bne 1b\n"
                     "    pop {r4-r6, pc}\n");
}

static void rlx_octets_widen(int32_t *to, const int8_t *const *lines, int32_t n)
{
    rlx_octets_widen_two(to, lines[0], lines[1], n);
    rlx_octets_widen_two(to + 1, lines[2], lines[3], n);
}

#else /* the same in C */

static void rlx_octets_widen(int32_t *to, const int8_t *const *lines, int32_t n)
{
    for (int32_t i = 0; i < n; i++, to += 4) {
        to[0] = lines[0][i] + lines[1][i] * (1 << 16);
        to[1] = lines[2][i] + lines[3][i] * (1 << 16);
    }
}
#endif

#endif
