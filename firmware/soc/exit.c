/* exit.c: the end of a program that runs in an emulator.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#if RLX_SEMIHOSTING
#define SYS_EXIT_EXTENDED 0x20u
#define ADP_STOPPED_APPLICATION_EXIT 0x20026u

static void semihost_exit(uint32_t code)
{
    const uint32_t block[2] = {ADP_STOPPED_APPLICATION_EXIT, code};
    register uint32_t operation __asm("r0") = SYS_EXIT_EXTENDED;
    register const uint32_t *argument __asm("r1") = block;
    __asm volatile("bkpt 0xab" : "+r"(operation) : "r"(argument) : "memory");
}
#endif

void rlx_soc_exit(uint32_t code)
{
#if RLX_SEMIHOSTING
    semihost_exit(code);
#else
    (void)code;
#endif
    for (;;) {
    }
}
