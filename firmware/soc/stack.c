/* stack.c: how deep the stack has ever been, by painting it.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define PAINT 0xA5C35A3Cu

void rlx_soc_stack_paint(void)
{
    uintptr_t sp;
    __asm volatile("mov %0, sp" : "=r"(sp));
    /* volatile: these words are the stack itself, which the compiler must not reason about. */
    volatile uint32_t *word = __stack_limit;
    while ((uintptr_t)word < sp) {
        *word++ = PAINT;
    }
}

uint32_t rlx_soc_stack_unused(void)
{
    const volatile uint32_t *word = __stack_limit;
    while (word < __stack_top && *word == PAINT) {
        word++;
    }
    return (uint32_t)((uintptr_t)word - (uintptr_t)__stack_limit);
}
