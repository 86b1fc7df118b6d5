/* boot.c: why the chip started, which boot this is, and how to start it again.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "soc_parts.h"

#define KEPT_MAGIC 0x524C5842u /* "RLXB" */
#define MARK_SOFTWARE 0x534F4654u
#define MARK_FAULT 0x4641554Cu

/* RAM that start-up leaves alone. It survives every reset but a power loss. */
static struct {
    uint32_t magic;
    uint32_t magic_inverted;
    uint32_t boots; /* starts from whatever the RAM held at power-on */
    uint32_t mark;
} kept __attribute__((section(".noinit")));

static uint32_t reset_reason;

static uint32_t find_reset_reason(void)
{
    const uint32_t cause = rlx_chip_reset_cause();
    if (kept.magic != KEPT_MAGIC || kept.magic_inverted != ~KEPT_MAGIC) {
        return RLX_RESET_POWER_ON;
    }
    if (kept.mark == MARK_SOFTWARE) {
        return RLX_RESET_SOFTWARE;
    }
    if (kept.mark == MARK_FAULT) {
        return RLX_RESET_FAULT;
    }
    /* RAM kept, nobody in here asked for it: where the chip keeps no record it was the reset line. */
    return cause == RLX_RESET_UNKNOWN ? (uint32_t)RLX_RESET_PIN : cause;
}

void rlx_soc_init(void)
{
    reset_reason = find_reset_reason();
    kept.magic = KEPT_MAGIC;
    kept.magic_inverted = ~KEPT_MAGIC;
    kept.boots++;
    kept.mark = 0u;
#if RLX_SETUP_STEPS > 0
    rlx_setup_run();
#endif
    rlx_counter_init();
    rlx_uart_init();
}

uint32_t rlx_soc_reset_reason(void) { return reset_reason; }

/* One-to-one on 32 bits (the finalizer of MurmurHash3), so that different counts give different ids. */
static uint32_t scramble(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ (x >> 16);
}

uint32_t rlx_soc_boot_id(void)
{
    static uint32_t id;
    static uint32_t known;
    if (known == 0u) {
        /* The low byte is the count alone: neighboring boots differ for certain. */
        const uint32_t chance = scramble(rlx_counter_now() ^ scramble(kept.boots));
        id = (chance & 0xFFFFFF00u) | (kept.boots & 0xFFu);
        known = 1u;
    }
    return id;
}

void rlx_boot_mark_fault(void) { kept.mark = MARK_FAULT; }

void rlx_soc_reset(void)
{
    if (kept.mark != MARK_FAULT) {
        kept.mark = MARK_SOFTWARE;
    }
    rlx_barrier();
    SCB_AIRCR = 0x05FA0004u; /* key, SYSRESETREQ */
    rlx_barrier();
    for (;;) {
    }
}

void rlx_soc_image(const uint8_t **start, uint32_t *size)
{
    *start = __rlx_image_start;
    *size = (uint32_t)((uintptr_t)__rlx_image_end - (uintptr_t)__rlx_image_start);
}
