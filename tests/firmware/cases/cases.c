/* cases.c: reads a case, builds the kernel's parameters, calls it. See cases.h. */
#include "cases.h"

#include "../rlx/rlx_kernels.h"

enum { MAX_POINTERS = 4, MAX_FIELDS = 24, MAX_VIEWS = 3 };

/* Parameter structs are pointers, then int32 fields, so this holds any of them. */
typedef union {
    const void *pointers[MAX_POINTERS + MAX_FIELDS];
    int32_t fields[MAX_POINTERS * 2 + MAX_FIELDS];
    rlx_conv_t conv;
    rlx_dense_t dense;
    rlx_pool_t pool;
    rlx_pool_onnx_t pool_onnx;
    rlx_softmax_onnx_t softmax_onnx;
    rlx_binary_t binary;
    rlx_mean_t mean;
    rlx_softmax_t softmax;
    rlx_pad_t pad;
    rlx_transpose_t transpose;
    rlx_copy_t copy;
    rlx_requantize_t requantize;
    rlx_quantize_t quantize;
    rlx_lookup_t lookup;
} params_t;

static void call(uint32_t kernel, const params_t *p, const rlx_view_t *v, int32_t y0, int32_t y1)
{
    switch (kernel) { /* the order of cgen/kernels.py's ALL */
    case 0: rlx_conv_s8(&p->conv, v[0], v[1], y0, y1); break;
    case 1: rlx_depthwise_s8(&p->conv, v[0], v[1], y0, y1); break;
    case 2: rlx_dense_s8(&p->dense, v[0], v[1], y0, y1); break;
    case 3: rlx_avg_pool_s8(&p->pool, v[0], v[1], y0, y1); break;
    case 4: rlx_max_pool_s8(&p->pool, v[0], v[1], y0, y1); break;
    case 5: rlx_add_s8(&p->binary, v[0], v[1], v[2], y0, y1); break;
    case 6: rlx_sub_s8(&p->binary, v[0], v[1], v[2], y0, y1); break;
    case 7: rlx_mul_s8(&p->binary, v[0], v[1], v[2], y0, y1); break;
    case 8: rlx_mean_s8(&p->mean, v[0], v[1], y0, y1); break;
    case 9: rlx_softmax_s8(&p->softmax, v[0], v[1], y0, y1); break;
    case 10: rlx_pad_s8(&p->pad, v[0], v[1], y0, y1); break;
    case 11: rlx_transpose_s8(&p->transpose, v[0], v[1], y0, y1); break;
    case 12: rlx_copy_s8(&p->copy, v[0], v[1], y0, y1); break;
    case 13: rlx_requantize_s8(&p->requantize, v[0], v[1], y0, y1); break;
    case 14: rlx_clamp_s8(&p->requantize, v[0], v[1], y0, y1); break;
    case 15: rlx_quantize_f32(&p->quantize, v[0], v[1], y0, y1); break;
    case 16: rlx_dequantize_f32(&p->quantize, v[0], v[1], y0, y1); break;
    case 17: rlx_lookup_s8(&p->lookup, v[0], v[1], y0, y1); break;
    case 18: rlx_conv_onnx_s8(&p->conv, v[0], v[1], y0, y1); break;
    case 19: rlx_depthwise_onnx_s8(&p->conv, v[0], v[1], y0, y1); break;
    case 20: rlx_dense_onnx_s8(&p->dense, v[0], v[1], y0, y1); break;
    case 21: rlx_avg_pool_onnx_s8(&p->pool_onnx, v[0], v[1], y0, y1); break;
    case 22: rlx_add_onnx_s8(&p->binary, v[0], v[1], v[2], y0, y1); break;
    case 23: rlx_sub_onnx_s8(&p->binary, v[0], v[1], v[2], y0, y1); break;
    case 24: rlx_mul_onnx_s8(&p->binary, v[0], v[1], v[2], y0, y1); break;
    case 25: rlx_mean_onnx_s8(&p->mean, v[0], v[1], y0, y1); break;
    case 26: rlx_softmax_onnx_s8(&p->softmax_onnx, v[0], v[1], y0, y1); break;
    case 27: rlx_quantize_onnx_f32(&p->quantize, v[0], v[1], y0, y1); break;
    default: break;
    }
}

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
    call(words[1], &params, view, (int32_t)words[6], (int32_t)words[7]);
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
