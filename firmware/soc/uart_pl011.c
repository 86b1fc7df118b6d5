/* uart_pl011.c: Arm's PrimeCell UART (DDI 0183), as in RP2040 and RP2350.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define UART_DR RLX_REG(RLX_UART_BASE + 0x00u)
#define UART_FR RLX_REG(RLX_UART_BASE + 0x18u)
#define UART_IBRD RLX_REG(RLX_UART_BASE + 0x24u)
#define UART_FBRD RLX_REG(RLX_UART_BASE + 0x28u)
#define UART_LCR_H RLX_REG(RLX_UART_BASE + 0x2Cu)
#define UART_CR RLX_REG(RLX_UART_BASE + 0x30u)
#define UART_IFLS RLX_REG(RLX_UART_BASE + 0x34u)
#define UART_IMSC RLX_REG(RLX_UART_BASE + 0x38u)

#define FR_RXFE (1u << 4)
#define FR_TXFF (1u << 5)
#define LCR_H_8N1_FIFO ((3u << 5) | (1u << 4)) /* 32 bytes each way */
#define CR_ON ((1u << 0) | (1u << 8) | (1u << 9))
#define IMSC_RX_AND_TIMEOUT ((1u << 4) | (1u << 6))

/* The clock over 16 times the baud rate, in units of 1/64. */
#define DIVIDER ((uint32_t)(((uint64_t)RLX_UART_HZ * 4u + RLX_UART_BAUD / 2u) / RLX_UART_BAUD))

void rlx_uart_init(void)
{
    UART_CR = 0u;
    UART_IBRD = DIVIDER >> 6;
    UART_FBRD = DIVIDER & 0x3Fu;
    UART_LCR_H = LCR_H_8N1_FIFO; /* also takes over the divider */
    UART_IFLS = 0u;              /* interrupts at four bytes, or when the line then rests for four */
    UART_IMSC = IMSC_RX_AND_TIMEOUT;
    UART_CR = CR_ON;
}

/* The interrupt's request ends when the bytes are read. An overrun (bit 11 of what is read) drops what arrives while
 * the queue is full, and ends by itself when there is room. */
uint32_t rlx_uart_take(uint8_t *data, uint32_t capacity)
{
    uint32_t count = 0;
    while (count < capacity && (UART_FR & FR_RXFE) == 0u) {
        data[count++] = (uint8_t)UART_DR;
    }
    return count;
}

void rlx_soc_uart_write(const uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        while ((UART_FR & FR_TXFF) != 0u) {
        }
        UART_DR = data[i];
    }
}
