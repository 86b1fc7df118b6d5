/* bench.c: a test application that exercises firmware/soc/ by one-letter commands on the UART.
 *
 * Once it is ready it sends '!' in answer to each '!' (a byte sent before that may be lost). A fault sends 'F' and the
 * fault record. Every other answer is little-endian 32-bit words:
 *   ?        reset reason, boot id, count_hz, image start, image size, stack bytes unused, CPUID
 *   E n(u32) then n bytes follow, each sent back
 *   L n(u32) ticks (low, high) of a loop of n rounds, 3 instructions each
 *   M        ticks (low, high) of each step of the model, one pair a step
 *   U        data fault: a read from an address where nothing is
 *   S        stack overflow
 *   R        reset
 *   X n(u32) exit with code n
 */
#include <stddef.h>

#include "rlx.h"
#include "rlx_soc.h"

extern const rlx_model_t *const rlx_app_models[];
extern const uint32_t rlx_app_model_count;
extern uint8_t rlx_app_arena[];

int main(void);
uint32_t bench_read_nowhere(void);
uint32_t bench_overflow_stack(volatile uint32_t *above, uint32_t depth);

static uint32_t initialized = 0x12345678u; /* proves that .data is copied */
static uint32_t zeroed;

static void send_words(const uint32_t *words, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t bytes[4] = {(uint8_t)words[i], (uint8_t)(words[i] >> 8), (uint8_t)(words[i] >> 16),
                                  (uint8_t)(words[i] >> 24)};
        rlx_soc_uart_write(bytes, 4u);
    }
}

static uint8_t receive(void)
{
    uint8_t byte = 0;
    while (rlx_soc_uart_read(&byte, 1u) == 0u) {
    }
    return byte;
}

static uint32_t receive_word(void)
{
    uint32_t word = 0;
    for (uint32_t shift = 0; shift < 32u; shift += 8u) {
        word |= (uint32_t)receive() << shift;
    }
    return word;
}

void rlx_app_fault(const rlx_fault_t *fault)
{
    const uint8_t mark = 'F';
    rlx_soc_uart_write(&mark, 1u);
    send_words(&fault->pc, sizeof *fault / 4u);
}

static void send_state(void)
{
    const uint8_t *image;
    uint32_t words[7];
    rlx_soc_image(&image, &words[4]);
    words[0] = rlx_soc_reset_reason();
    words[1] = rlx_soc_boot_id();
    words[2] = rlx_soc_count_hz();
    words[3] = (uint32_t)(uintptr_t)image;
    words[5] = rlx_soc_stack_unused();
    words[6] = *(volatile uint32_t *)0xE000ED00u;
    send_words(words, 7u);
}

static void echo(uint32_t left)
{
    uint8_t chunk[64];
    while (left > 0u) {
        const uint32_t count = rlx_soc_uart_read(chunk, left < sizeof chunk ? left : (uint32_t)sizeof chunk);
        rlx_soc_uart_write(chunk, count);
        left -= count;
    }
}

static void send_ticks(uint64_t ticks)
{
    const uint32_t words[2] = {(uint32_t)ticks, (uint32_t)(ticks >> 32)};
    send_words(words, 2u);
}

/* Between the counter's start and stop, 3 instructions a round: nop, subs, bne. */
static void count_loop(uint32_t rounds)
{
    rlx_soc_count_start();
    __asm volatile(".syntax unified\n"
                   "1:\n\t"
                   "nop\n\t"
                   "subs %0, #1\n\t"
                   "bne 1b"
                   : "+l"(rounds)::"cc");
    send_ticks(rlx_soc_count_stop());
}

static void count_steps(const rlx_model_t *model)
{
    for (uint32_t i = 0; i < model->steps; i++) {
        rlx_soc_count_start();
        model->step(rlx_app_arena, i);
        send_ticks(rlx_soc_count_stop());
    }
}

__attribute__((noinline)) uint32_t bench_read_nowhere(void)
{
    return *(volatile uint32_t *)0x24000000u; /* the line that the test looks for: DATA FAULT */
}

__attribute__((noinline)) uint32_t bench_overflow_stack(volatile uint32_t *above, uint32_t depth)
{
    volatile uint32_t here[16];
    here[0] = *above + depth;
    if (depth < 1000000u) {
        here[1] = bench_overflow_stack(here, depth + 1u);
    }
    return here[0] + here[1];
}

int main(void)
{
    if (initialized != 0x12345678u || zeroed != 0u) {
        rlx_soc_exit(99u);
    }
    initialized = 1u; /* a reset must bring the value back */
    zeroed = 1u;
    rlx_soc_stack_paint();
    for (;;) {
        const uint8_t command = receive();
        if (command == '!') {
            rlx_soc_uart_write(&command, 1u);
        } else if (command == '?') {
            send_state();
        } else if (command == 'E') {
            echo(receive_word());
        } else if (command == 'L') {
            count_loop(receive_word());
        } else if (command == 'M') {
            count_steps(rlx_app_models[0]);
        } else if (command == 'U') {
            (void)bench_read_nowhere();
        } else if (command == 'S') {
            volatile uint32_t zero = 0u;
            (void)bench_overflow_stack(&zero, 0u);
        } else if (command == 'R') {
            rlx_soc_reset();
        } else if (command == 'X') {
            rlx_soc_exit(receive_word());
        }
    }
}
