/* uart_stm32.c: the USART of STM32F1, F2 and F4 (RM0041 chapter 23, RM0090 chapter 30).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define USART_SR RLX_REG(RLX_UART_BASE + 0x00u)
#define USART_DR RLX_REG(RLX_UART_BASE + 0x04u)
#define USART_BRR RLX_REG(RLX_UART_BASE + 0x08u)
#define USART_CR1 RLX_REG(RLX_UART_BASE + 0x0Cu)

#define SR_ORE (1u << 3)
#define SR_RXNE (1u << 5)
#define SR_TXE (1u << 7)
#define CR1_RXNEIE (1u << 5)
#define CR1_UE_TE_RE ((1u << 13) | (1u << 3) | (1u << 2))

void rlx_uart_init(void)
{
    USART_BRR = (RLX_UART_HZ + RLX_UART_BAUD / 2u) / RLX_UART_BAUD;
    USART_CR1 = CR1_UE_TE_RE | CR1_RXNEIE;
}

/* ORE, a byte was lost, asks for the interrupt like RXNE, and ends when DR is read after SR. It can be set alone: when
 * the byte was lost between the two reads. Left set, it would interrupt for ever. */
uint32_t rlx_uart_take(uint8_t *data, uint32_t capacity)
{
    uint32_t count = 0;
    uint32_t state = USART_SR;
    while (count < capacity && (state & (SR_RXNE | SR_ORE)) != 0u) {
        data[count] = (uint8_t)USART_DR;
        count += (state & SR_RXNE) != 0u ? 1u : 0u;
        state = USART_SR;
    }
    return count;
}

void rlx_soc_uart_write(const uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        while ((USART_SR & SR_TXE) == 0u) {
        }
        USART_DR = data[i];
    }
}
