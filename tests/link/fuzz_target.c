/* fuzz_target.c: the link under libFuzzer. An input is a conversation: records of raw bytes or of requests, whose frames
 * are made here, so that the fuzzer reaches what lies behind CRC, COBS, session and sequence.
 *
 * A record's first byte, from 0x80 on: so many raw bytes (its low 7 bits) follow. Below: a request; bits 0 to 3 are its
 * command; bit 4 repeats the sequence before, bit 5 spoils the session, bit 6 the CRC; then its payload's size and the
 * payload follow. Link and arena are allocated with their exact sizes, for the address sanitizer.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdlib.h>

#include "models.h"
#include "rlx_link_parts.h"

enum { RAW = 0x80, SAME_SEQUENCE = 0x10, WRONG_SESSION = 0x20, WRONG_CRC = 0x40, BOOT_ID = 5 };

typedef struct {
    const uint8_t *data;
    size_t left;
} input_t;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *pending;
static uint32_t pending_left;
static rlx_link_t *the_link;

static uint32_t read_line(void *ctx, uint8_t *data, uint32_t capacity)
{
    uint32_t size = 0;
    (void)ctx;
    while (size < capacity && pending_left > 0) {
        data[size++] = *pending++;
        pending_left--;
    }
    return size;
}

/* What the link sends must be one frame: zeros around it and nowhere else, COBS within, a right CRC. */
static void write_line(void *ctx, const uint8_t *data, uint32_t size)
{
    uint8_t copy[RLX_LINK_FRAME_BYTES(RLX_LINK_BODY_BYTES)];
    (void)ctx;
    if (size < 2 || size > sizeof copy || data[0] != 0 || data[size - 1] != 0) {
        abort();
    }
    for (uint32_t i = 1; i + 1 < size; i++) {
        if (data[i] == 0) {
            abort();
        }
        copy[i - 1] = data[i];
    }
    uint32_t body = rlx_link_cobs_decode(copy, size - 2);
    if (body < RLX_LINK_HEADER_BYTES + RLX_LINK_CRC_BYTES ||
        rlx_crc32(0, copy, body - RLX_LINK_CRC_BYTES) != rlx_link_get32(copy + body - RLX_LINK_CRC_BYTES)) {
        abort();
    }
}

static void reset(void *ctx)
{
    (void)ctx;
}

static uint32_t boot_id(void *ctx)
{
    (void)ctx;
    return BOOT_ID;
}

void test_crash(crash_t how)
{
    static const rlx_link_fault_t fault = { 1, 2, 3, 4, 5, 6, 7, 8 };
    if (how == CRASH_FAULT) {
        rlx_link_fault(the_link, &fault);
    }
}

static uint8_t next(input_t *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->data++;
}

static void send(const uint8_t *bytes, uint32_t size)
{
    pending = bytes;
    pending_left = size;
    while (rlx_link_poll(the_link)) {
    }
}

static void send_raw(input_t *input, uint32_t size)
{
    size = size < input->left ? size : (uint32_t)input->left;
    send(input->data, size);
    input->data += size;
    input->left -= size;
}

/* HELLO's nonce is the first byte of its payload. */
static void send_request(input_t *input, uint8_t how, uint16_t *sequence, uint32_t *nonce)
{
    uint8_t body[RLX_LINK_BODY_BYTES + 16];
    uint8_t frame[RLX_LINK_FRAME_BYTES(sizeof body)];
    uint32_t payload = next(input);
    uint32_t size = RLX_LINK_HEADER_BYTES;
    *sequence = (uint16_t)(*sequence + ((how & SAME_SEQUENCE) != 0 ? 0 : 1));
    while (payload-- > 0 && size < sizeof body - RLX_LINK_CRC_BYTES) {
        body[size++] = next(input);
    }
    bool hello = (how & 0xF) == LINK_HELLO;
    if (hello && size > RLX_LINK_HEADER_BYTES) {
        *nonce = body[RLX_LINK_HEADER_BYTES];
    }
    body[0] = how & 0xF;
    body[1] = 0;
    rlx_link_set16(body + 2, *sequence);
    rlx_link_set32(body + 4, (hello ? *nonce : *nonce ^ BOOT_ID) ^ ((how & WRONG_SESSION) != 0 ? 64u : 0u));
    rlx_link_set32(body + size, rlx_crc32(0, body, size) ^ ((how & WRONG_CRC) != 0 ? 1u : 0u));
    uint32_t encoded = rlx_link_cobs_encode(body, size + RLX_LINK_CRC_BYTES, frame);
    frame[encoded] = 0;
    send(frame, encoded + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t image[64];
    static const rlx_link_port_t port = {
        .read = read_line, .write = write_line, .reset = reset, .boot_id = boot_id, .image = image,
        .image_bytes = sizeof image, .device = "fuzz",
    };
    input_t input = { data, size };
    uint16_t sequence = 0;
    uint32_t nonce = 1;
    static uint8_t *arena;
    if (arena == NULL) {
        arena = aligned_alloc(16, TEST_ARENA_BYTES);
        the_link = malloc(sizeof *the_link);
    }
    rlx_link_init(the_link, &port, test_models, TEST_MODELS, arena, TEST_ARENA_BYTES);
    while (input.left > 0) {
        uint8_t how = next(&input);
        if (how >= RAW) {
            send_raw(&input, how & 0x7F);
        } else {
            send_request(&input, how, &sequence, &nonce);
        }
    }
    return 0;
}
