/* rlx_octets_skip_v7m.h: eight positions times all output channels, by lists of the weights that are not 0, for Armv7-M.
 *
 * stream: rlx_octets_skip.h, where a channel begins with int32 the negated bias and ends with int32 e, int32 -m.
 * Proved by the generator: rlx_v7m.h's conditions.
 *
 * Registers of the assembly, beside those of rlx_octets_v7m.h: r4 to r7 words of x; r8 number; r9 numbers; r10 words
 * left; r12 reads x. 59 instructions for 8 taps that are not 0, that is 64 products.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_SKIP_V7M_H
#define RLX_OCTETS_SKIP_V7M_H

#include "rlx_octets_skip.h"
#include "rlx_octets_v7m.h"

#if RLX_V7M
#define RLX_TAP(at, op) \
    "ubfx r8, r9, #" at ", #4\n\t" \
    "add.w r12, r12, r8, lsl #4\n\t" \
    "ldm.w r12!, {r4-r7}\n\t" \
    op " r0, r0, r4\n\t" \
    op " r1, r1, r5\n\t" \
    op " r2, r2, r6\n\t" \
    op " r3, r3, r7\n\t"
/* A list; `done` comes after it. */
#define RLX_LIST(op, loop, end, done) \
    "ldr.w r8, [lr], #4\n\t" \
    "ubfx r10, r8, #8, #7\n\t" \
    "cmp.w r10, #0\n\t" \
    "beq.w " done "f\n\t" \
    "ldr.w r12, [r11, #72]\n\t" \
    "lsrs r4, r8, #16\n\t" \
    "add.w r12, r12, r4, lsl #4\n\t" \
    "uxtb.w r8, r8\n\t" \
    "adr.w r4, " end "f\n\t" \
    "sub.w r4, r4, r8\n\t" \
    "orr.w r4, r4, #1\n\t" \
    "ldr.w r9, [lr], #4\n\t" \
    "bx r4\n\t" \
    ".balign 4\n" \
    loop ":\n\t" \
    "ldr.w r9, [lr], #4\n\t" \
    RLX_TAP("0", op) RLX_TAP("4", op) RLX_TAP("8", op) RLX_TAP("12", op) \
    RLX_TAP("16", op) RLX_TAP("20", op) RLX_TAP("24", op) RLX_TAP("28", op) \
    end ":\n\t" \
    "subs.w r10, r10, #1\n\t" \
    "bne.w " loop "b\n" \
    done ":\n\t"

RLX_V7M_NAKED static void rlx_octets_tile(__attribute__((unused)) rlx_octet_t *tile)
{
    __asm__ volatile(
        "push {r4-r11, lr}\n\t"
        "mov r11, r0\n\t"
        "ldr r3, [r0, #64]\n\t"
        "push {r2, r3}\n\t" /* output */
        "ldr.w lr, [r0, #80]\n"
        "1:\n\t" /* a channel */
        "ldr.w r5, [lr], #4\n\t"
        RLX_BEGIN
        "2:\n\t" /* a run; fields are negated */
        RLX_LIST("adds", "3", "4", "5")
        RLX_LIST("subs", "6", "7", "8")
        "ldr.w r9, [lr], #4\n\t"
        "cmp.w r9, #512\n\t"
        "bhs.w 9f\n\t"
        "ldr.w r8, [lr], #4\n\t"
        RLX_ALL_OUTPUTS("1")
        "9:\n\t"
        RLX_FLUSH_ALL
        "sub.w lr, lr, #4\n\t"
        "b.w 2b\n\t");
}

#undef RLX_TAP
#undef RLX_LIST

#else /* the same in C */

enum { RLX_TAP_BYTES = 20 };

static void rlx_octets_tile(rlx_octet_t *tile)
{
    const int32_t *stream = tile->stream;
    for (int8_t *out = tile->out; out != tile->out_end; out++, stream += 2) {
        int32_t sums[RLX_OCTET];
        for (int32_t i = 0; i < RLX_OCTET; i++) {
            sums[i] = stream[0];
        }
        for (stream++; (uint32_t)*stream >= RLX_HEADER;) {
            uint32_t fields[4] = {0x8000u, 0x8000u, 0x8000u, 0x8000u};
            stream = rlx_octets_list(stream, tile->x, fields, 1, RLX_TAP_BYTES);
            stream = rlx_octets_list(stream, tile->x, fields, 0u - 1u, RLX_TAP_BYTES);
            for (int32_t i = 0; i < 4; i++) {
                sums[2 * i] += (int32_t)(fields[i] & 0xFFFFu) - 0x8000;
                sums[2 * i + 1] += (int32_t)fields[i] >> 16;
            }
        }
        for (int32_t i = RLX_OCTET - 1; i >= 0; i--) {
            out[tile->offsets[i]] = rlx_v7m_requantize_any(sums[i], stream[1], stream[0], tile->c);
        }
    }
}
#endif

#endif
