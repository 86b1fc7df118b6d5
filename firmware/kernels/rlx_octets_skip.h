/* rlx_octets_skip.h: the lists of weights that are 1 and -1, for convolutions without multiplications (rlx_octets.h).
 *
 * stream, all channels: the bias as the core wants it; runs; the rescale, whose first word is less than 512.
 * A run: a list of taps whose words are subtracted, then a list of those that are added. The generator proves that the
 * sum of all of them over one position lies between -2^15 and 2^15, both excluded, whatever the inputs are.
 * A list: a word start << 16 | 2^15 | words << 8 | code; then `words` words of 8 numbers of 4 bits, the first one in the
 * lowest bits. From tap `start` on, each number says how many taps to skip; the next tap is taken. A first word may have
 * fewer numbers, in its highest bits; code: the bytes of code that they take, so that it is entered in its middle. A
 * list without taps is but a word. Where more than 15 taps are to be skipped, one whose weight is 0 is in both lists.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_OCTETS_SKIP_H
#define RLX_OCTETS_SKIP_H

#include <stdint.h>

#define RLX_HEADER 512 /* words of lists are larger */
#define RLX_LIST_WORD 8

/* Adds the taps of a list to four fields, times `sign`; returns the stream after it. code: bytes of a tap's code. */
static inline const int32_t *rlx_octets_list(
    const int32_t *stream, const int32_t *x, uint32_t *fields, uint32_t sign, uint32_t code)
{
    const uint32_t header = (uint32_t)*stream++;
    const uint32_t words = header >> 8 & 0x7Fu;
    x += 4 * (header >> 16);
    uint32_t k = RLX_LIST_WORD - (header & 0xFFu) / code;
    for (uint32_t i = 0; i < words; i++, stream++, k = 0) {
        for (; k < RLX_LIST_WORD; k++) {
            x += 4 * ((uint32_t)*stream >> 4 * k & 15u);
            for (int32_t field = 0; field < 4; field++) {
                fields[field] += sign * (uint32_t)*x++;
            }
        }
    }
    return stream;
}

#endif
