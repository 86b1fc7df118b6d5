/* caches.c: the instruction and data cache of the Cortex-M7 (Armv7-M Architecture Reference Manual, B2.2 and B4.8).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define CCSIDR RLX_REG(0xE000ED80u)
#define CSSELR RLX_REG(0xE000ED84u)
#define ICIALLU RLX_REG(0xE000EF50u)
#define DCISW RLX_REG(0xE000EF60u)

#define CCR_DC (1u << 16)
#define CCR_IC (1u << 17)
#define WAY_SHIFT 30u /* four ways */
#define SET_SHIFT 5u  /* lines of 32 bytes */

/* Both hold anything after a reset, so they are emptied before they are used. */
static void empty_data_cache(void)
{
    CSSELR = 0u; /* level 1, data */
    rlx_barrier();
    const uint32_t last_set = (CCSIDR >> 13) & 0x7FFFu;
    const uint32_t last_way = (CCSIDR >> 3) & 0x3FFu;
    for (uint32_t set = 0; set <= last_set; set++) {
        for (uint32_t way = 0; way <= last_way; way++) {
            DCISW = (way << WAY_SHIFT) | (set << SET_SHIFT);
        }
    }
    rlx_barrier();
}

void rlx_caches_enable(void)
{
    if ((SCB_CCR & CCR_IC) == 0u) {
        ICIALLU = 0u;
        rlx_barrier();
        SCB_CCR |= CCR_IC;
    }
    if ((SCB_CCR & CCR_DC) == 0u) {
        empty_data_cache();
        SCB_CCR |= CCR_DC;
    }
    rlx_barrier();
}
