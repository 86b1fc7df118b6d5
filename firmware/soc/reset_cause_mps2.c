/* reset_cause_mps2.c: the FPGA images of Arm's MPS2 and MPS3 keep no record that the emulator models.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

uint32_t rlx_chip_reset_cause(void) { return RLX_RESET_UNKNOWN; }
