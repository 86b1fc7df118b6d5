/* cases.c: reads a case, builds the kernel's parameters, calls it. See cases.h. */
#include "cases.h"

#include "../rlx/rlx_kernels.h"

enum { MAX_POINTERS = 4, MAX_FIELDS = 32, MAX_VIEWS = 3 };

/* Parameter structs are pointers, then int32 fields, so this holds any of them. */
typedef union {
    const void *pointers[MAX_POINTERS + MAX_FIELDS];
    int32_t fields[MAX_POINTERS * 2 + MAX_FIELDS];
} params_t;

#include "cases_kernels.h" /* call(), written by tests/cases.py from the table of kernels */

int case_run(const uint32_t *words, uint32_t word_count, uint8_t *const *regions, uint8_t *out)
{
    if (word_count < CASE_HEADER_WORDS || words[0] != CASE_MAGIC) {
        return 0;
    }
    const uint32_t pointers = words[2];
    const uint32_t fields = words[3];
    const uint32_t views = words[4];
    const uint32_t region_count = words[5];
    const uint32_t needed = CASE_HEADER_WORDS + 2u * region_count + pointers + fields + 4u * views;
    if (pointers > MAX_POINTERS || fields > MAX_FIELDS || views > MAX_VIEWS || region_count > CASE_MAX_REGIONS
        || needed > word_count) {
        return 0;
    }
    for (uint32_t i = 0; i < words[8]; i++) {
        out[i] = words[10] == CASE_NONE ? (uint8_t)words[9] : regions[words[10] % CASE_MAX_REGIONS][i];
    }
    const uint32_t *next = words + CASE_HEADER_WORDS + 2u * region_count;
    params_t params = {{0}};
    for (uint32_t i = 0; i < pointers; i++) {
        params.pointers[i] = regions[*next++ % CASE_MAX_REGIONS];
    }
    int32_t *first_field = (int32_t *)(void *)&params.pointers[pointers];
    for (uint32_t i = 0; i < fields; i++) {
        first_field[i] = (int32_t)*next++;
    }
    rlx_view_t view[MAX_VIEWS] = {{0}};
    for (uint32_t i = 0; i < views; i++, next += 4) {
        uint8_t *base = next[0] == CASE_OUTPUT ? out : regions[next[0] % CASE_MAX_REGIONS];
        view[i] = (rlx_view_t){(int8_t *)base + next[1], (int32_t)next[2], (int32_t)next[3]};
    }
    void *scratch = words[11] == CASE_NONE ? NULL : regions[words[11] % CASE_MAX_REGIONS];
    call(words[1], &params, view, scratch, (int32_t)words[6], (int32_t)words[7]);
    return 1;
}

static void step(uint8_t *arena, uint32_t index)
{
    (void)index;
    uint8_t *regions[CASE_MAX_REGIONS];
    const uint32_t *words = (const uint32_t *)(const void *)arena;
    if (words[5] > CASE_MAX_REGIONS || words[8] > CASES_OUTPUT_BYTES) {
        return;
    }
    for (uint32_t i = 0; i < CASE_MAX_REGIONS; i++) {
        const uint32_t offset = i < words[5] ? words[CASE_HEADER_WORDS + 2u * i] : 0u;
        regions[i] = arena + offset % CASES_INPUT_BYTES;
    }
    (void)case_run(words, CASES_INPUT_BYTES / 4u, regions, arena + CASES_INPUT_BYTES);
}

static void reset(uint8_t *arena)
{
    (void)arena;
}

static int weights_ok(void)
{
    return 1;
}

void cases_run(cases_arena_t *arena)
{
    step(arena->bytes, 0);
}

static const rlx_layer_t layers[1] = {{"result", "Case", 0}};
static const rlx_tensor_t tensors[2] = {
    {"case", 0, CASES_INPUT_BYTES, RLX_NO_STEP, 0.0f, 0, RLX_S8, 1, {CASES_INPUT_BYTES}},
    {"result", CASES_INPUT_BYTES, CASES_OUTPUT_BYTES, 0, 0.0f, 0, RLX_S8, 1, {CASES_OUTPUT_BYTES}},
};
static const uint16_t outputs[1] = {1};

const rlx_model_t cases_model = {
    .name = "cases",
    .ident = "cases: kernel calls over the link",
    .hash = {0},
    .arena_bytes = CASES_ARENA_BYTES,
    .steps = 1,
    .tensor_count = 2,
    .input_count = 1,
    .output_count = 1,
    .outputs = outputs,
    .tensors = tensors,
    .layers = layers,
    .step = step,
    .reset = reset,
    .weights_ok = weights_ok,
    .variable_input = true,
};
