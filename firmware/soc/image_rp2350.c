/* image_rp2350.c: the block in the first 4 KiB of flash by which the RP2350's boot ROM knows an image (RP2350 Datasheet,
 * 5.9.5.1): an executable for the Arm cores, in secure state, which starts by the vector table at its beginning.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

__attribute__((section(".image_def"), used)) static const uint32_t image_def[] = {
    0xFFFFDED3u, /* start of a block */
    0x10210142u, /* item IMAGE_TYPE of one word: executable, secure, Arm, RP2350 */
    0x000001FFu, /* last item: one word came before it */
    0x00000000u, /* the next block: this one, so there is no other */
    0xAB123579u, /* end of the block */
};
