/* uart_nrf51.c: the UART of Nordic's nRF51 (nRF51 Series Reference Manual, chapter 29) and nRF52.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define UART_STARTRX RLX_REG(RLX_UART_BASE + 0x000u)
#define UART_STARTTX RLX_REG(RLX_UART_BASE + 0x008u)
#define UART_RXDRDY RLX_REG(RLX_UART_BASE + 0x108u)
#define UART_TXDRDY RLX_REG(RLX_UART_BASE + 0x11Cu)
#define UART_INTENSET RLX_REG(RLX_UART_BASE + 0x304u)
#define UART_ENABLE RLX_REG(RLX_UART_BASE + 0x500u)
#define UART_PSELTXD RLX_REG(RLX_UART_BASE + 0x50Cu)
#define UART_PSELRXD RLX_REG(RLX_UART_BASE + 0x514u)
#define UART_RXD RLX_REG(RLX_UART_BASE + 0x518u)
#define UART_TXD RLX_REG(RLX_UART_BASE + 0x51Cu)
#define UART_BAUDRATE RLX_REG(RLX_UART_BASE + 0x524u)

/* The register holds baud * 2^32 / 16 MHz, of which the chip keeps the upper 20 bits. */
#define BAUDRATE (((uint32_t)(((uint64_t)RLX_UART_BAUD << 32) / RLX_UART_HZ) + 0x800u) & 0xFFFFF000u)

void rlx_uart_init(void)
{
    UART_PSELTXD = RLX_UART_TX_PIN;
    UART_PSELRXD = RLX_UART_RX_PIN;
    UART_BAUDRATE = BAUDRATE;
    UART_ENABLE = 4u;
    UART_RXDRDY = 0u;
    UART_INTENSET = 4u; /* RXDRDY */
    UART_STARTTX = 1u;
    UART_STARTRX = 1u;
}

/* The interrupt's request ends when RXDRDY is cleared. After an overrun (ERRORSRC bit 0) bytes arrive as before: there
 * is nothing to clear. */
uint32_t rlx_uart_take(uint8_t *data, uint32_t capacity)
{
    uint32_t count = 0;
    while (count < capacity && UART_RXDRDY != 0u) {
        UART_RXDRDY = 0u; /* before the read, which may raise it again: the receiver holds six bytes */
        data[count++] = (uint8_t)UART_RXD;
    }
    return count;
}

void rlx_soc_uart_write(const uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        UART_TXDRDY = 0u;
        UART_TXD = data[i];
        while (UART_TXDRDY == 0u) {
        }
    }
}
