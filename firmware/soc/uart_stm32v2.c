/* uart_stm32v2.c: the USART and LPUART of STM32L4, H7 and U5 (RM0432 chapters 46 and 47, RM0433 48, RM0456 66).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define USART_CR1 RLX_REG(RLX_UART_BASE + 0x00u)
#define USART_BRR RLX_REG(RLX_UART_BASE + 0x0Cu)
#define USART_ISR RLX_REG(RLX_UART_BASE + 0x1Cu)
#define USART_ICR RLX_REG(RLX_UART_BASE + 0x20u)
#define USART_RDR RLX_REG(RLX_UART_BASE + 0x24u)
#define USART_TDR RLX_REG(RLX_UART_BASE + 0x28u)

#define CR1_UE_TE_RE ((1u << 0) | (1u << 3) | (1u << 2))
#define CR1_RXNEIE (1u << 5)
#define CR1_FIFOEN (1u << 29)
#define ISR_ORE (1u << 3)
#define ISR_RXNE (1u << 5)
#define ISR_TXE (1u << 7)
#define ICR_ORECF (1u << 3)

/* An LPUART's divider holds 256 times the quotient. */
#define DIVIDER ((uint32_t)(((uint64_t)RLX_UART_HZ * RLX_UART_DIVIDER_SCALE + RLX_UART_BAUD / 2u) / RLX_UART_BAUD))

void rlx_uart_init(void)
{
    USART_BRR = DIVIDER;
    USART_CR1 = CR1_FIFOEN; /* may only change while UE is 0; eight bytes */
    USART_CR1 = CR1_FIFOEN | CR1_UE_TE_RE | CR1_RXNEIE;
}

uint32_t rlx_uart_take(uint8_t *data, uint32_t capacity)
{
    uint32_t count = 0;
    if ((USART_ISR & ISR_ORE) != 0u) {
        USART_ICR = ICR_ORECF; /* a byte was lost; left set, it would interrupt for ever */
    }
    while (count < capacity && (USART_ISR & ISR_RXNE) != 0u) {
        data[count++] = (uint8_t)USART_RDR;
    }
    return count;
}

void rlx_soc_uart_write(const uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        while ((USART_ISR & ISR_TXE) == 0u) {
        }
        USART_TDR = data[i];
    }
}
