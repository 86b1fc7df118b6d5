/* setup.c: brings the chip to full speed and connects its UART, by the steps of the board's file.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

static uint32_t first_failed;

#if RLX_SETUP_STEPS > 0
/* How often a wait looks before it gives up: some tens of milliseconds on the slowest reset clock. Crystals start within
 * a few; an emulator without the register never answers. */
#define POLLS 100000u

extern const rlx_setup_step_t rlx_setup_steps[RLX_SETUP_STEPS];

static uint32_t has_come(const rlx_setup_step_t *step)
{
    for (uint32_t i = 0; i < POLLS; i++) {
        if ((RLX_REG(step->address) & step->mask) == step->value) {
            return 1u;
        }
    }
    return 0u;
}

/* A wait in vain does not stop the set-up: the chip runs on slower, or in an emulator that needs no clocks. */
void rlx_setup_run(void)
{
    for (uint32_t i = 0; i < RLX_SETUP_STEPS; i++) {
        const rlx_setup_step_t *const step = &rlx_setup_steps[i];
        if (step->kind == RLX_SETUP_WRITE) {
            RLX_REG(step->address) = step->value;
        } else if (step->kind == RLX_SETUP_CHANGE) {
            RLX_REG(step->address) = (RLX_REG(step->address) & ~step->mask) | step->value;
        } else if (has_come(step) == 0u && first_failed == 0u) {
            first_failed = i + 1u;
        }
        (void)RLX_REG(step->address); /* the write has arrived: a peripheral whose clock it turned on can be used */
    }
}
#endif

uint32_t rlx_soc_setup_failed(void) { return first_failed; }
