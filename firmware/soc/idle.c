/* idle.c: sleep until a byte arrives. Receiving stays polled: the interrupt only wakes the core, and no handler runs.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define NVIC_ENABLE RLX_REG(0xE000E100u + 4u * (RLX_UART_IRQ / 32u))
#define NVIC_DISABLE RLX_REG(0xE000E180u + 4u * (RLX_UART_IRQ / 32u))
#define NVIC_CLEAR_PENDING RLX_REG(0xE000E280u + 4u * (RLX_UART_IRQ / 32u))
#define IRQ_BIT (1u << (RLX_UART_IRQ % 32u))

void rlx_soc_idle(void)
{
    /* With PRIMASK set, a pending interrupt ends WFI without being taken. A byte that has arrived since the last poll
     * has left its request pending, so that the core does not sleep. */
    __asm volatile("cpsid i" ::: "memory");
    NVIC_ENABLE = IRQ_BIT;
    __asm volatile("dsb\n\twfi" ::: "memory");
    NVIC_DISABLE = IRQ_BIT;
    rlx_uart_wake_done();
    NVIC_CLEAR_PENDING = IRQ_BIT;
    rlx_barrier();
    __asm volatile("cpsie i" ::: "memory");
}
