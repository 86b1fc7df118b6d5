/* rlx_add_mve_s8: sum or difference of two tensors of the same shape on MVE (Cortex-M55, M85), four elements at a time.
 *
 * As rlx_add_direct_s8: the operand a is rescaled to the common scale by a product, b with rounding:
 *
 *     h   = (b * factor_b + offset_b), rescaled by multiplier_b and shift_b
 *     sum = h + a * factor + offset                                  (factor < 0 subtracts a)
 *
 * which is rescaled to the output's scale. Both rescalings are those of rlx_gemm_mve.h, ties away from zero.
 * Proved by the generator, over all codes of a and b: h and a * factor + offset are the rescaled operands; |sum| <
 * 2^30; right shifts are 1 to 31. y may be a or b.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_mve.h"
#include "rlx_requant.h"

/* A row, in the order in which the assembly takes it to r0-r12. */
typedef struct {
    const int8_t *a, *b;
    int8_t *out;
    int32_t factor_b, offset_b, multiplier_b, minus_shift_b, factor, offset, multiplier, minus_shift, zero_point, width;
    int32_t low;  /* 52 */
    int32_t high; /* 56 */
} row_t;

#if RLX_MVE

/* The last elements of a row need no code of their own: the loop switches off what lies beyond them. */
RLX_NAKED static void add_row(const row_t *r __attribute__((unused)))
{
    __asm volatile("push {r4-r11, lr}\n"
                   "vpush {d10-d15}\n"
                   "ldrd r1, r2, [r0, #52]\n"
                   "vdup.32 q6, r1\n"
                   "vdup.32 q7, r2\n"
                   "ldm r0, {r0-r12}\n"
                   "vdup.32 q5, r3\n"
                   "wlstp.32 lr, r12, 2f\n"
                   "1:\n"
                   "vldrb.s32 q0, [r1], #4\n"
                   "vmlas.s32 q0, q5, r4\n"
                   "vshr.s32 q1, q0, #31\n"
                   "vqrdmlah.s32 q1, q0, r5\n"
                   "vrshl.s32 q1, r6\n"
                   "vldrb.s32 q0, [r0], #4\n"
                   "vmla.s32 q1, q0, r7\n"
                   "vadd.i32 q1, q1, r8\n"
                   "vshr.s32 q0, q1, #31\n"
                   "vqrdmlah.s32 q0, q1, r9\n"
                   "vrshl.s32 q0, r10\n"
                   "vadd.i32 q0, q0, r11\n"
                   "vmax.s32 q0, q0, q6\n"
                   "vmin.s32 q0, q0, q7\n"
                   "vstrb.32 q0, [r2], #4\n"
                   "letp lr, 1b\n"
                   "2:\n"
                   "vpop {d10-d15}\n"
                   "pop {r4-r11, pc}\n");
}

#else

static int32_t rescaled(int32_t x, int32_t multiplier, int32_t minus_shift)
{
    const int32_t h = rlx_high_mul(x, multiplier) + (x < 0 ? -1 : 0);
    return (int32_t)(((int64_t)h + (INT64_C(1) << (-minus_shift - 1))) >> -minus_shift);
}

static void add_row(const row_t *r)
{
    for (int32_t i = 0; i < r->width; i++) {
        const int32_t b = rescaled(r->b[i] * r->factor_b + r->offset_b, r->multiplier_b, r->minus_shift_b);
        const int32_t sum = b + r->a[i] * r->factor + r->offset;
        const int32_t q = rescaled(sum, r->multiplier, r->minus_shift) + r->zero_point;
        r->out[i] = (int8_t)rlx_bound(q, r->low, r->high);
    }
}

#endif

void rlx_add_mve_s8(const rlx_add_mve_t *p, rlx_view_t a, rlx_view_t b, rlx_view_t y, int32_t y0, int32_t y1)
{
    row_t row = {
        .factor_b = p->factor_b,
        .offset_b = p->offset_b,
        .multiplier_b = p->multiplier_b,
        .minus_shift_b = -p->shift_b,
        .factor = p->factor,
        .offset = p->offset,
        .multiplier = p->multiplier,
        .minus_shift = -p->shift,
        .zero_point = p->out_zp,
        .width = p->width,
        .low = p->low,
        .high = p->high,
    };
    for (int32_t i = y0; i < y1; i++) {
        row.a = rlx_row(a, i);
        row.b = rlx_row(b, i);
        row.out = rlx_row(y, i);
        add_row(&row);
    }
}
