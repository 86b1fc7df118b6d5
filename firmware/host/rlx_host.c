/* rlx_host: the loop over samples that the Python side calls through cffi.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_host.h"

#include <string.h>

/* Copies the tensors that `step` completes to their places behind `tensors`. */
static void keep_tensors(const rlx_model_t *model, const uint8_t *arena, uint32_t step, uint8_t *tensors)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const rlx_tensor_t *tensor = &model->tensors[i];
        if (tensor->step == step) {
            memcpy(tensors, arena + tensor->offset, tensor->bytes);
        }
        tensors += tensor->bytes;
    }
}

static size_t all_tensor_bytes(const rlx_model_t *model)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        bytes += model->tensors[i].bytes;
    }
    return bytes;
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
        uint8_t *kept = tensors != NULL ? tensors + sample * all_tensor_bytes(model) : NULL;
        if (kept != NULL) {
            keep_tensors(model, arena, RLX_NO_STEP, kept);
        }
        for (uint32_t step = 0; step < model->steps; step++) {
            model->step(arena, step);
            if (kept != NULL) {
                keep_tensors(model, arena, step, kept);
            }
        }
        for (uint32_t i = 0; i < model->output_count; i++) {
            const rlx_tensor_t *output = &model->tensors[model->outputs[i]];
            memcpy(outputs[i] + (size_t)sample * output->bytes, arena + output->offset, output->bytes);
        }
    }
}
