/* systick.h: counting with SysTick, 24 bits down, its wraps counted by its interrupt. For the counter_*.c that build on
 * it, one of them an image.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef RLX_SYSTICK_H
#define RLX_SYSTICK_H

#include "soc_parts.h"

#define SYST_CSR RLX_REG(0xE000E010u)
#define SYST_RVR RLX_REG(0xE000E014u)
#define SYST_CVR RLX_REG(0xE000E018u)

#define CSR_RUN 7u  /* core clock, interrupt, enabled */
#define CSR_STOP 4u /* the core clock stays selected: QEMU 7.2 miscounts when the clock changes with the stop */
#define ICSR_PENDSTSET (1u << 26)
#define PERIOD (1u << 24)

/* Defined by the file that includes this one. prepare() comes once, before the others; stop() returns the ticks since
 * start(). */
static void prepare(void);
static void start(void);
static uint64_t stop(void);

void rlx_systick_handler(void);

static volatile uint32_t wraps;
static uint32_t ticks_when_empty;
static uint32_t ticks_per_wrap; /* what one interrupt adds to a region */

void rlx_systick_handler(void) { wraps++; }

__attribute__((noinline)) static void systick_start(void)
{
    SYST_CSR = CSR_STOP;
    wraps = 0u;
    SYST_CVR = 0u;
    rlx_barrier();
    SYST_CSR = CSR_RUN;
}

/* The counter reads 0 at the start, then PERIOD - 1 and down; it raises the interrupt when it reaches 0 again. */
__attribute__((noinline)) static uint64_t systick_stop(void)
{
    SYST_CSR = CSR_STOP;
    rlx_barrier(); /* a wrap that happened just before is counted now */
    return (uint64_t)wraps * PERIOD + ((PERIOD - SYST_CVR) & (PERIOD - 1u));
}

/* A region that does nothing but write to ICSR: 0 has no effect, PENDSTSET runs the interrupt once. */
__attribute__((noinline)) static uint32_t ticks_of_icsr(uint32_t value)
{
    start();
    SCB_ICSR = value;
    rlx_barrier();
    const uint64_t ticks = stop();
    return (uint32_t)(ticks & (PERIOD - 1u)); /* without the wrap that the forced interrupt counted */
}

void rlx_counter_init(void)
{
    SYST_RVR = PERIOD - 1u;
    prepare();
    ticks_per_wrap = ticks_of_icsr(ICSR_PENDSTSET) - ticks_of_icsr(0u);
    ticks_when_empty = 0u;
    rlx_soc_count_start();
    ticks_when_empty = (uint32_t)rlx_soc_count_stop();
    start(); /* runs on for rlx_counter_now() */
}

uint32_t rlx_counter_now(void) { return SYST_CVR ^ (wraps << 24); }

void rlx_soc_count_start(void) { start(); }

uint64_t rlx_soc_count_stop(void)
{
    const uint64_t ticks = stop();
    const uint64_t overhead = ticks_when_empty + (uint64_t)wraps * ticks_per_wrap;
    return ticks > overhead ? ticks - overhead : 0u;
}

uint32_t rlx_soc_count_hz(void) { return RLX_CORE_HZ; }

#endif
