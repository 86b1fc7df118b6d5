/* main.c: somebody's own firmware with a generated model and the serial link in it; no part of rlx-edge's firmware.
 *
 * For the Arm MPS2 with image AN386 (Cortex-M4), as QEMU emulates it. docs/own-firmware.md has the commands.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "digits/digits.h"
#include "link/rlx_link.h"

/* ---- The board: a vector table and a polled UART -------------------------------------------------------------- */

#define UART_DATA (*(volatile uint32_t *)0x40004000u)
#define UART_STATE (*(volatile uint32_t *)0x40004004u) /* bit 0: transmitter full, bit 1: a byte has arrived */
#define UART_CONTROL (*(volatile uint32_t *)0x40004008u)
#define UART_DIVIDER (*(volatile uint32_t *)0x40004010u)

extern uint32_t stack_top, data_source, data_start, data_end, bss_end;
int main(void);

static void reset_handler(void)
{
    uint32_t *from = &data_source;
    for (uint32_t *to = &data_start; to < &data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = &data_end; to < &bss_end; to++) {
        *to = 0;
    }
    (void)main();
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (const void *)reset_handler,
};

static uint32_t uart_read(void *ctx, uint8_t *data, uint32_t capacity)
{
    (void)ctx;
    uint32_t count = 0;
    while (count < capacity && (UART_STATE & 2u) != 0u) {
        data[count++] = (uint8_t)UART_DATA;
    }
    return count;
}

static void uart_write(void *ctx, const uint8_t *data, uint32_t size)
{
    (void)ctx;
    for (uint32_t i = 0; i < size; i++) {
        while ((UART_STATE & 1u) != 0u) {
        }
        UART_DATA = data[i];
    }
}

/* ---- The program ----------------------------------------------------------------------------------------------- */

static digits_arena_t arena;
static rlx_link_t the_link;

int main(void)
{
    static const rlx_model_t *const models[] = {&digits_model};
    static const rlx_link_port_t port = {.read = uart_read, .write = uart_write, .device = "my-own-board"};

    UART_DIVIDER = 25000000u / 115200u;
    UART_CONTROL = 3u; /* transmit and receive */

    rlx_link_init(&the_link, &port, models, 1, arena.bytes, sizeof arena);
    for (;;) {
        rlx_link_poll(&the_link);
        /* The rest of the product's work goes here; digits_run(&arena) works at any time between two polls. */
    }
}
