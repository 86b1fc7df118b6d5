/* startup.c: from reset to main().
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

extern int main(void);
extern uint32_t __data_start[], __data_end[], __bss_start[], __bss_end[], __arena_start[], __arena_end[];
extern const uint32_t __data_load[];

void rlx_reset_handler(void);
void rlx_start(void);
void rlx_fault_entry(void);
void rlx_systick_handler(void);

/* Replaced by counter_systick.c on chips that count with SysTick. */
__attribute__((weak)) void rlx_systick_handler(void) {}

/* The processor's own exceptions. The UART's interrupt, in images that receive: receive.c. */
typedef struct {
    uint32_t *stack_top;
    rlx_handler_t reset;
    rlx_handler_t faults[5]; /* NMI, HardFault, MemManage, BusFault, UsageFault */
    rlx_handler_t secure_fault;
    rlx_handler_t reserved[3];
    rlx_handler_t others[4]; /* SVCall, DebugMonitor, reserved, PendSV */
    rlx_handler_t systick;
} vectors_t;

__attribute__((section(".vectors"), used)) static const vectors_t vectors = {
    .stack_top = __stack_top,
    .reset = rlx_reset_handler,
    .faults = {rlx_fault_entry, rlx_fault_entry, rlx_fault_entry, rlx_fault_entry, rlx_fault_entry},
    .secure_fault = rlx_fault_entry,
    .reserved = {0, 0, 0},
    .others = {rlx_fault_entry, rlx_fault_entry, rlx_fault_entry, rlx_fault_entry},
    .systick = rlx_systick_handler,
};

/* Sets the stack pointer itself, so that a debugger or a boot loader may jump here too. */
__attribute__((naked)) void rlx_reset_handler(void)
{
    __asm volatile("ldr r0, =__stack_top\n\t"
                   "mov sp, r0\n\t"
                   "ldr r0, =rlx_start\n\t"
                   "bx r0\n\t"
                   ".ltorg");
}

/* Must come before any code that the compiler may have vectorized. */
static void enable_coprocessors(void)
{
#if defined(__ARM_FP)
    SCB_CPACR |= 0xFu << 20; /* CP10, CP11: FPU and MVE */
#endif
#if defined(__ARM_FEATURE_MVE)
    SCB_CCR |= 1u << 19; /* LOB: the loop cache of low-overhead loops */
#endif
    rlx_barrier();
}

/* The stack lies lowest in its RAM, so a stack that grows too deep leaves the RAM. Where nothing lies below, that is a
 * fault already; but some buses swallow such writes, so the core is told to refuse them. */
static void guard_stack(void)
{
#if RLX_HAS_MSPLIM
    __asm volatile("msr msplim, %0" ::"r"(__stack_limit));
#elif RLX_MAY_HAVE_MPU
    if (((MPU_TYPE >> 8) & 0xFFu) != 0u) {
        MPU_RNR = 0u;
        MPU_RBAR = ((uint32_t)(uintptr_t)__stack_limit - 0x10000u) & 0xFFFF0000u;
        MPU_RASR = (1u << 28) | (15u << 1) | 1u; /* never execute, no access, 2^(15+1) bytes, enabled */
        MPU_CTRL = 5u; /* enabled; everything else as without MPU; off in the fault handler */
        rlx_barrier();
    }
#endif
}

__attribute__((noinline)) static void copy_words(uint32_t *to, const uint32_t *end, const uint32_t *from)
{
    while (to < end) {
        *to++ = *from++;
    }
}

__attribute__((noinline)) static void zero_words(uint32_t *to, const uint32_t *end)
{
    while (to < end) {
        *to++ = 0u;
    }
}

void rlx_start(void)
{
    enable_coprocessors();
    guard_stack();
#if RLX_MAINLINE
    SCB_VTOR = (uint32_t)(uintptr_t)&vectors;
#endif
#if RLX_CORE_CACHES
    rlx_caches_enable();
#endif
    copy_words(__data_start, __data_end, __data_load);
    zero_words(__bss_start, __bss_end);
    zero_words(__arena_start, __arena_end);
    rlx_soc_init();
    rlx_soc_exit((uint32_t)main());
}
