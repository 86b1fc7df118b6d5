/* rlx_mve.h: moving bytes on cores with MVE (Helium), and the same in plain C for the host.
 *
 * MVE instructions touch no memory for lanes that are switched off, so nothing here reads or writes a byte too many.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_MVE_H
#define RLX_MVE_H

#include <stdint.h>

/* What is not assembly is run once a row or a run: it had better be small. (It is integer code: the same bits.) */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__ARM_ARCH)
#pragma GCC optimize("Os")
#endif

/* The assembly is written for GNU C compilers. Without MVE, and on big-endian cores, the twins in C run. */
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN)
#define RLX_MVE 1
#include <arm_mve.h>
/* For functions of nothing but assembly: callers must not look into them. */
#if defined(__clang__)
#define RLX_NAKED __attribute__((naked, noinline, aligned(4)))
#define RLX_PREDICATE "cc" /* clang has no name for it, and keeps nothing in it across assembly */
#else
#define RLX_NAKED __attribute__((naked, noipa, aligned(4)))
#define RLX_PREDICATE "p0"
#endif
#else
#define RLX_MVE 0
#endif

/* Called from several places of a kernel that is to stay small. */
#if defined(__GNUC__)
#define RLX_ONCE __attribute__((noinline))
#else
#define RLX_ONCE
#endif

/* Bytes that one instruction moves, or multiplies and sums. */
#define RLX_MVE_BYTES 16

static inline void rlx_mve_fill(int8_t *to, int32_t value, int32_t bytes)
{
#if RLX_MVE
    __asm volatile("vdup.8 q0, %1\n\t"
                   "wlstp.8 lr, %2, 2f\n"
                   "1:\n\t"
                   "vstrb.8 q0, [%0], #16\n\t"
                   "letp lr, 1b\n"
                   "2:"
                   : "+r"(to)
                   : "r"(value), "r"(bytes)
                   : "q0", "lr", "memory");
#else
    for (int32_t i = 0; i < bytes; i++) {
        to[i] = (int8_t)value;
    }
#endif
}

static inline void rlx_mve_copy(int8_t *to, const int8_t *from, int32_t bytes)
{
#if RLX_MVE
    __asm volatile("wlstp.8 lr, %2, 2f\n"
                   "1:\n\t"
                   "vldrb.u8 q0, [%1], #16\n\t"
                   "vstrb.8 q0, [%0], #16\n\t"
                   "letp lr, 1b\n"
                   "2:"
                   : "+r"(to), "+r"(from)
                   : "r"(bytes)
                   : "q0", "lr", "memory");
#else
    for (int32_t i = 0; i < bytes; i++) {
        to[i] = from[i];
    }
#endif
}

/* `bytes` bytes in steps of `piece`; of each step's 16 bytes, as far as there are so many, byte i goes to
 * to + offsets[i]. Where piece < 16, the next step moves the bytes beyond it once more. */
static inline void rlx_mve_scatter(
    int8_t *to, int32_t to_step, const int8_t *from, int32_t piece, int32_t bytes, const uint8_t *offsets)
{
#if RLX_MVE
    __asm volatile("cmp %2, #0\n\t"
                   "ble 2f\n\t"
                   "vldrb.u8 q1, [%5]\n"
                   "1:\n\t"
                   "vctp.8 %2\n\t"
                   "vpstt\n\t"
                   "vldrbt.u8 q0, [%1]\n\t"
                   "vstrbt.8 q0, [%0, q1]\n\t"
                   "add %1, %1, %3\n\t"
                   "add %0, %0, %4\n\t"
                   "subs %2, %2, %3\n\t"
                   "bgt 1b\n"
                   "2:"
                   : "+r"(to), "+r"(from), "+r"(bytes)
                   : "r"(piece), "r"(to_step), "r"(offsets)
                   : "q0", "q1", RLX_PREDICATE, "cc", "memory");
#else
    for (; bytes > 0; bytes -= piece, from += piece, to += to_step) {
        for (int32_t i = 0; i < bytes && i < RLX_MVE_BYTES; i++) {
            to[offsets[i]] = from[i];
        }
    }
#endif
}

/* `count` >= 0 times `bytes` <= 16 bytes, from_step and to_step apart. */
static inline void rlx_mve_copy_pieces(
    int8_t *to, int32_t to_step, const int8_t *from, int32_t from_step, int32_t bytes, int32_t count)
{
#if RLX_MVE
    if (bytes == RLX_MVE_BYTES) {
        __asm volatile("wls lr, %4, 2f\n"
                       "1:\n\t"
                       "vldrb.u8 q0, [%1]\n\t"
                       "add %1, %1, %2\n\t"
                       "vstrb.8 q0, [%0]\n\t"
                       "add %0, %0, %3\n\t"
                       "le lr, 1b\n"
                       "2:"
                       : "+r"(to), "+r"(from)
                       : "r"(from_step), "r"(to_step), "r"(count)
                       : "q0", "lr", "cc", "memory");
        return;
    }
    __asm volatile("vctp.8 %5\n\t"
                   "wls lr, %4, 2f\n"
                   "1:\n\t"
                   "vpstt\n\t"
                   "vldrbt.u8 q0, [%1]\n\t"
                   "vstrbt.8 q0, [%0]\n\t"
                   "add %1, %1, %2\n\t"
                   "add %0, %0, %3\n\t"
                   "le lr, 1b\n"
                   "2:"
                   : "+r"(to), "+r"(from)
                   : "r"(from_step), "r"(to_step), "r"(count), "r"(bytes)
                   : "q0", RLX_PREDICATE, "lr", "cc", "memory");
#else
    for (; count > 0; count--, from += from_step, to += to_step) {
        for (int32_t i = 0; i < bytes; i++) {
            to[i] = from[i];
        }
    }
#endif
}

#endif
