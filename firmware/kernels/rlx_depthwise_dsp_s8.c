/* rlx_depthwise_dsp_s8: int8 depthwise convolution of up to 3x3 taps for the DSP extension (Cortex-M4, M7, M33).
 *
 * x [in_h][in_w][channels], y [out_h][out_w][channels]. The output is computed in tiles of tile_h rows x tile_w columns.
 * For a tile, 4 channels at a time are copied to planes in scratch (rlx_planes_dsp.h), with x_zp around the image; then
 * each of the 4 channels computes the tile with its weights in registers. Lines of a plane run along x, or along y
 * (along_y) where the image is narrow. A smaller kernel has taps of weight 0 below and to the right; these meet whatever
 * lies in the planes.
 *
 * Proved by the generator: rlx_dsp.h's conditions; outputs of a line * inner stride <= 30, inner stride 1 or 2.
 * Scratch: 32 + 4 * 32 * ((outer outputs of a tile - 1) * outer stride + 3) bytes.
 * In a tile the input of 4 channels is read before any of their outputs is written. So y may be x where one tile holds
 * the whole image. Bounds other than [-128, 127] are applied to the tile's outputs at its end.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_depthwise_dsp.h"
#include "rlx_kernels.h"

enum { LANES = 4 };

/* Output rows [y0, y0 + h) and columns [x0, x0 + w); `first_line` of the first plane lies in `planes`. */
typedef struct {
    int32_t y0, x0, h, w;
    int8_t *planes, *first_line;
    int32_t plane_bytes;
} tile_t;

/* The pixels of x that a tile needs: window positions count from (top, left), which may lie outside. */
typedef struct {
    int32_t top, left, y0, y1, x0, x1;
} area_t;

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static area_t area_of(const rlx_depthwise_dsp_t *p, const tile_t *tile)
{
    area_t area;
    area.top = tile->y0 * p->stride_h - p->pad_top;
    area.left = tile->x0 * p->stride_w - p->pad_left;
    area.y0 = area.top < 0 ? 0 : area.top;
    area.x0 = area.left < 0 ? 0 : area.left;
    area.y1 = least(p->in_h, area.top + (tile->h - 1) * p->stride_h + p->k_h);
    area.x1 = least(p->in_w, area.left + (tile->w - 1) * p->stride_w + p->k_w);
    return area;
}

/* All of the four planes, and what the last line's last loads reach beyond. */
static void fill_planes(const tile_t *tile, int32_t value)
{
    const uint32_t word = (uint32_t)(value & 0xFF) * 0x01010101u;
    uint32_t *w = (uint32_t *)(void *)tile->planes;
    for (uint32_t *end = w + tile->plane_bytes + 4; w != end; w += 4) {
        w[0] = w[1] = w[2] = w[3] = word;
    }
}

/* Channels [c, c + LANES) of the area (or all, where there are fewer), a run of rows that follow each other at a time. */
static void copy_area(const rlx_depthwise_dsp_t *p, rlx_view_t x, const tile_t *tile, const area_t *area, int32_t c)
{
    const int32_t columns = area->x1 - area->x0;
    for (int32_t row = area->y0, rows = 0; row < area->y1; row += rows) {
        rows = area->y1 - row;
        if (x.ring != 0) {
            rows = least(rows, x.ring - row % x.ring);
        }
        const int32_t pixels = p->along_y != 0 ? rows : columns;
        rlx_planes_t job;
        job.pixel_step = p->along_y != 0 ? x.pitch : p->channels;
        job.line_advance = (p->along_y != 0 ? p->channels : x.pitch) - pixels * job.pixel_step;
        job.plane_bytes = tile->plane_bytes;
        job.three_pixels = 3 * job.pixel_step;
        job.three_planes = 3 * tile->plane_bytes;
        job.lines = p->along_y != 0 ? columns : rows;
        job.quads = pixels / 4;
        job.singles = pixels % 4;
        job.plane_advance = RLX_PLANE_PITCH - pixels;
        const int32_t line = p->along_y != 0 ? area->x0 - area->left : row - area->top;
        const int32_t place = p->along_y != 0 ? row - area->top : area->x0 - area->left;
        int8_t *plane = tile->first_line + line * RLX_PLANE_PITCH + place;
        const int8_t *source = rlx_row(x, row) + area->x0 * p->channels + c;
        if (p->channels < LANES) {
            rlx_planes_copy_bytes(plane, source, &job, p->channels);
        } else {
            rlx_planes_copy(plane, source, &job);
        }
    }
}

static rlx_lines_t lines_of(const rlx_depthwise_dsp_t *p, rlx_view_t y, const tile_t *tile)
{
    const int32_t along_y = p->along_y;
    const int32_t lines = along_y != 0 ? tile->w : tile->h;
    const int32_t line_bytes = RLX_PLANE_PITCH * (along_y != 0 ? p->stride_w : p->stride_h);
    rlx_lines_t job;
    job.channels = 0;
    job.outputs = along_y != 0 ? tile->h : tile->w;
    job.stride = along_y != 0 ? p->stride_h : p->stride_w;
    job.pixel_step = along_y != 0 ? y.pitch : p->channels;
    job.odd = job.outputs % 2;
    job.skip = job.outputs / 2 % RLX_UNROLL * (job.stride == 1 ? RLX_PAIR_1_CODE : RLX_PAIR_2_CODE);
    job.plane_step = line_bytes - job.outputs * job.stride;
    job.line_step = along_y != 0 ? p->channels : y.pitch;
    job.out_step = job.line_step - job.outputs * job.pixel_step;
    job.span = lines * line_bytes;
    job.plane_bytes = tile->plane_bytes;
    job.two_zp = 2 * p->out_zp + 1;
    job.double_odd = job.odd;
    job.double_skip = job.outputs / 2 % RLX_UNROLL * RLX_BLOCK_CODE;
    job.double_plane_step = job.plane_step + line_bytes;
    job.double_out_step = job.out_step + job.line_step;
    job.double_span = p->stride_h == 1 && p->stride_w == 1 ? lines / 2 * 2 * line_bytes : 0;
    job.double_pixel_step = job.pixel_step;
    return job;
}

static void compute_tile(const rlx_depthwise_dsp_t *p, rlx_view_t x, rlx_view_t y, tile_t *tile)
{
    const int32_t reach_h = (tile->h - 1) * p->stride_h + 3;
    const int32_t reach_w = (tile->w - 1) * p->stride_w + 3;
    rlx_lines_t job = lines_of(p, y, tile);
    tile->plane_bytes = RLX_PLANE_PITCH * (p->along_y != 0 ? reach_w : reach_h);
    tile->first_line = tile->planes + RLX_PLANE_PITCH - job.outputs * job.stride;
    job.plane_bytes = tile->plane_bytes;
    const area_t area = area_of(p, tile);
    if (area.y1 - area.y0 != reach_h || area.x1 - area.x0 != reach_w) {
        fill_planes(tile, p->x_zp);
    }
    int8_t *out = rlx_row(y, tile->y0) + tile->x0 * p->channels;
    for (int32_t c = 0; c < p->channels; c += LANES) {
        /* The last group is moved back so as to be full, but computes only the channels that are left. */
        const int32_t first = p->channels < LANES ? 0 : least(c, p->channels - LANES);
        job.channels = least(LANES, p->channels - c);
        if (area.x0 < area.x1) {
            copy_area(p, x, tile, &area, first);
        }
        rlx_lines(tile->first_line + (c - first) * tile->plane_bytes, out + c, p->stream + c * RLX_DEPTHWISE_RECORD, &job);
    }
    if (p->low > -128 || p->high < 127) {
        for (int32_t row = tile->y0; row < tile->y0 + tile->h; row++) {
            rlx_dsp_clamp(rlx_row(y, row) + tile->x0 * p->channels, tile->w * p->channels, p->low, p->high);
        }
    }
}

void rlx_depthwise_dsp_s8(
    const rlx_depthwise_dsp_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    tile_t tile;
    tile.planes = (int8_t *)scratch + (-(uintptr_t)scratch & (RLX_PLANE_PITCH - 1));
    for (tile.y0 = y0; tile.y0 < y1; tile.y0 += tile.h) {
        tile.h = least(p->tile_h, y1 - tile.y0);
        if (y.ring != 0) { /* the rows of a tile lie one after the other */
            tile.h = least(tile.h, y.ring - tile.y0 % y.ring);
        }
        for (tile.x0 = 0; tile.x0 < p->out_w; tile.x0 += tile.w) {
            tile.w = least(p->tile_w, p->out_w - tile.x0);
            compute_tile(p, x, y, &tile);
        }
    }
}
