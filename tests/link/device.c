/* device.c: the link on the host, over a file descriptor: `device FD [quiet]`. Stands in for a board in the fast tests.
 *
 * Exits when the other end closes.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "models.h"

static int line;
static jmp_buf boot;
static uint32_t boots;
static uint32_t reason = 1;
static rlx_link_t the_link;
static uint8_t image[100000];
static const uint32_t uid[3] = { 0x44332211u, 0x88776655u, 0xCCBBAA99u };

static uint32_t read_line(void *ctx, uint8_t *data, uint32_t capacity)
{
    struct pollfd wait = { line, POLLIN, 0 };
    (void)ctx;
    if (poll(&wait, 1, 100) <= 0) {
        return 0;
    }
    ssize_t size = read(line, data, capacity);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EIO)) {
        exit(0);
    }
    if (size < 0) { /* EIO: nobody has the pty open */
        poll(NULL, 0, 10);
    }
    return size < 0 ? 0 : (uint32_t)size;
}

static void write_line(void *ctx, const uint8_t *data, uint32_t size)
{
    (void)ctx;
    while (size != 0) {
        ssize_t sent = write(line, data, size);
        if (sent < 0 && errno != EAGAIN) {
            exit(0);
        }
        if (sent > 0) {
            data += sent;
            size -= (uint32_t)sent;
        }
    }
}

static void print(const char *text)
{
    write_line(NULL, (const uint8_t *)text, (uint32_t)strlen(text));
}

static void restart(void *ctx)
{
    (void)ctx;
    reason = 3;
    longjmp(boot, 1);
}

static uint32_t boot_id(void *ctx)
{
    (void)ctx;
    return 0x1000 + boots;
}

static uint64_t started;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void count_start(void *ctx)
{
    (void)ctx;
    started = now();
}

static uint64_t count_stop(void *ctx)
{
    (void)ctx;
    return now() - started;
}

static uint32_t painted;

static void stack_paint(void *ctx)
{
    (void)ctx;
    painted = 1000;
}

/* Gives 1000, then 900: a step "used" 100 bytes. */
static uint32_t stack_unused(void *ctx)
{
    (void)ctx;
    painted -= 100;
    return painted + 100;
}

void test_crash(crash_t how)
{
    static const rlx_link_fault_t fault = { 0x123, 0x457, 0x01000003, 0x8200, 0x40000000, 0xDEAD0000, 7, 0x20001000 };
    if (how == CRASH_FAULT) {
        rlx_link_fault(&the_link, &fault);
        reason = 5;
        longjmp(boot, 1);
    } else if (how == CRASH_RESET) {
        reason = 4;
        longjmp(boot, 1);
    } else if (how == CRASH_HANG) {
        print("going to sleep\n");
        for (;;) {
            pause();
        }
    } else if (how == CRASH_TEXT) {
        print("hello from the step\r\nand again\r\n");
    }
}

int main(int count, char **arguments)
{
    static const rlx_link_port_t full = {
        .read = read_line, .write = write_line, .reset = restart, .boot_id = boot_id,
        .count_start = count_start, .count_stop = count_stop, .stack_paint = stack_paint,
        .stack_unused = stack_unused, .uid = uid, .uid_words = 3, .image = image, .image_bytes = sizeof image,
        .count_hz = 1000000000, .ring_bytes = 4096, /* what the socket holds is far more */
        .device = "host",
    };
    static const rlx_link_port_t bare = { .read = read_line, .write = write_line };
    static rlx_link_port_t port;
    static uint8_t *arena;

    line = count > 1 ? atoi(arguments[1]) : 0;
    fcntl(line, F_SETFL, fcntl(line, F_GETFL) | O_NONBLOCK);
    arena = aligned_alloc(16, TEST_ARENA_BYTES); /* of its exact size, for the address sanitizer */
    port = count > 2 ? bare : full;
    for (uint32_t i = 0; i < sizeof image; i++) {
        image[i] = (uint8_t)(i * 7 + 3);
    }
    if (setjmp(boot) != 0) {
        boots++;
    }
    print("boot\n");
    port.reset_reason = reason;
    rlx_link_init(&the_link, &port, test_models, TEST_MODELS, arena, TEST_ARENA_BYTES);
    for (;;) {
        rlx_link_poll(&the_link);
    }
}
