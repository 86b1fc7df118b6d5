/* reset_cause_flags.c: why the chip started, by its own record: one register, whose flags the chip's file names.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define RESET_CAUSE RLX_REG(RLX_RESET_CAUSE_ADDRESS)

/* Chips pull their own reset line on other resets too (STM32), and power-on sets most flags, so the order matters. */
uint32_t rlx_chip_reset_cause(void)
{
    const uint32_t flags = RESET_CAUSE;
#if RLX_RESET_CAUSE_CLEAR != 0
    RESET_CAUSE = flags | RLX_RESET_CAUSE_CLEAR;
#endif
    if ((flags & RLX_RESET_CAUSE_WATCHDOG) != 0u) {
        return RLX_RESET_WATCHDOG;
    }
    if ((flags & RLX_RESET_CAUSE_SOFTWARE) != 0u) {
        return RLX_RESET_SOFTWARE;
    }
    if ((flags & RLX_RESET_CAUSE_POWER_ON) != 0u) {
        return RLX_RESET_POWER_ON;
    }
    return (flags & RLX_RESET_CAUSE_PIN) != 0u ? RLX_RESET_PIN : RLX_RESET_UNKNOWN;
}
