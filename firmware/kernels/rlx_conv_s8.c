/* rlx_conv_s8: int8 convolution with int32 accumulators, the portable kernel that defines the meaning.
 *
 * x [in_h][in_w][in_c], weights [out_c][k_h][k_w][in_c / groups], y [out_h][out_w][out_c]. Any stride, dilation,
 * padding, number of groups and zero point. No scratch. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

/* sum of (x - x_zp) * (w - w_zp) */
static inline int32_t dot(const int8_t *x, const int8_t *w, int32_t n, int32_t x_zp, int32_t w_zp)
{
    int32_t sum = 0;
    if (w_zp == 0) {
        for (int32_t i = 0; i < n; i++) {
            sum += (x[i] - x_zp) * w[i];
        }
    } else {
        for (int32_t i = 0; i < n; i++) {
            sum += (x[i] - x_zp) * (w[i] - w_zp);
        }
    }
    return sum;
}

static void conv_pixel(const rlx_conv_t *p, rlx_view_t x, rlx_window_t win, int8_t *out)
{
    const int32_t group_in = p->in_c / p->groups;
    const int32_t group_out = p->out_c / p->groups;
    /* Without dilation and groups, the taps of a kernel row are neighbors in memory: one long run. */
    const bool joined = p->dilation_w == 1 && p->groups == 1;
    const int32_t run = joined ? (win.kx1 - win.kx0) * p->in_c : group_in;
    const int32_t runs = joined ? (win.kx1 > win.kx0 ? 1 : 0) : win.kx1 - win.kx0;
    for (int32_t c = 0; c < p->out_c; c++) {
        const int32_t first = win.x0 * p->in_c + c / group_out * group_in;
        const int8_t *w = p->weights + (c * p->k_h + win.ky0) * p->k_w * group_in + win.kx0 * group_in;
        int32_t acc = p->bias[c];
        for (int32_t ky = win.ky0; ky < win.ky1; ky++, w += p->k_w * group_in) {
            const int8_t *row = rlx_row(x, win.y0 + (ky - win.ky0) * p->dilation_h) + first;
            for (int32_t r = 0; r < runs; r++) {
                acc += dot(row + r * p->dilation_w * p->in_c, w + r * group_in, run, p->x_zp, p->w_zp);
            }
        }
        const int32_t i = c * p->per_channel;
        acc = rlx_rescale(acc, p->multipliers[i], p->shifts[i]) + p->out_zp;
        out[c] = (int8_t)rlx_bound(acc, p->low, p->high);
    }
}

void rlx_conv_s8(const rlx_conv_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++, out += p->out_c) {
            conv_pixel(p, x, rlx_conv_window(p, oy, ox), out);
        }
    }
}
