/* rlx_crc32.h: the CRC-32 of zlib and Ethernet (polynomial 0xEDB88320, reflected).
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_CRC32_H
#define RLX_CRC32_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* The checksum of `size` bytes. `crc` is 0 at first, then the last result, to continue over further bytes. */
uint32_t rlx_crc32(uint32_t crc, const void *data, size_t size);

#if defined(__cplusplus)
}
#endif
#endif
