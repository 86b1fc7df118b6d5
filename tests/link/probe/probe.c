/* probe.c: see probe.h. */
#include "probe.h"

#define SIZE PROBE_BYTES
#define DATA 16u
#define T (DATA + SIZE)
#define OUT (T + SIZE)

enum { NOTHING = 0, BUS_ERROR = 1, UNDEFINED = 2, HANG = 3, DEEP = 4 };

__attribute__((noinline)) static uint32_t read_nowhere(uintptr_t address)
{
    return *(volatile uint32_t *)address; /* the line that the test wants named */
}

static void overflow_stack(volatile uint32_t *depth)
{
    volatile uint32_t room[64];
    room[0] = *depth + 1;
    overflow_stack(room);
    *depth = room[0];
}

static void act(uint8_t *arena)
{
    volatile uint32_t depth = 0;
    switch (arena[0]) {
    case BUS_ERROR: arena[1] = (uint8_t)read_nowhere(0xA0000000u); break;
    case UNDEFINED: __asm volatile("udf #0"); break;
    case HANG:
        for (;;) {
            depth = 1;
        }
    case DEEP: overflow_stack(&depth); break;
    default: break;
    }
}

static void step(uint8_t *arena, uint32_t index)
{
    if (index == 1u) {
        act(arena);
        return;
    }
    for (uint32_t i = 0; i < SIZE; i++) {
        if (index == 0u) {
            arena[T + i] = arena[DATA + i];
        } else {
            arena[OUT + i] = (uint8_t)(2u * arena[T + i]);
        }
    }
}

static void reset(uint8_t *arena)
{
    (void)arena;
}

static int weights_ok(void)
{
    return 1;
}

void probe_run(probe_arena_t *arena)
{
    for (uint32_t i = 0; i < 3u; i++) {
        step(arena->bytes, i);
    }
}

static const uint16_t outputs[] = {4};
static const rlx_tensor_t tensors[] = {
    {"what", 0, 1, RLX_NO_STEP, 0.0f, 0, RLX_S8, 1, {1}},
    {"data", DATA, SIZE, RLX_NO_STEP, 1.0f, 0, RLX_S8, 2, {PROBE_ROWS, 100}},
    {"t", T, SIZE, 0, 1.0f, 0, RLX_S8, 2, {PROBE_ROWS, 100}},
    {"acted", 0, 1, 1, 0.0f, 0, RLX_S8, 1, {1}},
    {"out", OUT, SIZE, 2, 1.0f, 0, RLX_S8, 2, {PROBE_ROWS, 100}},
};
static const rlx_layer_t layers[] = {{"t", "Copy", 0}, {"acted", "Act", 0}, {"out", "Double", 0}};

const rlx_model_t probe_model = {
    .name = "probe",
    .ident = "probe tflm portable 0f",
    .hash = {0x0f},
    .arena_bytes = PROBE_ARENA_BYTES,
    .steps = 3,
    .tensor_count = 5,
    .input_count = 2,
    .output_count = 1,
    .outputs = outputs,
    .tensors = tensors,
    .layers = layers,
    .step = step,
    .reset = reset,
    .weights_ok = weights_ok,
};
