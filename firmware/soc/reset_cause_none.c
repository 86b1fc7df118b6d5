/* reset_cause_none.c: for chips that keep no record of why they started, or whose emulator models none.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

uint32_t rlx_chip_reset_cause(void) { return RLX_RESET_UNKNOWN; }
