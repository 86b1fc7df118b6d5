/* rlx_host.h: run a generated model many times on the host, in one call.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_HOST_H
#define RLX_HOST_H

#include "rlx.h"

/* Runs `count` samples. inputs[i] holds the i-th input of all samples, one after the other, and outputs[i] takes the
 * i-th output likewise. `arena` has model->arena_bytes bytes, aligned to 16. With `tensors`, every tensor of the model
 * is copied there after its step, one after the other, sample by sample. */
void rlx_host_run(const rlx_model_t *model, uint8_t *arena, uint32_t count, const uint8_t *const *inputs,
                  uint8_t *const *outputs, uint8_t *tensors);

#endif
