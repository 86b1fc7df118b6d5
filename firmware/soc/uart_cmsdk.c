/* uart_cmsdk.c: the UART of Arm's Cortex-M System Design Kit (DDI 0479).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define UART_DATA RLX_REG(RLX_UART_BASE + 0x00u)
#define UART_STATE RLX_REG(RLX_UART_BASE + 0x04u)
#define UART_CTRL RLX_REG(RLX_UART_BASE + 0x08u)
#define UART_INTCLEAR RLX_REG(RLX_UART_BASE + 0x0Cu)
#define UART_BAUDDIV RLX_REG(RLX_UART_BASE + 0x10u)

#define STATE_TX_FULL 1u
#define STATE_RX_FULL 2u
#define STATE_RX_OVERRUN 8u /* a byte was lost; reception goes on. Written to clear it */

void rlx_uart_init(void)
{
    UART_BAUDDIV = RLX_UART_HZ / RLX_UART_BAUD;
    UART_CTRL = 0xBu; /* transmit, receive, receive interrupt */
}

uint32_t rlx_uart_take(uint8_t *data, uint32_t capacity)
{
    uint32_t count = 0;
    UART_INTCLEAR = 2u; /* before the reads: what arrives after them asks again */
    UART_STATE = STATE_RX_OVERRUN;
    while (count < capacity && (UART_STATE & STATE_RX_FULL) != 0u) {
        data[count++] = (uint8_t)UART_DATA;
    }
    return count;
}

void rlx_soc_uart_write(const uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        while ((UART_STATE & STATE_TX_FULL) != 0u) {
        }
        UART_DATA = data[i];
    }
}
