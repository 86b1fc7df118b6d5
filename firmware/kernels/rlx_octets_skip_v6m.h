/* rlx_octets_skip_v6m.h: eight positions times all output channels, by lists of the weights that are not 0, for Armv6-M.
 *
 * stream: rlx_octets_skip.h, where a channel begins with int32 the bias and ends with int32 shift, k, low, high
 * (rlx_v6m_scale_t).
 * The generator proves: |acc| < 2^24; the rescale is exact.
 *
 * Registers of the assembly: r0 number, r1 to r4 words, r5 next words of x, r6 0xF0, r7 numbers; r12 end of the list, lr
 * next word of the stream. On the stack `taps` becomes the shift. 69 instructions for 8 taps that are not 0, that is 64
 * products.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_SKIP_V6M_H
#define RLX_OCTETS_SKIP_V6M_H

#include "rlx_octets_skip.h"
#include "rlx_octets_v6m.h"

#if RLX_V6M_ASM
/* `number` puts the number times 16 into bits 4 to 7 of r0. */
#define RLX_TAP(number)                                                                                               \
    "    " number "\n"                                                                                                \
    "    ands r0, r6\n"                                                                                               \
    "    adds r5, r5, r0\n"                                                                                           \
    "    ldmia r5!, {r1-r4}\n"                                                                                        \
    "    add r8, r1\n"                                                                                                \
    "    add r9, r2\n"                                                                                                \
    "    add r10, r3\n"                                                                                               \
    "    add r11, r4\n"
#define RLX_NEXT                                                                                                      \
    "    mov r0, lr\n"                                                                                                \
    "    ldmia r0!, {r7}\n"                                                                                           \
    "    mov lr, r0\n"
/* A list: its taps are added. */
#define RLX_LIST                                                                                                      \
    "    mov r0, lr\n"                                                                                                \
    "    ldmia r0!, {r1}\n"                                                                                           \
    "    mov lr, r0\n"                                                                                                \
    "    lsls r2, r1, #17\n"                                                                                          \
    "    lsrs r2, r2, #25\n"                                                                                          \
    "    beq 4f\n"                                                                                                    \
    "    lsls r2, r2, #2\n"                                                                                           \
    "    add r2, lr\n"                                                                                                \
    "    mov r12, r2\n"                                                                                               \
    RLX_NEXT                                                                                                          \
    "    lsrs r5, r1, #16\n"                                                                                          \
    "    lsls r5, r5, #4\n"                                                                                           \
    "    ldr r2, [sp, #72]\n"                                                                                         \
    "    adds r5, r5, r2\n"                                                                                           \
    "    uxtb r1, r1\n"                                                                                               \
    "    adr r2, 3f\n"                                                                                                \
    "    subs r2, r2, r1\n"                                                                                           \
    "    adds r2, r2, #1\n" /* Thumb code */                                                                          \
    "    bx r2\n"                                                                                                     \
    "    .balign 4\n"                                                                                                 \
    "    nop\n" /* so that what adr counts to is at a multiple of 4 */                                                \
    "2:\n" RLX_NEXT                                                                                                   \
    RLX_TAP("lsls r0, r7, #4") RLX_TAP("movs r0, r7") RLX_TAP("lsrs r0, r7, #4") RLX_TAP("lsrs r0, r7, #8")           \
    RLX_TAP("lsrs r0, r7, #12") RLX_TAP("lsrs r0, r7, #16") RLX_TAP("lsrs r0, r7, #20") RLX_TAP("lsrs r0, r7, #24")    \
    "3:\n"                                                                                                            \
    "    cmp lr, r12\n"                                                                                               \
    "    bne 2b\n"                                                                                                    \
    "4:\n"
/* r1 - field */
#define RLX_NEGATE(f)                                                                                                 \
    "    mov r0, " f "\n"                                                                                             \
    "    subs r0, r1, r0\n"                                                                                           \
    "    mov " f ", r0\n"

RLX_V6M_NAKED static void rlx_octets_tile(RLX_V6M_UNUSED rlx_octet_t *tile)
{
    __asm__ volatile(".syntax unified\n"
                     RLX_ENTER
                     "    ldr r6, [sp, #80]\n"
                     "1:\n" /* a channel */
                     "    ldmia r6!, {r1}\n"
                     "    mov lr, r6\n"
                     RLX_BEGIN_SUMS
                     "    movs r6, #0xF0\n"
                     "5:\n" /* a run */
                     "    movs r0, #0\n"
                     "    mov r8, r0\n"
                     "    mov r9, r0\n"
                     "    mov r10, r0\n"
                     "    mov r11, r0\n"
                     RLX_LIST
                     "    movs r1, #128\n"
                     "    lsls r1, r1, #8\n"
                     RLX_NEGATE("r8") RLX_NEGATE("r9") RLX_NEGATE("r10") RLX_NEGATE("r11")
                     RLX_LIST
                     "    mov r6, lr\n"
                     "    ldmia r6!, {r7}\n"
                     "    lsrs r0, r7, #9\n"
                     "    beq 6f\n"
                     RLX_FLUSH_ALL
                     "    movs r6, #0xF0\n"
                     "    b 5b\n"
                     "6:\n" /* rescale and store */
                     "    ldmia r6!, {r2, r3, r4}\n"
                     "    mov lr, r2\n"
                     RLX_END_CHANNEL);
}

#undef RLX_TAP
#undef RLX_NEXT
#undef RLX_LIST
#undef RLX_NEGATE

#else /* the same in C */

enum { RLX_TAP_BYTES = 16 };

static void rlx_octets_tile(rlx_octet_t *tile)
{
    const int32_t *stream = tile->stream;
    for (int8_t *out = tile->out; out != tile->out_end; out++, stream += 4) {
        int32_t sums[RLX_OCTET];
        for (int32_t i = 0; i < RLX_OCTET; i++) {
            sums[i] = stream[0];
        }
        for (stream++; (uint32_t)*stream >= RLX_HEADER;) {
            uint32_t fields[4] = {0x8000u, 0x8000u, 0x8000u, 0x8000u};
            stream = rlx_octets_list(stream, tile->x, fields, 0u - 1u, RLX_TAP_BYTES);
            stream = rlx_octets_list(stream, tile->x, fields, 1, RLX_TAP_BYTES);
            for (int32_t i = 0; i < 4; i++) {
                sums[2 * i] += (int32_t)(fields[i] & 0xFFFFu) - 0x8000;
                sums[2 * i + 1] += (int32_t)fields[i] >> 16;
            }
        }
        const rlx_v6m_scale_t scale = {stream[1], stream[2], stream[3], stream[0]};
        for (int32_t i = 0; i < RLX_OCTET; i++) {
            out[tile->offsets[i]] = rlx_v6m_rescale(sums[i], &scale);
        }
    }
}
#endif

#endif
