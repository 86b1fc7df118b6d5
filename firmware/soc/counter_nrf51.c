/* counter_nrf51.c: counting with TIMER0 of the nRF51, which has no SysTick: 32 bits at 16 MHz, 268 seconds long.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define TIMER0 0x40008000u
#define TIMER_START RLX_REG(TIMER0 + 0x000u)
#define TIMER_STOP RLX_REG(TIMER0 + 0x004u)
#define TIMER_CLEAR RLX_REG(TIMER0 + 0x00Cu)
#define TIMER_CAPTURE0 RLX_REG(TIMER0 + 0x040u)
#define TIMER_MODE RLX_REG(TIMER0 + 0x504u)
#define TIMER_BITMODE RLX_REG(TIMER0 + 0x508u)
#define TIMER_PRESCALER RLX_REG(TIMER0 + 0x510u)
#define TIMER_CC0 RLX_REG(TIMER0 + 0x540u)

static uint32_t ticks_when_empty;

__attribute__((noinline)) static uint32_t capture(void)
{
    TIMER_CAPTURE0 = 1u;
    return TIMER_CC0;
}

void rlx_counter_init(void)
{
    TIMER_STOP = 1u;
    TIMER_MODE = 0u;      /* timer */
    TIMER_BITMODE = 3u;   /* 32 bits */
    TIMER_PRESCALER = 0u; /* 16 MHz */
    TIMER_CLEAR = 1u;
    ticks_when_empty = 0u;
    rlx_soc_count_start();
    ticks_when_empty = (uint32_t)rlx_soc_count_stop();
}

uint32_t rlx_counter_now(void) { return capture(); }

__attribute__((noinline)) void rlx_soc_count_start(void)
{
    TIMER_STOP = 1u;
    TIMER_CLEAR = 1u;
    TIMER_START = 1u;
}

__attribute__((noinline)) uint64_t rlx_soc_count_stop(void)
{
    const uint32_t ticks = capture(); /* the timer runs on for rlx_counter_now() */
    return ticks > ticks_when_empty ? ticks - ticks_when_empty : 0u;
}

uint32_t rlx_soc_count_hz(void) { return 16000000u; }
