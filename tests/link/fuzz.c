/* fuzz.c: feeds the link random bytes and random well-formed requests: `fuzz SEED BYTES`. Built with sanitizers.
 *
 * Prints how many bytes went in and came out, and how many requests were answered with OK.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "models.h"
#include "rlx_link_parts.h"

static uint64_t state;
static uint64_t sent_to_link, came_back, succeeded;
static uint8_t pending[RLX_LINK_FRAME_BYTES(RLX_LINK_BODY_BYTES) + 64];
static uint32_t pending_at, pending_size;
static rlx_link_t the_link;
static uint16_t sequence;
static uint32_t nonce = 1;

enum { BOOT_ID = 5 };

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static uint32_t read_line(void *ctx, uint8_t *data, uint32_t capacity)
{
    uint32_t size = 0;
    (void)ctx;
    while (size < capacity && pending_at < pending_size) {
        data[size++] = pending[pending_at++];
    }
    sent_to_link += size;
    return size;
}

static void write_line(void *ctx, const uint8_t *data, uint32_t size)
{
    static uint8_t copy[RLX_LINK_FRAME_BYTES(RLX_LINK_BODY_BYTES)];
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
    if (rlx_link_cobs_decode(copy, size - 2) < RLX_LINK_HEADER_BYTES + RLX_LINK_CRC_BYTES) {
        abort();
    }
    came_back += size;
    succeeded += copy[0] != LINK_BUSY && copy[1] == LINK_OK;
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
        rlx_link_fault(&the_link, &fault);
    }
}

/* Small numbers mostly, so that many requests are sensible; edges and wild ones too. */
static uint32_t number(void)
{
    static const uint32_t edges[] = { 1499, 1500, 1501, 4095, 4096, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 255, 256 };
    uint32_t kind = draw(10);
    return kind < 7 ? draw(4) : kind < 9 ? edges[draw(sizeof edges / sizeof edges[0])] : (uint32_t)state;
}

/* Frames a payload that lies in body behind the header. */
static void frame_request(uint8_t *body, uint32_t command, uint32_t size)
{
    sequence = (uint16_t)(draw(64) == 0 ? draw(65536) : sequence + (draw(8) != 0 ? 1u : 0u));
    body[0] = (uint8_t)command;
    body[1] = 0;
    rlx_link_set16(body + 2, sequence);
    nonce = command == LINK_HELLO && draw(3) == 0 ? 1 + draw(3) : nonce;
    rlx_link_set32(body + 4, draw(50) == 0 ? draw(9) : command == LINK_HELLO ? nonce : nonce ^ BOOT_ID);
    size += RLX_LINK_HEADER_BYTES;
    rlx_link_set32(body + size, rlx_crc32(0, body, size));
    pending_size = rlx_link_cobs_encode(body, size + RLX_LINK_CRC_BYTES, pending);
    if (draw(20) == 0) {
        pending[draw(pending_size)] = (uint8_t)draw(256);
    }
    pending[pending_size++] = 0;
}

static void random_request(void)
{
    uint8_t body[RLX_LINK_BODY_BYTES];
    uint32_t size = draw(8) == 0 ? draw(RLX_LINK_MAX_PAYLOAD + 1) : (uint32_t[]){ 0, 1, 4, 6, 8, 10, 12 }[draw(7)];
    uint8_t *payload = body + RLX_LINK_HEADER_BYTES;
    uint32_t command = draw(50) == 0 ? draw(256) : draw(LINK_COMMANDS);
    for (uint32_t i = 0; i < size; i++) {
        payload[i] = (uint8_t)draw(256);
    }
    for (uint32_t i = 0; i + 2 <= size && i < 2; i++) {
        payload[i] = (uint8_t)(draw(9) == 0 ? number() : draw(TEST_MODELS) * (1 - i));
    }
    if (size >= 4) {
        rlx_link_set16(payload + 2, number());
    }
    if (size >= 8) {
        rlx_link_set32(payload + 4, number());
    }
    if (size >= 10) {
        rlx_link_set16(payload + 8, number());
    }
    frame_request(body, command, size);
}

/* The next request of a client that writes inputs in order, runs and reads; now and then it strays. */
static void sensible_request(void)
{
    static uint32_t model, input, offset, next_step, next_row;
    uint8_t body[RLX_LINK_BODY_BYTES] = { 0 };
    uint8_t *payload = body + RLX_LINK_HEADER_BYTES;
    const rlx_model_t *now = test_models[model];
    payload[0] = (uint8_t)model;
    if (draw(30) == 0 || model == TEST_MODELS - 1) {
        model = draw(TEST_MODELS);
        input = offset = next_step = next_row = 0;
        frame_request(body, LINK_CLEAR, 1);
    } else if (input < now->input_count) {
        uint32_t left = now->tensors[input].bytes - offset;
        uint32_t room = RLX_LINK_MAX_PAYLOAD - 8;
        uint32_t bytes = draw(4) == 0 ? draw(16) : room;
        bytes = bytes < left ? bytes : left;
        payload[1] = now->variable_input && draw(9) == 0;
        rlx_link_set16(payload + 2, input);
        rlx_link_set32(payload + 4, offset);
        for (uint32_t i = 0; i < bytes; i++) {
            payload[8 + i] = (uint8_t)draw(now->tensors[input].bytes == 1 ? 6 : 256);
        }
        offset += bytes;
        if (bytes == left || payload[1] != 0) {
            input++;
            offset = 0;
        }
        frame_request(body, LINK_WRITE, 8 + bytes);
    } else if (now->stage_count != 0 && next_step == 0 && next_row < now->stages->rows && draw(3) != 0) {
        rlx_link_set32(payload + 8, next_row++);
        next_step = next_row == now->stages->rows;
        frame_request(body, LINK_ROW, 12);
    } else if (draw(3) == 0) {
        rlx_link_set32(payload + 4, next_step++);
        payload[1] = (uint8_t)(draw(9) == 0);
        frame_request(body, LINK_STEP, 8);
    } else if (draw(3) == 0) {
        next_step = now->steps;
        frame_request(body, LINK_RUN, 1);
    } else {
        uint32_t tensor = draw(now->tensor_count);
        uint32_t size = now->tensors[tensor].bytes;
        rlx_link_set16(payload + 2, tensor);
        rlx_link_set32(payload + 4, draw(size));
        rlx_link_set16(payload + 8, draw(size < RLX_LINK_MAX_PAYLOAD ? size + 1 : RLX_LINK_MAX_PAYLOAD));
        frame_request(body, LINK_READ, 10);
    }
    if (next_step >= now->steps && draw(6) == 0) {
        input = offset = next_step = next_row = 0;
    }
}

static void random_bytes(void)
{
    pending_size = 1 + draw(draw(10) == 0 ? sizeof pending : 40u);
    for (uint32_t i = 0; i < pending_size; i++) {
        pending[i] = (uint8_t)draw(draw(4) == 0 ? 4 : 256);
    }
}

int main(int count, char **arguments)
{
    static uint8_t image[5000];
    static const rlx_link_port_t port = {
        .read = read_line, .write = write_line, .reset = reset, .boot_id = boot_id, .image = image,
        .image_bytes = sizeof image, .device = "fuzz",
    };
    uint8_t *arena = aligned_alloc(16, TEST_ARENA_BYTES);
    uint64_t wanted = count > 2 ? strtoull(arguments[2], NULL, 10) : 100000;

    state = 0x9E3779B97F4A7C15u ^ (count > 1 ? strtoull(arguments[1], NULL, 10) : 1);
    rlx_link_init(&the_link, &port, test_models, TEST_MODELS, arena, TEST_ARENA_BYTES);
    while (sent_to_link < wanted) {
        pending_at = 0;
        switch (draw(4)) {
        case 0: random_bytes(); break;
        case 1: random_request(); break;
        default: sensible_request(); break;
        }
        while (rlx_link_poll(&the_link)) {
        }
    }
    free(arena);
    printf("%llu %llu %llu\n", (unsigned long long)sent_to_link, (unsigned long long)came_back,
           (unsigned long long)succeeded);
    return 0;
}
