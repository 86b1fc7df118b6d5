/* rlx_f32.h: float32 on the FPU, with the same bits under any compiler flags.
 *
 * A step is one sum or one product, and RLX_F32_STEP(v) after it hides from the compiler how v came about: it can then
 * neither fuse a multiply-add, nor reorder sums, nor compute in another precision, whatever -Ofast or -ffp-contract
 * allow. rlx_f32_begin() and rlx_f32_end() put the FPU into its reset state meanwhile (nearest, ties to even; small
 * numbers are not flushed to zero). Cores without an FPU take the compiler's own routines, which give the same bits.
 * Which NaN an FPU makes differs: results go through rlx_f32_bounded, which makes it always the same.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_F32_H
#define RLX_F32_H

#include <stdint.h>

#if defined(__GNUC__) && defined(__arm__) && defined(__ARM_FP)
#define RLX_F32_STEP(v) __asm__("" : "+t"(v))
#elif defined(__GNUC__) && defined(__x86_64__)
#define RLX_F32_STEP(v) __asm__("" : "+x"(v))
#elif defined(__GNUC__) && defined(__aarch64__)
#define RLX_F32_STEP(v) __asm__("" : "+w"(v))
#elif defined(__GNUC__)
#define RLX_F32_STEP(v) __asm__("" : "+m"(v))
#else
#define RLX_F32_STEP(v) ((v) = *(volatile float *)&(v))
#endif

/* Numbers in memory that was declared as bytes. */
#if defined(__GNUC__)
typedef float __attribute__((may_alias)) rlx_f32_t;
#else
typedef float rlx_f32_t;
#endif

static inline float rlx_f32_of_bits(int32_t bits)
{
    union {
        int32_t bits;
        float value;
    } number;
    number.bits = bits;
    return number.value;
}

/* Loads and stores of memory do not cross these two, and so the steps between them do not either. */
static inline uint32_t rlx_f32_begin(void)
{
    uint32_t before = 0;
#if defined(__GNUC__) && defined(__arm__) && defined(__ARM_FP)
    __asm__ volatile("vmrs %0, fpscr" : "=r"(before) : : "memory");
    __asm__ volatile("vmsr fpscr, %0" : : "r"(before & ~0x01C00000u) : "memory"); /* FZ, RMode */
#elif defined(__GNUC__) && defined(__x86_64__)
    __asm__ volatile("stmxcsr %0" : "=m"(before) : : "memory");
    const uint32_t plain = before & ~0x0000E040u; /* FTZ, RC, DAZ */
    __asm__ volatile("ldmxcsr %0" : : "m"(plain) : "memory");
#elif defined(__GNUC__) && defined(__aarch64__)
    uint64_t held;
    __asm__ volatile("mrs %0, fpcr" : "=r"(held) : : "memory");
    before = (uint32_t)held;
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)(before & ~0x01C00000u)) : "memory"); /* FZ, RMode */
#endif
    return before;
}

static inline void rlx_f32_end(uint32_t before)
{
#if defined(__GNUC__) && defined(__arm__) && defined(__ARM_FP)
    __asm__ volatile("vmsr fpscr, %0" : : "r"(before) : "memory");
#elif defined(__GNUC__) && defined(__x86_64__)
    __asm__ volatile("ldmxcsr %0" : : "m"(before) : "memory");
#elif defined(__GNUC__) && defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)before) : "memory");
#else
    (void)before;
#endif
}

/* Bits of a float32 to an integer that compares as the number does, -0 before 0; and back. */
static inline int32_t rlx_f32_ordered(int32_t bits)
{
    return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

/* The bits of a number within bounds, which are given as ordered integers; any NaN as 0x7FC00000. */
static inline int32_t rlx_f32_bounded(float value, int32_t low, int32_t high)
{
    union {
        float value;
        int32_t bits;
    } number;
    number.value = value;
    if ((number.bits & 0x7FFFFFFF) > 0x7F800000) {
        return 0x7FC00000;
    }
    int32_t key = rlx_f32_ordered(number.bits);
    key = key < low ? low : key;
    key = key > high ? high : key;
    return rlx_f32_ordered(key);
}

#endif
