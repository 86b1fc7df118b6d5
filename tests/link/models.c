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
                                   chain_tensors, chain_layers, chain_step, no_reset, weights_ok, false };

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
                                   other_tensors, other_layers, other_step, other_reset, weights_ok, false };

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
                                   bytes_tensors, bytes_layers, bytes_step, NULL, NULL, true };

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
                                   crash_tensors, crash_layers, crash_step, no_reset, weights_ok, false };
static const rlx_model_t huge = { "huge", "huge", { 11 }, TEST_ARENA_BYTES + 16, 2, 2, 1, 1, crash_outputs,
                                  crash_tensors, crash_layers, crash_step, no_reset, weights_ok, false };

const rlx_model_t *const test_models[TEST_MODELS] = { &chain, &other, &bytes, &crash, &huge };
