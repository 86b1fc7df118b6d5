/* toy.c: step 0 negates and offsets the input (y = 3 - x, wrapping), step 1 adds up neighbors (z[i] = y[i] + y[i+1],
 * cyclic, wrapping), so that every output byte depends on the input and on weights in flash. */
#include "toy.h"

extern const int8_t toy_weights[16];

#define SIZE 16u

static int8_t wrap(int32_t value) { return (int8_t)(uint8_t)(uint32_t)value; }

static void step(uint8_t *arena, uint32_t index)
{
    const int8_t *x = (const int8_t *)arena;
    int8_t *y = (int8_t *)arena + SIZE;
    int8_t *z = (int8_t *)arena + 2u * SIZE;
    for (uint32_t i = 0; i < SIZE; i++) {
        if (index == 0u) {
            y[i] = wrap(toy_weights[i] - x[i]);
        } else {
            z[i] = wrap(y[i] + y[(i + 1u) % SIZE]);
        }
    }
}

static void reset(uint8_t *arena) { (void)arena; }

static int weights_ok(void)
{
    int sum = 0;
    for (uint32_t i = 0; i < SIZE; i++) {
        sum += toy_weights[i];
    }
    return sum == 48;
}

int8_t *toy_input(toy_arena_t *arena) { return (int8_t *)arena->bytes; }
const int8_t *toy_output(const toy_arena_t *arena) { return (const int8_t *)arena->bytes + 2u * SIZE; }
void toy_step(toy_arena_t *arena, uint32_t index) { step(arena->bytes, index); }
void toy_reset(toy_arena_t *arena) { reset(arena->bytes); }

void toy_run(toy_arena_t *arena)
{
    for (uint32_t i = 0; i < TOY_STEPS; i++) {
        step(arena->bytes, i);
    }
}

static const uint16_t outputs[] = {2};

static const rlx_tensor_t tensors[] = {
    {"x", 0, 16, RLX_NO_STEP, 0.5f, 0, RLX_S8, 1, {16}},
    {"y", 16, 16, 0, 0.5f, 0, RLX_S8, 1, {16}},
    {"z", 32, 16, 1, 1.0f, 0, RLX_S8, 1, {16}},
};

static const rlx_layer_t layers[] = {{"y", "Binary", 0}, {"z", "Binary", 0}};

const rlx_model_t toy_model = {
    .name = "toy",
    .ident = "toy tflm portable 00112233445566778899aabbccddeeff",
    .hash = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff},
    .arena_bytes = TOY_ARENA_BYTES,
    .steps = TOY_STEPS,
    .tensor_count = 3,
    .input_count = 1,
    .output_count = 1,
    .outputs = outputs,
    .tensors = tensors,
    .layers = layers,
    .step = step,
    .reset = reset,
    .weights_ok = weights_ok,
};
