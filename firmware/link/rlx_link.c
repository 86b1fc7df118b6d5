/* rlx_link.c: frames in, frames out, and each request executed at most once.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_link_parts.h"

/* Where the header's fields lie. */
enum { AT_TYPE = 0, AT_STATUS = 1, AT_SEQUENCE = 2, AT_SESSION = 4 };

/* Unsolicited frames and refusals are built on the stack, so that they leave the kept reply alone. */
#define SMALL_PAYLOAD 44u
#define SMALL_BODY (RLX_LINK_HEADER_BYTES + SMALL_PAYLOAD + RLX_LINK_CRC_BYTES)

/* ---- Sending ------------------------------------------------------------------------------------------------ */

/* Which request a frame answers. */
typedef struct {
    uint32_t sequence, session;
} address_t;

/* Writes header and CRC around a payload that already lies in body; returns the body's bytes. */
static uint32_t seal(uint8_t *body, uint32_t type, uint32_t status, address_t to, uint32_t payload_size)
{
    uint32_t size = RLX_LINK_HEADER_BYTES + payload_size;
    body[AT_TYPE] = (uint8_t)type;
    body[AT_STATUS] = (uint8_t)status;
    rlx_link_set16(body + AT_SEQUENCE, to.sequence);
    rlx_link_set32(body + AT_SESSION, to.session);
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

static void send_small(const rlx_link_t *link, uint32_t type, uint32_t status, address_t to, const uint32_t *words,
                       uint32_t word_count)
{
    uint8_t body[SMALL_BODY];
    uint8_t room[RLX_LINK_FRAME_BYTES(SMALL_BODY)];
    for (uint32_t i = 0; i < word_count; i++) {
        rlx_link_set32(body + RLX_LINK_HEADER_BYTES + 4 * i, words[i]);
    }
    transmit(link, body, seal(body, type, status, to, 4 * word_count), room);
}

/* The request executed last, or now. */
static address_t current(const rlx_link_t *link)
{
    return (address_t){ link->sequence, link->request_session };
}

void rlx_link_busy(const rlx_link_t *link, uint32_t step, uint32_t macs)
{
    uint32_t words[2] = { step, macs };
    send_small(link, LINK_BUSY, LINK_OK, current(link), words, 2);
}

void rlx_link_fault(const rlx_link_t *link, const rlx_link_fault_t *fault)
{
    bool chosen = link->phase != RLX_LINK_IDLE;
    uint32_t words[SMALL_PAYLOAD / 4] = {
        fault->pc,   fault->lr, fault->psr, fault->cfsr, fault->hfsr,
        fault->bfar, fault->r0, fault->sp,  chosen ? link->model : 0xFFFFFFFFu, chosen ? link->next_step : RLX_NO_STEP,
    };
    send_small(link, LINK_FAULT, LINK_OK, current(link), words, 10);
}

/* ---- Answering ---------------------------------------------------------------------------------------------- */

static address_t sender(const uint8_t *request)
{
    return (address_t){ rlx_link_get16(request + AT_SEQUENCE), rlx_link_get32(request + AT_SESSION) };
}

static void refuse(const rlx_link_t *link, const uint8_t *request, rlx_link_status_t status)
{
    send_small(link, (uint32_t)request[AT_TYPE] | LINK_FROM_DEVICE, status, sender(request), NULL, 0);
}

/* Executes a new request, keeps its reply and sends it. */
static void answer(rlx_link_t *link, const uint8_t *request, uint32_t payload_size, uint32_t crc)
{
    link->sequence = (uint16_t)sender(request).sequence;
    link->request_session = sender(request).session;
    link->request_crc = crc;
    rlx_link_out_t out = { link->reply + RLX_LINK_HEADER_BYTES, 0, RLX_LINK_MAX_PAYLOAD };
    rlx_link_status_t status =
        rlx_link_execute(link, request[AT_TYPE], request + RLX_LINK_HEADER_BYTES, payload_size, &out);
    uint32_t type = (uint32_t)request[AT_TYPE] | LINK_FROM_DEVICE;
    link->reply_size = seal(link->reply, type, status, current(link), out.size);
    transmit(link, link->reply, link->reply_size, link->frame);
    if (link->reset_wanted) {
        link->reset_wanted = false;
        link->port->reset(link->port->ctx);
    }
}

/* Whether a request belongs to the session; a HELLO with a new nonce opens one. */
static bool in_session(rlx_link_t *link, const uint8_t *request)
{
    uint32_t session = sender(request).session;
    if (request[AT_TYPE] != LINK_HELLO) {
        return link->nonce != 0 && session == (link->nonce ^ link->boot_id);
    }
    if (session != link->nonce && session != link->last_nonce && session != 0) {
        link->last_nonce = link->nonce;
        link->nonce = session;
        link->sequence = (uint16_t)(sender(request).sequence - 1u); /* whatever its number, it is a new one */
    }
    return session == link->nonce && session != 0;
}

/* The rules of the session; docs/protocol.md gives their reasons. */
static void take_request(rlx_link_t *link, const uint8_t *request, uint32_t payload_size, uint32_t crc)
{
    if (!in_session(link, request)) {
        refuse(link, request, link->nonce == 0 ? LINK_NO_SESSION : LINK_WRONG_SESSION);
        return;
    }
    uint16_t newer = (uint16_t)(sender(request).sequence - link->sequence);
    if (newer == 0 && crc == link->request_crc) {
        transmit(link, link->reply, link->reply_size, link->frame);
    } else if (newer == 0 || newer >= 0x8000u) {
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
    link->reset_wanted = false;
    link->image_summed = false;
    link->awake = false;
    link->boot_id = 0;
    link->nonce = 0;
    link->last_nonce = 0;
    link->sequence = 0;
    link->request_session = 0;
    link->request_crc = 0;
    link->image_crc = 0;
    link->frame_size = 0;
    link->frame_overflow = false;
    link->reply_size = 0;
    link->model = 0;
    rlx_link_forget(link);
}
