/* models.c: see models.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "models.h"

static void put32(uint8_t *to, int32_t value)
{
    for (uint32_t i = 0; i < 4; i++) {
        to[i] = (uint8_t)((uint32_t)value >> (8 * i));
    }
}

static void no_reset(uint8_t *arena)
{
    (void)arena;
}

static int weights_ok(void)
{
    return 1;
}

/* ---- chain -------------------------------------------------------------------------------------------------- */

enum { X = 0, B = 1504, T0 = 1520, T1 = 0, OUT = 3024, LENGTH = 1500 };

static int32_t chain_runs;

static void chain_step(uint8_t *arena, uint32_t step)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < LENGTH; i++) {
        if (step == 0) {
            arena[T0 + i] = (uint8_t)(arena[X + i] + arena[B]);
        } else if (step == 1) {
            arena[T1 + i] = (uint8_t)(arena[T0 + i] * 3u);
        } else {
            sum += (int8_t)arena[T1 + i];
        }
    }
    if (step == 2) {
        put32(arena + OUT, sum);
        put32(arena + OUT + 4, ++chain_runs);
    }
}

static const rlx_tensor_t chain_tensors[] = {
    { "x", X, LENGTH, RLX_NO_STEP, 0.5f, -3, RLX_S8, 2, { 15, 100 } },
    { "b", B, 4, RLX_NO_STEP, 0.5f, 0, RLX_S8, 1, { 4 } },
    { "t0", T0, LENGTH, 0, 0.5f, 1, RLX_S8, 2, { 15, 100 } },
    { "t1", T1, LENGTH, 1, 0.25f, 2, RLX_S8, 2, { 15, 100 } },
    { "out", OUT, 8, 2, 0.0f, 0, RLX_S32, 1, { 2 } },
};
static const rlx_layer_t chain_layers[] = { { "t0", "Add", 300000 }, { "t1", "Mul", 1500 }, { "out", "Reduce", 1500 } };
static const uint16_t chain_outputs[] = { 4 };
static const rlx_model_t chain = { "chain", "chain tflm host 00", { 1, 2, 3 }, 3040, 3, 5, 2, 1, chain_outputs,
                                   chain_tensors, chain_layers, NULL, 0, chain_step, no_reset, weights_ok, false };

/* ---- other, whose second output counts its runs since its state was reset ----------------------------------- */

static void other_reset(uint8_t *arena)
{
    arena[16] = 0;
}

static void other_step(uint8_t *arena, uint32_t step)
{
    (void)step;
    for (uint32_t i = 0; i < 8; i++) {
        arena[8 + i] = arena[7 - i];
    }
    arena[16]++;
}

static const char long_name[] = "a_name_that_is_far_longer_than_one_frame_of_the_smallest_size_can_carry/"
                                "a_name_that_is_far_longer_than_one_frame_of_the_smallest_size_can_carry/"
                                "a_name_that_is_far_longer_than_one_frame_of_the_smallest_size_can_carry/"
                                "a_name_that_is_far_longer_than_one_frame_of_the_smallest_size_can_carry/"
                                "a_name_that_is_far_longer_than_one_frame_of_the_smallest_size_can_carry";

static const rlx_tensor_t other_tensors[] = {
    { "x", 0, 8, RLX_NO_STEP, 1.0f, 0, RLX_S8, 1, { 8 } },
    { long_name, 8, 8, 0, 1.0f, 0, RLX_S8, 1, { 8 } },
    { "count", 16, 1, 0, 1.0f, 0, RLX_S8, 1, { 1 } },
};
static const rlx_layer_t other_layers[] = { { long_name, "Transpose", 8 } };
static const uint16_t other_outputs[] = { 2, 1 };
static const rlx_model_t other = { "other", long_name, { 4, 5, 6 }, 32, 1, 3, 1, 2, other_outputs,
                                   other_tensors, other_layers, NULL, 0, other_step, other_reset, weights_ok, false };

/* ---- bytes: the first two bytes of the input say how many follow -------------------------------------------- */

static void bytes_step(uint8_t *arena, uint32_t step)
{
    uint32_t length = (uint32_t)arena[0] | (uint32_t)arena[1] << 8;
    int32_t sum = 0;
    (void)step;
    for (uint32_t i = 0; i < length && i < 4094; i++) {
        sum += arena[2 + i];
    }
    put32(arena + 4096, sum);
}

static const rlx_tensor_t bytes_tensors[] = {
    { "x", 0, 4096, RLX_NO_STEP, 0.0f, 0, RLX_S8, 1, { 4096 } },
    { "sum", 4096, 4, 0, 0.0f, 0, RLX_S32, 1, { 1 } },
};
static const rlx_layer_t bytes_layers[] = { { "sum", "Test", 0 } };
static const uint16_t bytes_outputs[] = { 1 };
static const rlx_model_t bytes = { "bytes", "bytes", { 7, 8, 9 }, TEST_ARENA_BYTES, 1, 2, 1, 1, bytes_outputs,
                                   bytes_tensors, bytes_layers, NULL, 0, bytes_step, NULL, NULL, true };

/* ---- rows, whose first step makes two tensors row by row: inner = x + 1, of which two rows exist at a time, and
 * joined = inner + the row of inner before -------------------------------------------------------------------- */

enum { ROWS = 4, ROW_BYTES = 8, JOINED = ROWS * ROW_BYTES, INNER = 2 * JOINED, INNER_PITCH = 12, TOTAL = 88 };

static uint8_t *inner_row(uint8_t *arena, int32_t y)
{
    return arena + INNER + (uint32_t)y % 2u * INNER_PITCH;
}

static void make_inner(uint8_t *arena, int32_t y)
{
    for (int32_t i = 0; i < ROW_BYTES; i++) {
        inner_row(arena, y)[i] = (uint8_t)(arena[y * ROW_BYTES + i] + 1u);
    }
}

static void make_joined(uint8_t *arena, int32_t y)
{
    for (int32_t i = 0; i < ROW_BYTES; i++) {
        uint32_t before = y > 0 ? inner_row(arena, y - 1)[i] : 0u;
        arena[JOINED + y * ROW_BYTES + i] = (uint8_t)(inner_row(arena, y)[i] + before);
    }
}

static void (*const rows_makers[])(uint8_t *arena, int32_t y) = { make_inner, make_joined };
static const uint8_t rows_order[] = { 0, 1, 0, 1, 0, 1, 0, 1 };
static const rlx_line_t rows_lines[] = { { 3, ROWS, 2, INNER_PITCH }, { 1, ROWS, 0, ROW_BYTES } };
static const rlx_stage_t rows_stages[] = { { 0, 2 * ROWS, rows_order, rows_lines, rows_makers } };

static void rows_step(uint8_t *arena, uint32_t step)
{
    int32_t sum = 0;
    for (int32_t y = 0; y < ROWS && step == 0; y++) {
        make_inner(arena, y);
        make_joined(arena, y);
    }
    for (uint32_t i = 0; i < ROWS * ROW_BYTES && step == 1; i++) {
        sum += (int8_t)arena[JOINED + i];
    }
    if (step == 1) {
        put32(arena + TOTAL, sum);
    }
}

static const rlx_tensor_t rows_tensors[] = {
    { "x", 0, ROWS * ROW_BYTES, RLX_NO_STEP, 1.0f, 0, RLX_S8, 2, { ROWS, ROW_BYTES } },
    { "joined", JOINED, ROWS * ROW_BYTES, 0, 1.0f, 0, RLX_S8, 2, { ROWS, ROW_BYTES } },
    { "total", TOTAL, 4, 1, 0.0f, 0, RLX_S32, 1, { 1 } },
    { "inner", INNER, ROWS * ROW_BYTES, 0, 1.0f, 0, RLX_S8, 2, { ROWS, ROW_BYTES } },
};
static const rlx_layer_t rows_layers[] = { { "joined", "Stage", 64 }, { "total", "Reduce", 32 } };
static const uint16_t rows_outputs[] = { 2 };
static const rlx_model_t rows = { "rows", "rows", { 12 }, TOTAL + 4, 2, 4, 1, 1, rows_outputs, rows_tensors,
                                  rows_layers, rows_stages, 1, rows_step, no_reset, weights_ok, false };

/* ---- crash, huge -------------------------------------------------------------------------------------------- */

static void crash_step(uint8_t *arena, uint32_t step)
{
    if (step == 1) {
        test_crash((crash_t)arena[0]);
    }
}

static const rlx_tensor_t crash_tensors[] = {
    { "how", 0, 1, RLX_NO_STEP, 0.0f, 0, RLX_S8, 1, { 1 } },
    { "same", 0, 1, 1, 0.0f, 0, RLX_S8, 1, { 1 } },
};
static const rlx_layer_t crash_layers[] = { { "none", "Nop", 0 }, { "same", "Crash", 0 } };
static const uint16_t crash_outputs[] = { 1 };
static const rlx_model_t crash = { "crash", "crash", { 10 }, 16, 2, 2, 1, 1, crash_outputs,
                                   crash_tensors, crash_layers, NULL, 0, crash_step, no_reset, weights_ok, false };
static const rlx_model_t huge = { "huge", "huge", { 11 }, TEST_ARENA_BYTES + 16, 2, 2, 1, 1, crash_outputs,
                                  crash_tensors, crash_layers, NULL, 0, crash_step, no_reset, weights_ok, false };

const rlx_model_t *const test_models[TEST_MODELS] = { &chain, &other, &bytes, &crash, &rows, &huge };
