/* rlx_avg_pool_onnx_s8: mean of the real values over windows, in float32, requantized.
 *
 * The rounding rule `onnx`, in integer arithmetic. Sums are made in the order of ONNX Runtime's float kernel: down each
 * column of the window and then over the columns; where windows lie 3 or more columns apart, row by row.
 * x [in_h][in_w][channels], y [out_h][out_w][channels]. x and y must not overlap.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_float.h"
#include "rlx_kernels.h"
#include "rlx_requant.h"
#include "rlx_window.h"

enum { WIDEST_COLUMN_STRIDE = 2 };

/* (q - x_zp) * x_scale of channel c, at row ky and column kx of the window */
static rlx_float_t real_at(
    const rlx_pool_onnx_t *p, rlx_view_t x, const rlx_window_t *win, int32_t ky, int32_t kx, int32_t c)
{
    const int8_t *pixel = rlx_row(x, win->y0 + ky) + (win->x0 + kx) * p->channels;
    return rlx_scale_float(pixel[c] - p->x_zp, rlx_float_of_bits((uint32_t)p->x_scale));
}

static rlx_float_t window_sum(const rlx_pool_onnx_t *p, rlx_view_t x, const rlx_window_t *win, int32_t c)
{
    const int32_t rows = win->ky1 - win->ky0;
    const int32_t columns = win->kx1 - win->kx0;
    rlx_float_t sum = {0, 0};
    if (p->stride_w <= WIDEST_COLUMN_STRIDE) {
        for (int32_t kx = 0; kx < columns; kx++) {
            rlx_float_t column = {0, 0};
            for (int32_t ky = 0; ky < rows; ky++) {
                column = rlx_add_floats(column, real_at(p, x, win, ky, kx, c));
            }
            sum = rlx_add_floats(sum, column);
        }
    } else {
        for (int32_t ky = 0; ky < rows; ky++) {
            for (int32_t kx = 0; kx < columns; kx++) {
                sum = rlx_add_floats(sum, real_at(p, x, win, ky, kx, c));
            }
        }
    }
    return sum;
}

void rlx_avg_pool_onnx_s8(const rlx_pool_onnx_t *p, rlx_view_t x, rlx_view_t y, int32_t y0, int32_t y1)
{
    const rlx_float_t out_scale = rlx_float_of_bits((uint32_t)p->out_scale);
    for (int32_t oy = y0; oy < y1; oy++) {
        int8_t *out = rlx_row(y, oy);
        for (int32_t ox = 0; ox < p->out_w; ox++) {
            const int32_t top = oy * p->stride_h - p->pad_top;
            const int32_t left = ox * p->stride_w - p->pad_left;
            rlx_window_t win;
            rlx_clip_taps(top, 1, p->k_h, p->in_h, &win.ky0, &win.ky1);
            rlx_clip_taps(left, 1, p->k_w, p->in_w, &win.kx0, &win.kx1);
            win.y0 = top + win.ky0;
            win.x0 = left + win.kx0;
            const int32_t inside = (win.ky1 - win.ky0) * (win.kx1 - win.kx0);
            const rlx_float_t count = {p->count_pad != 0 ? p->k_h * p->k_w : inside, 0};
            for (int32_t c = 0; c < p->channels; c++) {
                const rlx_float_t mean = rlx_divide_floats(window_sum(p, x, &win, c), count);
                const int32_t q = rlx_round_float(rlx_divide_floats(mean, out_scale)) + p->out_zp;
                *out++ = (int8_t)rlx_bound(q, p->low, p->high);
            }
        }
    }
}
