/* fault.c: every fault becomes a record for the application, then a reset.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define CFSR_MSTKERR (1u << 4)
#define CFSR_STKERR (1u << 12)
#define CFSR_STKOF (1u << 20)

void rlx_fault_entry(void);
void rlx_fault_report(const uint32_t *frame, uint32_t exc_return);

/* After a stack overflow there is no room left for a handler: it starts again at the top of the stack, which
 * overwrites what the faulting code had there. 512 bytes are enough for rlx_fault_report and the UART's driver. */
__attribute__((naked)) void rlx_fault_entry(void)
{
    __asm volatile("mov r0, sp\n\t"
                   "mov r1, lr\n\t"
                   "ldr r2, =__stack_limit + 512\n\t"
                   "cmp r0, r2\n\t"
                   "bhs 1f\n\t"
                   "ldr r2, =__stack_top\n\t"
                   "mov sp, r2\n\t"
                   "1:\n\t"
                   "ldr r2, =rlx_fault_report\n\t"
                   "bx r2\n\t"
                   ".ltorg");
}

static int frame_is_saved(const uint32_t *frame, uint32_t cfsr)
{
    const uint32_t *const end = frame + 8;
    return frame >= __stack_limit && end <= __stack_top && (cfsr & (CFSR_MSTKERR | CFSR_STKERR | CFSR_STKOF)) == 0u;
}

/* frame: r0, r1, r2, r3, r12, lr, pc, psr as the core saved them, then 18 words of FPU state if bit 4 of exc_return
 * is clear. */
void rlx_fault_report(const uint32_t *frame, uint32_t exc_return)
{
    rlx_fault_t fault = {.sp = (uint32_t)(uintptr_t)frame};
    rlx_boot_mark_fault(); /* first: the application's part may fail as well */
#if RLX_MAINLINE
    fault.cfsr = SCB_CFSR;
    fault.hfsr = SCB_HFSR;
    fault.bfar = SCB_BFAR;
#endif
    if (frame_is_saved(frame, fault.cfsr)) {
        fault.r0 = frame[0];
        fault.lr = frame[5];
        fault.pc = frame[6];
        fault.psr = frame[7];
        fault.sp += (exc_return & (1u << 4)) != 0u ? 32u : 104u;
        fault.sp += (fault.psr & (1u << 9)) != 0u ? 4u : 0u; /* padding to 8 bytes */
    }
    rlx_app_fault(&fault);
    rlx_soc_reset();
}
