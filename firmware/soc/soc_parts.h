/* soc_parts.h: what the files of soc/ need from each other. Not for applications.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef RLX_SOC_PARTS_H
#define RLX_SOC_PARTS_H

#include <stdint.h>

#include "rlx_board.h"
#include "rlx_soc.h"

#define RLX_REG(address) (*(volatile uint32_t *)(uintptr_t)(address))

/* System control block; the same on every Cortex-M. */
#define SCB_ICSR RLX_REG(0xE000ED04u)
#define SCB_VTOR RLX_REG(0xE000ED08u)
#define SCB_AIRCR RLX_REG(0xE000ED0Cu)
#define SCB_CCR RLX_REG(0xE000ED14u)
#define SCB_CFSR RLX_REG(0xE000ED28u)
#define SCB_HFSR RLX_REG(0xE000ED2Cu)
#define SCB_BFAR RLX_REG(0xE000ED38u)
#define SCB_CPACR RLX_REG(0xE000ED88u)
#define MPU_TYPE RLX_REG(0xE000ED90u)
#define MPU_CTRL RLX_REG(0xE000ED94u)
#define MPU_RNR RLX_REG(0xE000ED98u)
#define MPU_RBAR RLX_REG(0xE000ED9Cu)
#define MPU_RASR RLX_REG(0xE000EDA0u)

/* Armv7-M and Armv8-M Mainline have VTOR, CFSR, HFSR and BFAR; Armv6-M and Armv8-M Baseline lack some of them. */
#if defined(__ARM_ARCH_7M__) || defined(__ARM_ARCH_7EM__) || defined(__ARM_ARCH_8M_MAIN__) || \
    defined(__ARM_ARCH_8_1M_MAIN__)
#define RLX_MAINLINE 1
#else
#define RLX_MAINLINE 0
#endif

/* What stops a stack that grows too deep: a stack limit register, or a region of the Armv7-M MPU, or nothing. */
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
#define RLX_HAS_MSPLIM 1
#else
#define RLX_HAS_MSPLIM 0
#endif
#if defined(__ARM_ARCH_7M__) || defined(__ARM_ARCH_7EM__)
#define RLX_MAY_HAVE_MPU 1
#else
#define RLX_MAY_HAVE_MPU 0
#endif

static inline void rlx_barrier(void) { __asm volatile("dsb\n\tisb" ::: "memory"); }

/* From the linker script: only the addresses mean anything. */
extern uint32_t __stack_limit[], __stack_top[];
extern const uint8_t __rlx_image_start[], __rlx_image_end[];

typedef void (*rlx_handler_t)(void);

/* uart_*.c. rlx_uart_take(): moves up to capacity received bytes to data and returns how many; clears overruns, and the
 * interrupt's request once no byte is left. */
void rlx_uart_init(void);
uint32_t rlx_uart_take(uint8_t *data, uint32_t capacity);

/* counter_*.c. rlx_counter_now(): a fast free-running count, for boot ids only. */
void rlx_counter_init(void);
uint32_t rlx_counter_now(void);

/* rlx_board_setup.c, which the build writes: done in order by setup.c. A change gives the bits of mask the value and
 * leaves the others; a wait polls until the bits of mask read value. */
typedef enum { RLX_SETUP_WRITE, RLX_SETUP_CHANGE, RLX_SETUP_WAIT } rlx_setup_kind_t;

typedef struct {
    rlx_setup_kind_t kind;
    uint32_t address, mask, value;
} rlx_setup_step_t;

void rlx_setup_run(void);

/* caches.c */
void rlx_caches_enable(void);

/* reset_cause_*.c: what the chip's own register says, RLX_RESET_UNKNOWN where it says nothing. Clears the register. */
uint32_t rlx_chip_reset_cause(void);

/* boot.c: remembers over the coming reset that a fault was its reason. */
void rlx_boot_mark_fault(void);

#endif
