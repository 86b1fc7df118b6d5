/* rlx_link.c: frames in, frames out, and each request executed at most once.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_link_parts.h"

/* Where the header's fields lie. */
enum { AT_TYPE = 0, AT_STATUS = 1, AT_SEQUENCE = 2, AT_BOOT = 4 };

/* Unsolicited frames and refusals are built on the stack, so that they leave the kept reply alone. */
#define SMALL_PAYLOAD 44u
#define SMALL_BODY (RLX_LINK_HEADER_BYTES + SMALL_PAYLOAD + RLX_LINK_CRC_BYTES)

/* ---- Sending ------------------------------------------------------------------------------------------------ */

/* Writes header and CRC around a payload that already lies in body; returns the body's bytes. */
static uint32_t seal(const rlx_link_t *link, uint8_t *body, uint32_t type, uint32_t status, uint32_t sequence,
                     uint32_t payload_size)
{
    uint32_t size = RLX_LINK_HEADER_BYTES + payload_size;
    body[AT_TYPE] = (uint8_t)type;
    body[AT_STATUS] = (uint8_t)status;
    rlx_link_set16(body + AT_SEQUENCE, sequence);
    rlx_link_set32(body + AT_BOOT, link->boot_id);
    rlx_link_set32(body + size, rlx_crc32(0, body, size));
    return size + RLX_LINK_CRC_BYTES;
}

/* Encodes into room, which needs RLX_LINK_FRAME_BYTES(size), and writes. The zero in front ends whatever text the
 * program printed before. */
static void transmit(const rlx_link_t *link, const uint8_t *body, uint32_t size, uint8_t *room)
{
    room[0] = 0;
    uint32_t encoded = rlx_link_cobs_encode(body, size, room + 1);
    room[encoded + 1] = 0;
    link->port->write(link->port->ctx, room, encoded + 2);
}

static void send_small(const rlx_link_t *link, uint32_t type, uint32_t status, uint32_t sequence, const uint32_t *words,
                       uint32_t word_count)
{
    uint8_t body[SMALL_BODY];
    uint8_t room[RLX_LINK_FRAME_BYTES(SMALL_BODY)];
    for (uint32_t i = 0; i < word_count; i++) {
        rlx_link_set32(body + RLX_LINK_HEADER_BYTES + 4 * i, words[i]);
    }
    transmit(link, body, seal(link, body, type, status, sequence, 4 * word_count), room);
}

void rlx_link_busy(const rlx_link_t *link, uint32_t step, uint32_t macs)
{
    uint32_t words[2] = { step, macs };
    send_small(link, LINK_BUSY, LINK_OK, link->sequence, words, 2);
}

void rlx_link_fault(const rlx_link_t *link, const rlx_link_fault_t *fault)
{
    bool chosen = link->phase != RLX_LINK_IDLE;
    uint32_t words[SMALL_PAYLOAD / 4] = {
        fault->pc,   fault->lr, fault->psr, fault->cfsr, fault->hfsr,
        fault->bfar, fault->r0, fault->sp,  chosen ? link->model : 0xFFFFFFFFu, chosen ? link->next_step : RLX_NO_STEP,
    };
    send_small(link, LINK_FAULT, LINK_OK, link->sequence, words, 10);
}

/* ---- Answering ---------------------------------------------------------------------------------------------- */

static void refuse(const rlx_link_t *link, const uint8_t *request, rlx_link_status_t status)
{
    uint32_t type = (uint32_t)request[AT_TYPE] | LINK_FROM_DEVICE;
    send_small(link, type, status, rlx_link_get16(request + AT_SEQUENCE), NULL, 0);
}

/* A HELLO whose nonce is not the current session's opens a session. */
static bool opens_session(const rlx_link_t *link, const uint8_t *request, uint32_t payload_size)
{
    if (request[AT_TYPE] != LINK_HELLO || payload_size < 4) {
        return false;
    }
    return !link->in_session || rlx_link_get32(request + RLX_LINK_HEADER_BYTES) != link->nonce;
}

/* Executes a new request, keeps its reply and sends it. */
static void answer(rlx_link_t *link, const uint8_t *request, uint32_t payload_size, uint32_t crc)
{
    link->sequence = (uint16_t)rlx_link_get16(request + AT_SEQUENCE);
    link->request_crc = crc;
    rlx_link_out_t out = { link->reply + RLX_LINK_HEADER_BYTES, 0, RLX_LINK_MAX_PAYLOAD };
    rlx_link_status_t status =
        rlx_link_execute(link, request[AT_TYPE], request + RLX_LINK_HEADER_BYTES, payload_size, &out);
    uint32_t type = (uint32_t)request[AT_TYPE] | LINK_FROM_DEVICE;
    link->reply_size = seal(link, link->reply, type, status, link->sequence, out.size);
    transmit(link, link->reply, link->reply_size, link->frame);
    if (link->reset_wanted) {
        link->reset_wanted = false;
        link->port->reset(link->port->ctx);
    }
}

/* The rules of the session; docs/protocol.md gives their reasons. */
static void take_request(rlx_link_t *link, const uint8_t *request, uint32_t payload_size, uint32_t crc)
{
    uint16_t sequence = (uint16_t)rlx_link_get16(request + AT_SEQUENCE);
    if (opens_session(link, request, payload_size)) {
        link->nonce = rlx_link_get32(request + RLX_LINK_HEADER_BYTES);
        link->in_session = true;
        rlx_link_forget(link);
        answer(link, request, payload_size, crc);
    } else if (!link->in_session) {
        refuse(link, request, LINK_NO_SESSION);
    } else if (request[AT_TYPE] != LINK_HELLO && rlx_link_get32(request + AT_BOOT) != link->boot_id) {
        refuse(link, request, LINK_WRONG_BOOT);
    } else if (sequence == link->sequence && crc == link->request_crc) {
        transmit(link, link->reply, link->reply_size, link->frame);
    } else if (sequence == link->sequence || (uint16_t)(sequence - link->sequence) >= 0x8000u) {
        refuse(link, request, LINK_OLD_SEQUENCE);
    } else {
        answer(link, request, payload_size, crc);
    }
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

/* A delimiter arrived: what lies in frame is a request, or noise that is dropped without a word. */
static void end_frame(rlx_link_t *link)
{
    uint32_t size = link->frame_overflow ? 0 : link->frame_size;
    link->frame_size = 0;
    link->frame_overflow = false;
    size = rlx_link_cobs_decode(link->frame, size);
    if (size < RLX_LINK_HEADER_BYTES + RLX_LINK_CRC_BYTES || size > RLX_LINK_BODY_BYTES) {
        return;
    }
    uint32_t summed = size - RLX_LINK_CRC_BYTES;
    uint32_t crc = rlx_crc32(0, link->frame, summed);
    if (crc != rlx_link_get32(link->frame + summed) || (link->frame[AT_TYPE] & LINK_FROM_DEVICE) != 0) {
        return;
    }
    take_request(link, link->frame, summed - RLX_LINK_HEADER_BYTES, crc);
}

bool rlx_link_poll(rlx_link_t *link)
{
    uint8_t chunk[32];
    uint32_t size = link->port->read(link->port->ctx, chunk, sizeof chunk);
    if (size != 0 && !link->awake) {
        link->awake = true;
        link->boot_id = link->port->boot_id != NULL ? link->port->boot_id(link->port->ctx) : 0;
    }
    for (uint32_t i = 0; i < size && i < sizeof chunk; i++) {
        if (chunk[i] == 0) {
            end_frame(link);
        } else if (link->frame_size < sizeof link->frame) {
            link->frame[link->frame_size++] = chunk[i];
        } else {
            link->frame_overflow = true;
        }
    }
    return size != 0;
}

void rlx_link_init(rlx_link_t *link, const rlx_link_port_t *port, const rlx_model_t *const *models,
                   uint32_t model_count, uint8_t *arena, uint32_t arena_bytes)
{
    link->port = port;
    link->models = models;
    link->model_count = model_count;
    link->arena = arena;
    link->arena_bytes = arena_bytes;
    link->in_session = false;
    link->reset_wanted = false;
    link->image_summed = false;
    link->awake = false;
    link->boot_id = 0;
    link->sequence = 0;
    link->nonce = 0;
    link->request_crc = 0;
    link->image_crc = 0;
    link->frame_size = 0;
    link->frame_overflow = false;
    link->reply_size = 0;
    link->model = 0;
    rlx_link_forget(link);
}
