/* rlx_octets_v7m.h: what the kernels of rlx_octets.h share on Armv7-M (Cortex-M3): words of x, fields, outputs.
 *
 * Fields. A register starts at 2^15; with s_0 and s_1 the two sums of a run's products it then holds
 * 2^15 - s_0 - (s_1 << 16) modulo 2^32. As -2^15 < s < 2^15, its lower half is 2^15 - s_0 and its upper half, with its
 * sign, -s_1: what the requantization wants (rlx_v7m.h).
 *
 * Registers of the assembly: r0 to r3 fields; r11 the tile; lr reads the stream.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_V7M_H
#define RLX_OCTETS_V7M_H

#include "rlx_octets.h"
#include "rlx_v7m.h"

#if RLX_V7M
/* The sums of a channel whose negated bias is in r5, and its fields; r4 is lost. */
#define RLX_BEGIN \
    "sub.w r4, r5, #0x8000\n\t" \
    "strd r4, r5, [r11]\n\t" \
    "strd r4, r5, [r11, #8]\n\t" \
    "strd r4, r5, [r11, #16]\n\t" \
    "strd r4, r5, [r11, #24]\n\t" \
    RLX_CLEAR
#define RLX_CLEAR \
    "mov.w r0, #0x8000\n\t" \
    "mov r1, r0\n\t" \
    "mov r2, r0\n\t" \
    "mov r3, r0\n\t"
/* Fields of a run that is not the last one, to sums at `lo` and the next word. */
#define RLX_FLUSH(f, lo) \
    "ldrd r4, r5, [r11, #" lo "]\n\t" \
    "uxth r6, " f "\n\t" \
    "sub.w r6, r6, #0x8000\n\t" \
    "add r4, r6\n\t" \
    "add.w r5, r5, " f ", asr #16\n\t" \
    "strd r4, r5, [r11, #" lo "]\n\t"
#define RLX_FLUSH_ALL \
    RLX_FLUSH("r0", "0") RLX_FLUSH("r1", "8") RLX_FLUSH("r2", "16") RLX_FLUSH("r3", "24") \
    RLX_CLEAR
/* The outputs of the two positions of a field. r8 = -m, r9 = e, r12 = c << e, r7 output; the first one's place is
 * r7 + `first`, which is lost. */
#define RLX_OUTPUTS(f, lo, low_offset, high_offset) \
    "ldrd r4, r5, [r11, #" lo "]\n\t" \
    "uxth r6, " f "\n\t" \
    "add r4, r6\n\t" \
    "add.w r5, r5, " f ", asr #16\n\t" \
    "ldr.w " f ", [r11, #" high_offset "]\n\t" \
    RLX_V7M_REQUANTIZE("r5", "r8", "r9", "r12", "r6", "[r7, " f "]") \
    "ldr.w " f ", [r11, #" low_offset "]\n\t" \
    RLX_V7M_REQUANTIZE("r4", "r8", "r9", "r12", "r6", "[r7, " f "]")
/* The accumulators of a field where the sums were. */
#define RLX_KEEP(f, lo) \
    "ldrd r4, r5, [r11, #" lo "]\n\t" \
    "uxth r6, " f "\n\t" \
    "add r4, r6\n\t" \
    "add.w r5, r5, " f ", asr #16\n\t" \
    "strd r4, r5, [r11, #" lo "]\n\t"
/* All outputs of a channel with -m in r8 and e in r9; [sp, #4] is their place, which moves on. Large scales are rare
 * enough for a loop; r0 counts. `channel` is where the next one begins. */
#define RLX_ALL_OUTPUTS(channel) \
    "ldr.w r12, [r11, #88]\n\t" \
    "lsl.w r12, r12, r9\n\t" \
    "ldr r7, [sp, #4]\n\t" \
    "tst.w r9, #256\n\t" \
    "bne.w 20f\n\t" \
    RLX_OUTPUTS("r3", "24", "56", "60") \
    RLX_OUTPUTS("r2", "16", "48", "52") \
    RLX_OUTPUTS("r1", "8", "40", "44") \
    RLX_OUTPUTS("r0", "0", "32", "36") \
    "21:\n\t" \
    "adds r7, #1\n\t" \
    "str r7, [sp, #4]\n\t" \
    "ldr.w r4, [r11, #68]\n\t" \
    "cmp r7, r4\n\t" \
    "bne.w " channel "b\n\t" \
    "pop {r2, r3}\n\t" \
    "pop {r4-r11, pc}\n" \
    "20:\n\t" \
    RLX_KEEP("r0", "0") RLX_KEEP("r1", "8") RLX_KEEP("r2", "16") RLX_KEEP("r3", "24") \
    "movs r0, #0\n" \
    "22:\n\t" \
    "ldr.w r1, [r11, r0]\n\t" \
    "lsls r1, r1, #8\n\t" \
    "smull r2, r1, r1, r8\n\t" \
    "sub.w r1, r1, r12\n\t" \
    "asr.w r1, r1, r9\n\t" \
    "ssat r1, #8, r1, asr #1\n\t" \
    "add.w r2, r11, r0\n\t" \
    "ldr r2, [r2, #32]\n\t" \
    "strb r1, [r7, r2]\n\t" \
    "adds r0, #4\n\t" \
    "cmp r0, #32\n\t" \
    "bne 22b\n\t" \
    "b 21b\n\t"
#endif

static RLX_OCTETS_SMALL void rlx_octets_widen(int32_t *to, const int8_t *const *lines, int32_t n)
{
    const int8_t *a = lines[0], *b = lines[1], *c = lines[2], *d = lines[3];
#if RLX_V7M && defined(__OPTIMIZE__)
    int32_t s, t, u;
    __asm__ volatile(
        "b 2f\n"
        "1:\n\t"
        ".rept 4\n\t"
        "ldrsb %[s], [%[a]], #1\n\t"
        "ldrsb %[t], [%[b]], #1\n\t"
        "add %[s], %[s], %[t], lsl #16\n\t"
        "ldrsb %[t], [%[c]], #1\n\t"
        "ldrsb %[u], [%[d]], #1\n\t"
        "add %[t], %[t], %[u], lsl #16\n\t"
        "strd %[s], %[t], [%[to]], #16\n\t"
        ".endr\n"
        "2:\n\t"
        "subs %[n], %[n], #4\n\t"
        "bpl 1b"
        : [to] "+r"(to), [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [n] "+r"(n), [s] "=&r"(s), [t] "=&r"(t),
          [u] "=&r"(u)
        :
        : "cc", "memory");
    n += 4;
#endif
    for (; n > 0; n--, to += 4) {
        to[0] = (int32_t)((uint32_t)*a++ + ((uint32_t)*b++ << 16));
        to[1] = (int32_t)((uint32_t)*c++ + ((uint32_t)*d++ << 16));
    }
}

#endif
