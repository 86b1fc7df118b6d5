/* counter_systick.c: counting with SysTick alone.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "systick.h"

static void prepare(void) {}

static void start(void) { systick_start(); }

static uint64_t stop(void) { return systick_stop(); }
