/* client.c: runs the first model of a device from a C program, over docs/protocol.md, and shares no code with rlx-edge.
 *
 *     cc -std=c11 -D_DEFAULT_SOURCE -o client client.c
 *     ./client /dev/ttyACM0 < inputs.bin > outputs.bin
 *
 * Takes the bytes of all inputs, one after the other, and writes those of all outputs. One request at a time.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { HELLO = 1, MODEL = 2, TENSOR = 3, WRITE = 6, RUN = 7, READ = 9, REPLY = 0x80, BUSY = 0xC0, FAULT = 0xC1 };
enum { HEADER = 8, CRC = 4, MAX_BODY = HEADER + 1024 + CRC, BYTE_NS = 86806 };

typedef struct {
    uint8_t kind, status;
    uint16_t sequence;
    uint32_t session;
    uint32_t size;
    uint8_t payload[1024];
} frame_t;

static int port;
static uint32_t session;
static uint16_t sequence;
static uint32_t max_payload = 128;

static _Noreturn void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* ---- Bytes -------------------------------------------------------------------------------------------------- */

static void put(uint8_t *to, uint32_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint32_t get(const uint8_t *from, unsigned bytes)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint32_t)from[i] << (8 * i);
    }
    return value;
}

static uint32_t crc32(const uint8_t *data, uint32_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (uint32_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
        }
    }
    return ~crc;
}

static uint64_t now(void) /* ns */
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- Frames ------------------------------------------------------------------------------------------------- */

/* Encodes a frame, with both delimiters; returns its bytes. */
static uint32_t encode(const frame_t *frame, uint8_t *out)
{
    uint8_t body[MAX_BODY];
    uint32_t size = HEADER + frame->size, at = 1, code_at = 1, put_at = 2;
    body[0] = frame->kind;
    body[1] = 0;
    put(body + 2, frame->sequence, 2);
    put(body + 4, frame->session, 4);
    memcpy(body + HEADER, frame->payload, frame->size);
    put(body + size, crc32(body, size), 4);
    size += CRC;
    out[0] = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (body[i] != 0) {
            out[put_at++] = body[i];
            at++;
        }
        if (body[i] == 0 || (at == 255 && i + 1 < size)) {
            out[code_at] = (uint8_t)at;
            code_at = put_at++;
            at = 1;
        }
    }
    out[code_at] = (uint8_t)at;
    out[put_at] = 0;
    return put_at + 1;
}

/* Decodes what lay between two zeros. Returns 0 when it is no frame. */
static int decode(const uint8_t *data, uint32_t size, frame_t *frame)
{
    uint8_t body[MAX_BODY];
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < size;) {
        uint32_t code = data[i++];
        if (code - 1 > size - i || bytes + code > sizeof body) {
            return 0;
        }
        memcpy(body + bytes, data + i, code - 1);
        bytes += code - 1;
        i += code - 1;
        if (code != 255 && i < size) {
            body[bytes++] = 0;
        }
    }
    if (bytes < HEADER + CRC || crc32(body, bytes - CRC) != get(body + bytes - CRC, 4)) {
        return 0;
    }
    frame->kind = body[0];
    frame->status = body[1];
    frame->sequence = (uint16_t)get(body + 2, 2);
    frame->session = get(body + 4, 4);
    frame->size = bytes - HEADER - CRC;
    memcpy(frame->payload, body + HEADER, frame->size);
    return 1;
}

/* Waits for the next frame, at most until that time; returns 0 when there is none. Other bytes are dropped. */
static int receive(frame_t *frame, uint64_t until)
{
    static uint8_t chunk[2 * MAX_BODY];
    static uint32_t size;
    for (;;) {
        uint64_t time = now();
        struct pollfd ready = { port, POLLIN, 0 };
        uint8_t byte;
        if (time >= until || poll(&ready, 1, (int)((until - time) / 1000000u) + 1) <= 0) {
            return 0;
        }
        if (read(port, &byte, 1) != 1) {
            fail("the port is gone");
        }
        if (byte != 0) {
            size += size < sizeof chunk;
            chunk[size - 1] = byte;
            continue;
        }
        uint32_t whole = size;
        size = 0;
        if (whole > 0 && decode(chunk, whole, frame)) {
            return 1;
        }
    }
}

/* Sends a request again and again until its reply comes, which must be OK. */
static void request(uint8_t kind, uint32_t request_session, frame_t *frame)
{
    uint8_t out[MAX_BODY + MAX_BODY / 254 + 4];
    uint64_t give_up = now() + 5000000000u;
    frame->kind = kind;
    frame->sequence = ++sequence;
    frame->session = request_session;
    uint32_t size = encode(frame, out);
    for (int repeats = 0; now() < give_up; repeats++) {
        uint64_t patience = 300000000u + (uint64_t)(size + max_payload + 20) * BYTE_NS;
        uint64_t until = now() + patience * (repeats > 2 ? 2 : 1);
        if (write(port, out, size) != (ssize_t)size) {
            fail("the port takes no bytes");
        }
        while (receive(frame, until)) {
            if (frame->session != request_session || (frame->kind != FAULT && frame->sequence != sequence)) {
                continue;
            }
            if (frame->kind == FAULT) {
                fail("the device met a fault at 0x%08x", (unsigned)get(frame->payload, 4));
            } else if (frame->kind == BUSY) {
                until = now() + 2000000000u + 5000u * (uint64_t)get(frame->payload + 4, 4);
                give_up = until + 5000000000u;
            } else if (frame->kind == (kind | REPLY)) {
                if (frame->status != 0) {
                    fail("the device refused command %d with error %d", kind, frame->status);
                }
                return;
            }
        }
    }
    fail("no answer to command %d", kind);
}

/* ---- The conversation --------------------------------------------------------------------------------------- */

static void open_port(const char *name)
{
    struct termios settings;
    port = open(name, O_RDWR | O_NOCTTY);
    if (port < 0 || tcgetattr(port, &settings) != 0) {
        fail("%s cannot be opened as a serial port", name);
    }
    cfmakeraw(&settings);
    cfsetspeed(&settings, B115200);
    settings.c_cflag |= CLOCAL | CREAD;
    tcsetattr(port, TCSAFLUSH, &settings);
}

static void open_session(frame_t *frame)
{
    uint32_t nonce = 0;
    FILE *random = fopen("/dev/urandom", "rb");
    if (random == NULL || fread(&nonce, sizeof nonce, 1, random) != 1 || fread(&sequence, 2, 1, random) != 1) {
        fail("no random numbers");
    }
    fclose(random);
    nonce |= nonce == 0;
    frame->size = 0;
    request(HELLO, nonce, frame);
    if (get(frame->payload, 2) != 3) {
        fail("the device speaks version %u", (unsigned)get(frame->payload, 2));
    }
    max_payload = get(frame->payload + 2, 2) < 1024 ? get(frame->payload + 2, 2) : 1024;
    session = nonce ^ get(frame->payload + 4, 4);
}

static void write_input(uint32_t tensor, uint32_t bytes, frame_t *frame)
{
    for (uint32_t offset = 0; offset < bytes;) {
        uint32_t part = bytes - offset < max_payload - 8 ? bytes - offset : max_payload - 8;
        put(frame->payload, 0, 2);
        put(frame->payload + 2, tensor, 2);
        put(frame->payload + 4, offset, 4);
        if (fread(frame->payload + 8, 1, part, stdin) != part) {
            fail("the input ends early");
        }
        frame->size = 8 + part;
        request(WRITE, session, frame);
        offset += part;
    }
}

static void read_output(uint32_t tensor, uint32_t bytes, frame_t *frame)
{
    for (uint32_t offset = 0; offset < bytes; offset += frame->size) {
        uint32_t part = bytes - offset < max_payload ? bytes - offset : max_payload;
        put(frame->payload, 0, 2);
        put(frame->payload + 2, tensor, 2);
        put(frame->payload + 4, offset, 4);
        put(frame->payload + 8, part, 2);
        frame->size = 10;
        request(READ, session, frame);
        if (frame->size != part) {
            fail("a read gave %u bytes", (unsigned)frame->size);
        }
        fwrite(frame->payload, 1, part, stdout);
    }
}

int main(int count, char **arguments)
{
    static frame_t frame;
    uint32_t output_tensor[255] = { 0 }, output_bytes[255] = { 0 };
    if (count != 2) {
        fail("usage: client PORT < inputs > outputs");
    }
    open_port(arguments[1]);
    open_session(&frame);
    frame.payload[0] = 0;
    frame.size = 1;
    request(MODEL, session, &frame);
    uint32_t tensors = get(frame.payload + 24, 2), outputs = frame.payload[27];
    for (uint32_t i = 0; i < tensors; i++) {
        put(frame.payload, 0, 2);
        put(frame.payload + 2, i, 2);
        frame.size = 4;
        request(TENSOR, session, &frame);
        uint32_t bytes = get(frame.payload, 4), output = frame.payload[17];
        if (output != 255) {
            output_tensor[output] = i;
            output_bytes[output] = bytes;
        }
        if (frame.payload[16] != 0) {
            write_input(i, bytes, &frame);
        }
    }
    frame.payload[0] = 0;
    frame.size = 1;
    request(RUN, session, &frame);
    for (uint32_t i = 0; i < outputs; i++) {
        read_output(output_tensor[i], output_bytes[i], &frame);
    }
    return 0;
}
