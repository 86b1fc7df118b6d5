/* rlx_soc.h: what a chip does for the firmware: start-up, one UART, one counter, faults, resets.
 *
 * One image serves one board; rlx_board.h, which the build writes from the board file, holds the board's numbers.
 * Call all of it from one context (thread mode), unless a function says otherwise. Nothing blocks unless it says so.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_SOC_H
#define RLX_SOC_H

#include <stdint.h>

/* ---- Start and end ---------------------------------------------------------------------------------------- */

/* Called by the start-up code before main(), once .data and .bss are set up. */
void rlx_soc_init(void);

/* Which step of the board's set-up (see rlx_board_setup.c in the build), counted from 1, waited in vain for the chip;
 * 0 if none did. Then clocks, and with them baud rates and counts, may be other than the board's file says. */
uint32_t rlx_soc_setup_failed(void);

/* Resets the chip (SYSRESETREQ). The next boot reports RLX_RESET_SOFTWARE. */
_Noreturn void rlx_soc_reset(void);

/* Ends the emulator with this exit code where the image was built with RLX_SEMIHOSTING; stops for ever elsewhere. */
_Noreturn void rlx_soc_exit(uint32_t code);

typedef enum {
    RLX_RESET_UNKNOWN = 0,
    RLX_RESET_POWER_ON = 1,
    RLX_RESET_PIN = 2,      /* the reset line: a button, a probe, the emulator's system_reset */
    RLX_RESET_SOFTWARE = 3, /* rlx_soc_reset() */
    RLX_RESET_WATCHDOG = 4,
    RLX_RESET_FAULT = 5     /* the fault handler, after rlx_app_fault() */
} rlx_reset_reason_t;

/* Why the chip started: one of rlx_reset_reason_t, the same answer until the next reset. */
uint32_t rlx_soc_reset_reason(void);

/* A number that stays the same until the next reset and then changes. Boots without a power loss between them
 * differ for certain; others differ by chance, so call it first when a byte has come in: the moment of that call is
 * what tells two otherwise equal boots apart. */
uint32_t rlx_soc_boot_id(void);

/* The flash bytes of this image: vector table to the last byte that start-up copies to RAM. */
void rlx_soc_image(const uint8_t **start, uint32_t *size);

/* ---- UART ------------------------------------------------------------------------------------------------- */

/* Takes up to capacity bytes that have arrived and returns how many, 0 if none. An interrupt keeps RLX_UART_RING_BYTES
 * of what arrives between two calls; what comes beyond that is lost, but for what the UART itself holds. */
uint32_t rlx_soc_uart_read(uint8_t *data, uint32_t capacity);
/* Holds that interrupt off until the next rlx_soc_uart_read(), so that it disturbs no measurement. */
void rlx_soc_uart_pause(void);
/* Sleeps until a byte arrives (or anything else wakes the core), which may have happened already. */
void rlx_soc_idle(void);

/* Blocks until all bytes are handed to the UART. */
void rlx_soc_uart_write(const uint8_t *data, uint32_t size);

/* ---- Counter ---------------------------------------------------------------------------------------------- */

/* Ticks between start and stop, less what an empty region costs; wraps are counted. Regions do not nest.
 * Interrupts must be on. Under QEMU with -icount shift=7, instructions = ticks * 1e9 / (rlx_soc_count_hz() * 128). */
void rlx_soc_count_start(void);
uint64_t rlx_soc_count_stop(void);
uint32_t rlx_soc_count_hz(void);

/* ---- Stack ------------------------------------------------------------------------------------------------ */

/* Paints the stack below the caller; later, the bytes that still carry the paint are those never used. */
void rlx_soc_stack_paint(void);
uint32_t rlx_soc_stack_unused(void);

/* ---- Faults ----------------------------------------------------------------------------------------------- */

/* Registers at the fault. pc, lr, psr and r0 are 0 when the core could not save them, which means stack overflow.
 * cfsr, hfsr and bfar are 0 on Armv6-M and Armv8-M Baseline. sp is the stack pointer of the faulting code. */
typedef struct {
    uint32_t pc, lr, psr, cfsr, hfsr, bfar, r0, sp;
} rlx_fault_t;

/* Supplied by the application; called in the fault handler, with interrupts held off and on a stack that is good.
 * It may write to the UART. When it returns, the chip is reset. */
void rlx_app_fault(const rlx_fault_t *fault);

#endif
