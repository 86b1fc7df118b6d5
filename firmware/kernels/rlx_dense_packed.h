/* rlx_dense_packed.h: matrix products with weights of 4 and 2 bits on Armv6-M and Armv7-M: two output channels in a
 * multiplication. x [rows][in_c], y [rows][out_c]; each row of x is computed by itself.
 *
 * Weights are digits without a sign, u = w + B / 2 with B = 2^RLX_BITS. A word masked with B - 1 in each half, as it is or
 * shifted, gives u_c + (u_d << 16) of two channels c and d = c + 1 for one input a: times a, two products. What is too
 * much is the same for all channels: B / 2 times the sum of the inputs, in each half. So a field register begins with
 * 2^15 and that taken off, and after a chunk of inputs holds 2^15 + s_c + (s_d << 16), the s being sums of w * a (on
 * Armv7-M their negatives). The generator proves that -2^15 < s < 2^15 for each chunk and channel, whatever the inputs
 * are, so that both can be told.
 * Chunks have p->chunk inputs, a multiple of 8; the first one may have fewer, p->first, and then has weights 0 before them up
 * to a multiple of 8.
 *
 * stream, for each RLX_DENSE_GROUP output channels or what is left of them, up to a multiple of RLX_DENSE_LEAST:
 *   int32 what each sum begins with: the bias (Armv7-M: its negative), of each even channel less 2^15 per chunk
 *   for each chunk, for each 8 channels (or the 4 that are left): words. In half a word there are 16 / RLX_BITS places, in
 *       the other half as many. Channels (0, 1) of an input take a place of both, then (2, 3) and so on, then the next
 *       input's, without gaps
 *   for each channel of y: its rescale
 *
 * scratch: sums of a group, 4 bytes a channel; on Armv6-M then 4 bytes for each input of a chunk. x and y must not overlap.
 * A core's header defines RLX_DENSE_SIGN, RLX_DENSE_LEAST (4 or 8), rlx_dense_prepare, rlx_dense_chunk, rlx_dense_finish.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DENSE_PACKED_H
#define RLX_DENSE_PACKED_H

#include "rlx_kernels.h"

#define RLX_DENSE_GROUP 128
#define RLX_DENSE_TURN 8 /* inputs */
#define RLX_DENSE_CHANNELS 8

/* A chunk of inputs of one row and all channels of a group. The assembly knows the places of the members. */
typedef struct {
    const void *x; /* int8_t, on Armv6-M words */
    const void *x_end;
    uint32_t init; /* of fields */
    int32_t first; /* inputs of the first turn */
    int32_t *sums;
    int32_t *sums_end;
    const int32_t *stream;
    int32_t *words;
} rlx_dense_chunk_t;

/* Sets x, x_end and first for n inputs, and returns their sum. */
static uint32_t rlx_dense_prepare(rlx_dense_chunk_t *chunk, const int8_t *x, int32_t n);

/* Adds the products to sums; returns the stream after them. */
static const int32_t *rlx_dense_chunk(rlx_dense_chunk_t *chunk);

/* Outputs [0, count) from their sums; returns the stream after their rescales. */
static const int32_t *rlx_dense_finish(
    const rlx_dense_packed_t *p, const int32_t *stream, const int32_t *sums, int8_t *out, int32_t count);

static inline int32_t rlx_dense_up(int32_t n, int32_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static inline void rlx_dense_run(
    const rlx_dense_packed_t *p, rlx_view_t x, rlx_view_t y, void *scratch, int32_t y0, int32_t y1)
{
    const int32_t most = p->out_c < RLX_DENSE_GROUP ? p->out_c : RLX_DENSE_GROUP;
    rlx_dense_chunk_t chunk; /* filled member by member: as a whole it would call memset */
    chunk.words = (int32_t *)scratch + rlx_dense_up(most, RLX_DENSE_LEAST);
    for (int32_t row = y0; row < y1; row++) {
        const int8_t *in = rlx_row(x, row);
        int8_t *out = rlx_row(y, row);
        const int32_t *stream = p->stream;
        for (int32_t c = 0; c < p->out_c; c += most) {
            const int32_t count = p->out_c - c < most ? p->out_c - c : most;
            chunk.sums = scratch;
            chunk.sums_end = chunk.sums + rlx_dense_up(count, RLX_DENSE_LEAST);
            for (int32_t *sum = chunk.sums; sum != chunk.sums_end; sum++) {
                *sum = *stream++;
            }
            int32_t n = p->first;
            for (int32_t k = 0; k < p->in_c; k += n, n = p->chunk) {
                const uint32_t sum = rlx_dense_prepare(&chunk, in + k, n);
                chunk.init = 0x8000u - RLX_DENSE_SIGN * (sum << (RLX_BITS - 1)) * 0x10001u;
                chunk.sums = scratch;
                chunk.stream = stream;
                stream = rlx_dense_chunk(&chunk);
            }
            stream = rlx_dense_finish(p, stream, scratch, out + c, count);
        }
        if (p->low > -128 || p->high < 127) {
            for (int32_t i = 0; i < p->out_c; i++) {
                out[i] = (int8_t)(out[i] < p->low ? p->low : out[i] > p->high ? p->high : out[i]);
            }
        }
    }
}

#if !RLX_DENSE_ASM
/* Input k of the chunk; whether there is one. */
static inline int32_t rlx_dense_input(const rlx_dense_chunk_t *chunk, int32_t k);
static inline bool rlx_dense_more(const rlx_dense_chunk_t *chunk, int32_t k);

/* What the assembly computes. Inputs before the first one are not looked at. */
static const int32_t *rlx_dense_chunk(rlx_dense_chunk_t *chunk)
{
    const int32_t places = 16 / RLX_BITS;
    const int32_t before = RLX_DENSE_TURN - chunk->first;
    const int32_t *stream = chunk->stream;
    int32_t pairs;
    for (int32_t *sums = chunk->sums; sums != chunk->sums_end; sums += 2 * pairs) {
        pairs = chunk->sums_end - sums == RLX_DENSE_CHANNELS / 2 ? 2 : 4;
        uint32_t fields[RLX_DENSE_CHANNELS / 2] = {chunk->init, chunk->init, chunk->init, chunk->init};
        int32_t k = before;
        for (; rlx_dense_more(chunk, k - before); k++) {
            const uint32_t word = (uint32_t)stream[k * pairs / places] >> RLX_BITS * (k * pairs % places);
            for (int32_t i = 0; i < pairs; i++) {
                const uint32_t digits = word >> RLX_BITS * i & ((1u << RLX_BITS) - 1) * 0x10001u;
                fields[i] += RLX_DENSE_SIGN * digits * (uint32_t)rlx_dense_input(chunk, k - before);
            }
        }
        stream += k * pairs / places;
        for (int32_t i = 0; i < pairs; i++) {
            sums[2 * i] += (int32_t)(fields[i] & 0xFFFFu);
            sums[2 * i + 1] += (int32_t)fields[i] >> 16;
        }
    }
    return stream;
}
#endif

#endif
