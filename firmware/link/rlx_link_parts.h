/* rlx_link_parts.h: what the link's own files share. Not for users of the link.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_LINK_PARTS_H
#define RLX_LINK_PARTS_H

#include "rlx_crc32.h"
#include "rlx_link.h"

/* ---- Numbers of the protocol -------------------------------------------------------------------------------- */

enum {
    LINK_HELLO = 1,
    LINK_MODEL = 2,
    LINK_TENSOR = 3,
    LINK_LAYER = 4,
    LINK_CLEAR = 5,
    LINK_WRITE = 6,
    LINK_RUN = 7,
    LINK_STEP = 8,
    LINK_READ = 9,
    LINK_RESET = 10,
    LINK_PING = 11,
    LINK_ROW = 12,
    LINK_IMAGE = 13,
    LINK_UID = 14,
    LINK_COMMANDS = 15,
    LINK_FROM_DEVICE = 0x80, /* set in everything that the device sends; a reply is its command with this bit */
    LINK_BUSY = 0xC0,
    LINK_FAULT = 0xC1
};

typedef enum {
    LINK_OK = 0,
    LINK_BAD_COMMAND = 1,
    LINK_BAD_LENGTH = 2,
    LINK_BAD_MODEL = 3,
    LINK_BAD_TENSOR = 4,
    LINK_BAD_RANGE = 5,
    LINK_GAP = 6,
    LINK_NO_INPUT = 7,
    LINK_NOT_READY = 8,
    LINK_BAD_STEP = 9,
    LINK_NO_ARENA = 10,
    LINK_UNSUPPORTED = 11,
    LINK_WRONG_SESSION = 12,
    LINK_OLD_SEQUENCE = 13,
    LINK_NO_SESSION = 14
} rlx_link_status_t;

/* ---- Little-endian bytes ------------------------------------------------------------------------------------ */

static inline uint32_t rlx_link_get16(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8;
}

static inline uint32_t rlx_link_get32(const uint8_t *data)
{
    return rlx_link_get16(data) | rlx_link_get16(data + 2) << 16;
}

static inline void rlx_link_set16(uint8_t *data, uint32_t value)
{
    data[0] = (uint8_t)value;
    data[1] = (uint8_t)(value >> 8);
}

static inline void rlx_link_set32(uint8_t *data, uint32_t value)
{
    rlx_link_set16(data, value);
    rlx_link_set16(data + 2, value >> 16);
}

/* The payload of a reply that is being written. Bytes beyond the capacity are left out, never written. */
typedef struct {
    uint8_t *data;
    uint32_t size;
    uint32_t capacity;
} rlx_link_out_t;

void rlx_link_put8(rlx_link_out_t *out, uint32_t value);
void rlx_link_put16(rlx_link_out_t *out, uint32_t value);
void rlx_link_put32(rlx_link_out_t *out, uint32_t value);
void rlx_link_put64(rlx_link_out_t *out, uint64_t value);
void rlx_link_put_bytes(rlx_link_out_t *out, const uint8_t *data, uint32_t size);
/* A string: its length (at most 255), how many of its bytes follow, those bytes. `keep` bytes are left free for what
 * comes after it. */
void rlx_link_put_string(rlx_link_out_t *out, const char *text, uint32_t keep);

/* ---- COBS --------------------------------------------------------------------------------------------------- */

/* Encodes size bytes without zeros into out, which needs size + size / 254 + 1 bytes; returns how many it used. */
uint32_t rlx_link_cobs_encode(const uint8_t *data, uint32_t size, uint8_t *out);
/* Decodes size bytes in place; returns how many bytes came out, 0 when they are no COBS. */
uint32_t rlx_link_cobs_decode(uint8_t *data, uint32_t size);

/* ---- Between the link's files ------------------------------------------------------------------------------- */

/* Executes one command; writes the reply's payload. */
rlx_link_status_t rlx_link_execute(rlx_link_t *link, uint32_t command, const uint8_t *payload, uint32_t size,
                                   rlx_link_out_t *out);
/* Makes an error reply of it: its payload is one number that helps to explain the error. Returns status. */
rlx_link_status_t rlx_link_fail(rlx_link_out_t *out, rlx_link_status_t status, uint32_t detail);
/* Forgets the current model and its inputs. */
void rlx_link_forget(rlx_link_t *link);
/* Tells the computer that the device computes from `step` on, and the multiply-accumulates until it hears again. */
void rlx_link_busy(const rlx_link_t *link, uint32_t step, uint32_t macs);
/* The position of a tensor among the outputs, or 0xFF. */
uint32_t rlx_link_output_index(const rlx_model_t *model, uint32_t tensor);

/* Whether the model can execute its next step; explains itself in out when not. */
rlx_link_status_t rlx_link_check_run(const rlx_link_t *link, uint32_t index, rlx_link_out_t *out);
/* Notes that the next step is done. */
void rlx_link_end_step(rlx_link_t *link, const rlx_model_t *model);
/* The stage that is a step, or NULL. */
const rlx_stage_t *rlx_link_stage(const rlx_model_t *model, uint32_t step);
/* How many rows a tensor has that exists only row by row; 0 for one that is whole. */
uint32_t rlx_link_rows_of(const rlx_model_t *model, uint32_t tensor);
/* Makes the next row of the stage that is the next step; returns its number in its tensor. */
uint32_t rlx_link_run_row(rlx_link_t *link, const rlx_model_t *model, const rlx_stage_t *stage);
/* No row of a stage is there. */
void rlx_link_forget_row(rlx_link_t *link);

/* The commands of a run; each takes a payload of a length that was checked. */
rlx_link_status_t rlx_link_clear(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out);
rlx_link_status_t rlx_link_write(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out);
rlx_link_status_t rlx_link_run(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out);
rlx_link_status_t rlx_link_step(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out);
rlx_link_status_t rlx_link_row(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out);
rlx_link_status_t rlx_link_read(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out);

#endif
