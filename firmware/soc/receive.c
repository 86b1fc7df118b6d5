/* receive.c: received bytes go into a ring, by interrupt, so that none are lost while the core works on others.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define NVIC_ENABLE RLX_REG(0xE000E100u + 4u * (RLX_UART_IRQ / 32u))
#define NVIC_DISABLE RLX_REG(0xE000E180u + 4u * (RLX_UART_IRQ / 32u))
#define IRQ_BIT (1u << (RLX_UART_IRQ % 32u))

#if (RLX_UART_RING_BYTES & (RLX_UART_RING_BYTES - 1u)) != 0
#error "RLX_UART_RING_BYTES must be a power of two"
#endif

/* Bytes ever put in and taken out, modulo 2^32. */
static uint8_t ring[RLX_UART_RING_BYTES];
static volatile uint32_t put, taken;

void rlx_uart_handler(void);

/* Follows the vector table (startup.c) in images that receive, and in no others: only rlx_soc_uart_read() names it. */
__attribute__((section(".vectors.interrupts"))) static const rlx_handler_t interrupts[RLX_UART_IRQ + 1u] = {
    [RLX_UART_IRQ] = rlx_uart_handler,
};

/* The UART's interrupt. With a full ring it stops asking, until rlx_soc_uart_read() has made room: what the UART then
 * holds back, or loses, is its affair. */
void rlx_uart_handler(void)
{
    uint32_t room = RLX_UART_RING_BYTES - (put - taken);
    uint32_t count = 1u;
    while (room != 0u && count != 0u) {
        const uint32_t at = put % RLX_UART_RING_BYTES;
        const uint32_t ahead = RLX_UART_RING_BYTES - at;
        count = rlx_uart_take(ring + at, room < ahead ? room : ahead);
        put += count;
        room -= count;
    }
    if (room == 0u) {
        NVIC_DISABLE = IRQ_BIT;
    }
}

uint32_t rlx_soc_uart_read(uint8_t *data, uint32_t capacity)
{
    uint32_t count = 0;
    __asm volatile("cpsid i" ::"r"(interrupts) : "memory");
    rlx_uart_handler();
    while (count < capacity && taken != put) {
        data[count++] = ring[taken++ % RLX_UART_RING_BYTES];
    }
    NVIC_ENABLE = IRQ_BIT;
    __asm volatile("cpsie i" ::: "memory");
    return count;
}

void rlx_soc_uart_pause(void)
{
    NVIC_DISABLE = IRQ_BIT;
    rlx_barrier();
}

void rlx_soc_idle(void)
{
    /* With PRIMASK set, an interrupt ends WFI and is taken after it. One that came since the last read has filled the
     * ring, so that the core does not sleep. */
    __asm volatile("cpsid i" ::: "memory");
    if (put == taken) {
        __asm volatile("dsb\n\twfi" ::: "memory");
    }
    __asm volatile("cpsie i" ::: "memory");
}
