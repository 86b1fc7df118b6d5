/* rlx_link_bytes.c: COBS and the bytes of payloads.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_link_parts.h"

/* ---- Payloads ----------------------------------------------------------------------------------------------- */

void rlx_link_put8(rlx_link_out_t *out, uint32_t value)
{
    if (out->size < out->capacity) {
        out->data[out->size++] = (uint8_t)value;
    }
}

void rlx_link_put16(rlx_link_out_t *out, uint32_t value)
{
    rlx_link_put8(out, value);
    rlx_link_put8(out, value >> 8);
}

void rlx_link_put32(rlx_link_out_t *out, uint32_t value)
{
    rlx_link_put16(out, value);
    rlx_link_put16(out, value >> 16);
}

void rlx_link_put64(rlx_link_out_t *out, uint64_t value)
{
    rlx_link_put32(out, (uint32_t)value);
    rlx_link_put32(out, (uint32_t)(value >> 32));
}

void rlx_link_put_bytes(rlx_link_out_t *out, const uint8_t *data, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        rlx_link_put8(out, data[i]);
    }
}

void rlx_link_put_string(rlx_link_out_t *out, const char *text, uint32_t keep)
{
    uint32_t length = 0;
    while (text != NULL && length < 255u && text[length] != '\0') {
        length++;
    }
    uint32_t room = out->capacity - out->size;
    room = room > keep + 2u ? room - keep - 2u : 0u;
    uint32_t sent = length < room ? length : room;
    rlx_link_put8(out, length);
    rlx_link_put8(out, sent);
    for (uint32_t i = 0; i < sent; i++) {
        rlx_link_put8(out, (uint8_t)text[i]);
    }
}

/* ---- COBS --------------------------------------------------------------------------------------------------- */

uint32_t rlx_link_cobs_encode(const uint8_t *data, uint32_t size, uint8_t *out)
{
    uint32_t code_at = 0;
    uint32_t put = 1;
    uint8_t code = 1;
    for (uint32_t i = 0; i < size; i++) {
        if (data[i] != 0) {
            out[put++] = data[i];
            code++;
        }
        /* A block of 254 bytes ends without a zero; at the very end no further block is opened. */
        if (data[i] == 0 || (code == 0xFF && i + 1 < size)) {
            out[code_at] = code;
            code_at = put++;
            code = 1;
        }
    }
    out[code_at] = code;
    return put;
}

uint32_t rlx_link_cobs_decode(uint8_t *data, uint32_t size)
{
    uint32_t get = 0;
    uint32_t put = 0; /* stays behind get: every block gives at most the bytes that it took */
    while (get < size) {
        uint32_t code = data[get++];
        if (code == 0 || code - 1 > size - get) {
            return 0;
        }
        for (uint32_t i = 1; i < code; i++) {
            data[put++] = data[get++];
        }
        if (code != 0xFF && get < size) {
            data[put++] = 0;
        }
    }
    return put;
}
