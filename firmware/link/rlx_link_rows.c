/* rlx_link_rows.c: a stage row by row, so that the computer can read each row before the next one takes its place.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_link_parts.h"

const rlx_stage_t *rlx_link_stage(const rlx_model_t *model, uint32_t step)
{
    for (uint32_t i = 0; i < model->stage_count; i++) {
        if (model->stages[i].step == step) {
            return &model->stages[i];
        }
    }
    return NULL;
}

uint32_t rlx_link_rows_of(const rlx_model_t *model, uint32_t tensor)
{
    const rlx_stage_t *stage = rlx_link_stage(model, model->tensors[tensor].step);
    for (uint32_t i = 0; stage != NULL && i < stage->rows; i++) {
        const rlx_line_t *line = &stage->lines[stage->order[i]];
        if (line->tensor == tensor && line->ring != 0) {
            return line->rows;
        }
    }
    return 0;
}

uint32_t rlx_link_run_row(rlx_link_t *link, const rlx_model_t *model, const rlx_stage_t *stage)
{
    const uint32_t layer = stage->order[link->next_row];
    const rlx_line_t *line = &stage->lines[layer];
    uint32_t y = 0; /* the row: as many as the layer has made */
    for (uint32_t i = 0; i < link->next_row; i++) {
        y += stage->order[i] == layer ? 1u : 0u;
    }
    link->row_tensor = line->tensor;
    if (line->tensor != RLX_NO_TENSOR) {
        const rlx_tensor_t *tensor = &model->tensors[line->tensor];
        link->row_bytes = tensor->bytes / line->rows;
        link->row_first = y * link->row_bytes;
        link->row_offset = tensor->offset + (line->ring != 0 ? y % line->ring : y) * line->pitch;
    }
    stage->layers[layer](link->arena, (int32_t)y);
    link->next_row++;
    return y;
}

void rlx_link_forget_row(rlx_link_t *link)
{
    link->next_row = 0;
    link->row_tensor = RLX_NO_TENSOR;
}

/* in: model u8, 0 u8, 0 u16, step u32, row u32. reply: row u32, tensor u16. */
rlx_link_status_t rlx_link_row(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    rlx_link_status_t status = rlx_link_check_run(link, in[0], out);
    (void)size;
    if (status != LINK_OK) {
        return status;
    }
    const rlx_model_t *model = link->models[in[0]];
    if (rlx_link_get32(in + 4) != link->next_step) {
        return rlx_link_fail(out, LINK_BAD_STEP, link->next_step);
    }
    const rlx_stage_t *stage = rlx_link_stage(model, link->next_step);
    if (stage == NULL || rlx_link_get32(in + 8) != link->next_row) {
        return rlx_link_fail(out, LINK_BAD_STEP, stage == NULL ? link->next_step : link->next_row);
    }
    link->phase = RLX_LINK_RUNNING;
    uint32_t y = rlx_link_run_row(link, model, stage);
    uint32_t tensor = link->row_tensor;
    if (link->next_row == stage->rows) {
        rlx_link_end_step(link, model);
    }
    rlx_link_put32(out, y);
    rlx_link_put16(out, tensor);
    return LINK_OK;
}
