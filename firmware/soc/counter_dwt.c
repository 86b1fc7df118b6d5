/* counter_dwt.c: counting core cycles with the DWT's CYCCNT (Armv7-M Architecture Reference Manual, C1.8), 32 bits up.
 *
 * SysTick runs beside it. It supplies the bits above the 32, and all of them where CYCCNT is absent or stands still, as
 * it does in QEMU 7.2.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "systick.h"

#define DEMCR RLX_REG(0xE000EDFCu)
#define DWT_CTRL RLX_REG(0xE0001000u)
#define DWT_CYCCNT RLX_REG(0xE0001004u)
#define DWT_LAR RLX_REG(0xE0001FB0u)

#define DEMCR_TRCENA (1u << 24)
#define CTRL_CYCCNTENA (1u << 0)
#define CTRL_NOCYCCNT (1u << 25)
#define LAR_KEY 0xC5ACCE55u /* the Cortex-M7's DWT is locked until this is written; others ignore it */

static uint32_t cyccnt_counts;
static uint32_t first_cycle;

static void prepare(void)
{
    cyccnt_counts = 0u;
    DEMCR |= DEMCR_TRCENA;
    rlx_barrier();
    DWT_LAR = LAR_KEY;
    if ((DWT_CTRL & CTRL_NOCYCCNT) != 0u) {
        return;
    }
    DWT_CTRL |= CTRL_CYCCNTENA;
    rlx_barrier();
    const uint32_t before = DWT_CYCCNT;
    rlx_barrier();
    cyccnt_counts = DWT_CYCCNT != before ? 1u : 0u;
}

/* start() and stop() out of line: what an empty region costs is then the same in rlx_counter_init() as elsewhere. */
__attribute__((noinline)) static void start(void)
{
    systick_start();
    if (cyccnt_counts != 0u) {
        first_cycle = DWT_CYCCNT;
    }
}

__attribute__((noinline)) static uint64_t stop(void)
{
    const uint32_t last_cycle = cyccnt_counts != 0u ? DWT_CYCCNT : 0u;
    const uint64_t ticks = systick_stop();
    if (cyccnt_counts == 0u) {
        return ticks;
    }
    /* Of all numbers with these 32 low bits, the one nearest to what SysTick counted. */
    const uint32_t more = last_cycle - first_cycle - (uint32_t)ticks;
    return more < 0x80000000u ? ticks + more : ticks - (uint32_t)(0u - more);
}
