/* reset_cause_stm32.c: RCC_CSR, whose flags are alike on STM32F1 and F4 (RM0041 6.3.10, RM0090 7.3.21).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define RCC_CSR RLX_REG(RLX_RESET_CAUSE_REGISTER)

#define CSR_RMVF (1u << 24)
#define CSR_PIN (1u << 26)
#define CSR_POWER (1u << 27)
#define CSR_SOFTWARE (1u << 28)
#define CSR_WATCHDOGS (3u << 29)

/* The chip pulls its own reset line on every reset, so the pin's flag counts only when it stands alone. */
uint32_t rlx_chip_reset_cause(void)
{
    const uint32_t flags = RCC_CSR;
    RCC_CSR = flags | CSR_RMVF;
    if ((flags & CSR_WATCHDOGS) != 0u) {
        return RLX_RESET_WATCHDOG;
    }
    if ((flags & CSR_SOFTWARE) != 0u) {
        return RLX_RESET_SOFTWARE;
    }
    if ((flags & CSR_POWER) != 0u) {
        return RLX_RESET_POWER_ON;
    }
    return (flags & CSR_PIN) != 0u ? RLX_RESET_PIN : RLX_RESET_UNKNOWN;
}
