/* rlx_host: the loop over samples that the Python side calls through cffi.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_host.h"

#include <string.h>

/* The bytes of the first `count` tensors. */
static size_t tensor_bytes(const rlx_model_t *model, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += model->tensors[i].bytes;
    }
    return bytes;
}

/* Copies a tensor to its place behind `tensors`. */
static void keep_tensor(const rlx_model_t *model, const uint8_t *arena, uint32_t index, uint8_t *tensors)
{
    const rlx_tensor_t *tensor = &model->tensors[index];
    memcpy(tensors + tensor_bytes(model, index), arena + tensor->offset, tensor->bytes);
}

/* Runs a stage row by row and copies each row to its place behind `tensors`. */
static void keep_rows(const rlx_model_t *model, const rlx_stage_t *stage, uint8_t *arena, uint8_t *tensors)
{
    uint32_t next[256] = {0}; /* rows that a layer has made; order[] counts layers in 8 bits */
    for (uint32_t i = 0; i < stage->rows; i++) {
        const uint32_t layer = stage->order[i];
        const rlx_line_t *line = &stage->lines[layer];
        const uint32_t y = next[layer]++;
        stage->layers[layer](arena, (int32_t)y);
        if (line->tensor != RLX_NO_TENSOR) {
            const rlx_tensor_t *tensor = &model->tensors[line->tensor];
            const size_t bytes = tensor->bytes / line->rows;
            const uint8_t *row = arena + tensor->offset + (size_t)(line->ring != 0 ? y % line->ring : y) * line->pitch;
            memcpy(tensors + tensor_bytes(model, line->tensor) + y * bytes, row, bytes);
        }
    }
}

/* Runs all steps, and copies every tensor that they make to its place behind `tensors`. */
static void run_kept(const rlx_model_t *model, uint8_t *arena, uint8_t *tensors)
{
    const rlx_stage_t *stage = model->stages;
    for (uint32_t i = 0; i < model->input_count; i++) {
        keep_tensor(model, arena, i, tensors);
    }
    for (uint32_t step = 0; step < model->steps; step++) {
        if (stage != NULL && stage < model->stages + model->stage_count && stage->step == step) {
            keep_rows(model, stage++, arena, tensors);
        } else {
            model->step(arena, step);
        }
        keep_tensor(model, arena, model->input_count + step, tensors);
    }
}

void rlx_host_run(const rlx_model_t *model, uint8_t *arena, uint32_t count, const uint8_t *const *inputs,
                  uint8_t *const *outputs, uint8_t *tensors)
{
    model->reset(arena);
    for (uint32_t sample = 0; sample < count; sample++) {
        for (uint32_t i = 0; i < model->input_count; i++) {
            const rlx_tensor_t *input = &model->tensors[i];
            memcpy(arena + input->offset, inputs[i] + (size_t)sample * input->bytes, input->bytes);
        }
        if (tensors != NULL) {
            run_kept(model, arena, tensors + sample * tensor_bytes(model, model->tensor_count));
        } else {
            for (uint32_t step = 0; step < model->steps; step++) {
                model->step(arena, step);
            }
        }
        for (uint32_t i = 0; i < model->output_count; i++) {
            const rlx_tensor_t *output = &model->tensors[model->outputs[i]];
            memcpy(outputs[i] + (size_t)sample * output->bytes, arena + output->offset, output->bytes);
        }
    }
}
