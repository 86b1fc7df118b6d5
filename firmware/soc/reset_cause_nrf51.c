/* reset_cause_nrf51.c: POWER.RESETREAS of the nRF51 (nRF51 Series Reference Manual, chapter 12).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define POWER_RESETREAS RLX_REG(0x40000400u)

uint32_t rlx_chip_reset_cause(void)
{
    const uint32_t reasons = POWER_RESETREAS;
    POWER_RESETREAS = reasons; /* written ones are cleared */
    if ((reasons & 2u) != 0u) {
        return RLX_RESET_WATCHDOG;
    }
    if ((reasons & 1u) != 0u) {
        return RLX_RESET_PIN;
    }
    return (reasons & 4u) != 0u ? RLX_RESET_SOFTWARE : RLX_RESET_UNKNOWN;
}
