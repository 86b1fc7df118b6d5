/* rlx_link_run.c: inputs in, steps, tensors out. A handler checks everything before it changes anything.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_link_parts.h"

#define BUSY_MACS 250000u /* multiply-accumulates between two BUSY frames, unless a single step has more */

enum { WRITE_LAST = 1 }; /* flags of WRITE: the input ends here, though its tensor is longer */
enum { STEP_STACK = 1 }; /* flags of STEP: measure the stack too */
enum { READ_AS_IT_IS = 1 }; /* flags of READ: whatever lies in the tensor's place now */

/* ---- The current model -------------------------------------------------------------------------------------- */

static void forget_inputs(rlx_link_t *link)
{
    link->next_step = 0;
    rlx_link_forget_row(link);
    link->loading_input = 0;
    link->loading_bytes = 0;
    for (uint32_t i = 0; i < sizeof link->loaded; i++) {
        link->loaded[i] = 0;
    }
}

void rlx_link_forget(rlx_link_t *link)
{
    link->phase = RLX_LINK_IDLE;
    forget_inputs(link);
}

static bool is_current(const rlx_link_t *link, uint32_t index)
{
    return link->phase != RLX_LINK_IDLE && link->model == index;
}

/* Gives the arena to a model: whatever another one left there is gone. */
static void choose_model(rlx_link_t *link, uint32_t index)
{
    const rlx_model_t *model = link->models[index];
    rlx_link_forget(link);
    link->model = index;
    link->phase = RLX_LINK_LOADING;
    if (model->reset != NULL) {
        model->reset(link->arena);
    }
}

static bool input_loaded(const rlx_link_t *link, uint32_t input)
{
    return ((uint32_t)link->loaded[input / 8u] >> (input % 8u) & 1u) != 0;
}

static void mark_input(rlx_link_t *link, uint32_t input, bool loaded)
{
    uint8_t bit = (uint8_t)(1u << (input % 8u));
    uint8_t others = (uint8_t)(link->loaded[input / 8u] & ~bit);
    link->loaded[input / 8u] = loaded ? (uint8_t)(others | bit) : others;
}

/* The first input that has not arrived, or input_count. */
static uint32_t first_missing(const rlx_link_t *link, const rlx_model_t *model)
{
    uint32_t input = 0;
    while (input < model->input_count && input_loaded(link, input)) {
        input++;
    }
    return input;
}

/* ---- Inputs ------------------------------------------------------------------------------------------------- */

rlx_link_status_t rlx_link_clear(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    (void)size;
    if (in[0] >= link->model_count) {
        return rlx_link_fail(out, LINK_BAD_MODEL, link->model_count);
    }
    if (link->models[in[0]]->arena_bytes > link->arena_bytes) {
        return rlx_link_fail(out, LINK_NO_ARENA, link->arena_bytes);
    }
    choose_model(link, in[0]);
    return LINK_OK;
}

/* How many bytes of an input are there, without gaps, from its first. */
static uint32_t bytes_loaded(const rlx_link_t *link, uint32_t model, uint32_t input)
{
    bool loading = is_current(link, model) && link->phase == RLX_LINK_LOADING;
    return loading && link->loading_input == input ? link->loading_bytes : 0;
}

static rlx_link_status_t check_write(const rlx_link_t *link, const uint8_t *in, uint32_t bytes, rlx_link_out_t *out)
{
    uint32_t input = rlx_link_get16(in + 2);
    uint32_t offset = rlx_link_get32(in + 4);
    if (in[0] >= link->model_count) {
        return rlx_link_fail(out, LINK_BAD_MODEL, link->model_count);
    }
    const rlx_model_t *model = link->models[in[0]];
    if (model->arena_bytes > link->arena_bytes) {
        return rlx_link_fail(out, LINK_NO_ARENA, link->arena_bytes);
    }
    if (input >= model->input_count) {
        return rlx_link_fail(out, LINK_BAD_TENSOR, model->input_count);
    }
    uint32_t room = model->tensors[input].bytes;
    if (offset > room || bytes > room - offset) {
        return rlx_link_fail(out, LINK_BAD_RANGE, room);
    }
    bool early_end = (in[1] & WRITE_LAST) != 0 && offset + bytes < room;
    if (early_end && !model->variable_input) {
        return rlx_link_fail(out, LINK_BAD_RANGE, room);
    }
    if (offset > bytes_loaded(link, in[0], input)) {
        return rlx_link_fail(out, LINK_GAP, bytes_loaded(link, in[0], input));
    }
    return LINK_OK;
}

/* in: model u8, flags u8, tensor u16, offset u32, data. Offset 0 starts the input afresh; any other offset must
 * continue what is there. The first write after a run begins the next one. */
rlx_link_status_t rlx_link_write(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    uint32_t input = rlx_link_get16(in + 2);
    uint32_t offset = rlx_link_get32(in + 4);
    uint32_t bytes = size - 8;
    rlx_link_status_t status = check_write(link, in, bytes, out);
    if (status != LINK_OK) {
        return status;
    }
    if (!is_current(link, in[0])) {
        choose_model(link, in[0]);
    } else if (link->phase != RLX_LINK_LOADING) {
        forget_inputs(link);
        link->phase = RLX_LINK_LOADING;
    }
    const rlx_tensor_t *tensor = &link->models[in[0]]->tensors[input];
    uint8_t *to = link->arena + tensor->offset + offset;
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = in[8 + i];
    }
    uint32_t before = offset == 0 || link->loading_input != input ? 0 : link->loading_bytes;
    link->loading_input = input;
    link->loading_bytes = offset + bytes > before ? offset + bytes : before;
    bool ended = (in[1] & WRITE_LAST) != 0 || (offset != 0 && input_loaded(link, input)); /* now or before */
    mark_input(link, input, ended || link->loading_bytes == tensor->bytes);
    rlx_link_put32(out, link->loading_bytes);
    return LINK_OK;
}

/* ---- Running ------------------------------------------------------------------------------------------------ */

/* Whether the model can execute its next step; explains itself in out when not. */
rlx_link_status_t rlx_link_check_run(const rlx_link_t *link, uint32_t index, rlx_link_out_t *out)
{
    if (index >= link->model_count) {
        return rlx_link_fail(out, LINK_BAD_MODEL, link->model_count);
    }
    if (!is_current(link, index) || link->phase == RLX_LINK_DONE) {
        return rlx_link_fail(out, LINK_NO_INPUT, 0);
    }
    const rlx_model_t *model = link->models[index];
    if (link->phase == RLX_LINK_LOADING && first_missing(link, model) < model->input_count) {
        return rlx_link_fail(out, LINK_NO_INPUT, first_missing(link, model));
    }
    return LINK_OK;
}

void rlx_link_end_step(rlx_link_t *link, const rlx_model_t *model)
{
    link->next_step++;
    link->next_row = 0;
    link->phase = link->next_step == model->steps ? RLX_LINK_DONE : RLX_LINK_RUNNING;
}

/* Makes the rows that are left of a stage that was begun. */
static void finish_stage(rlx_link_t *link, const rlx_model_t *model)
{
    const rlx_stage_t *stage = rlx_link_stage(model, link->next_step);
    while (link->next_row < stage->rows) {
        (void)rlx_link_run_row(link, model, stage);
    }
    rlx_link_end_step(link, model);
}

/* Executes the next step; returns the counter's ticks, 0 without a counter and for a stage that was begun. */
static uint64_t run_step(rlx_link_t *link, const rlx_model_t *model)
{
    const rlx_link_port_t *port = link->port;
    bool counting = port->count_start != NULL && port->count_stop != NULL;
    uint64_t ticks = 0;
    if (link->next_row != 0) {
        finish_stage(link, model);
        return 0;
    }
    link->phase = RLX_LINK_RUNNING;
    if (counting) {
        port->count_start(port->ctx);
    }
    model->step(link->arena, link->next_step);
    if (counting) {
        ticks = port->count_stop(port->ctx);
    }
    rlx_link_end_step(link, model);
    rlx_link_forget_row(link);
    return ticks;
}

/* The steps from the next one on that are run before the computer hears again; their cost goes to *macs. */
static uint32_t end_of_group(const rlx_link_t *link, const rlx_model_t *model, uint32_t *macs)
{
    uint32_t step = link->next_step;
    *macs = model->layers[step++].macs;
    while (step < model->steps && *macs < BUSY_MACS && model->layers[step].macs < BUSY_MACS) {
        *macs += model->layers[step++].macs;
    }
    return step;
}

/* Runs all steps that are left. reply: ticks u64, the sum over the steps. */
rlx_link_status_t rlx_link_run(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    rlx_link_status_t status = rlx_link_check_run(link, in[0], out);
    (void)size;
    if (status != LINK_OK) {
        return status;
    }
    const rlx_model_t *model = link->models[in[0]];
    uint64_t ticks = 0;
    while (link->next_step < model->steps) {
        uint32_t macs;
        uint32_t end = end_of_group(link, model, &macs);
        rlx_link_busy(link, link->next_step, macs);
        while (link->next_step < end) {
            ticks += run_step(link, model);
        }
    }
    rlx_link_put64(out, ticks);
    return LINK_OK;
}

/* in: model u8, flags u8, 0 u16, step u32. reply: ticks u64; when asked for, the bytes of stack that the
 * step used, u32, and those that it never touched, u32. */
rlx_link_status_t rlx_link_step(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    const rlx_link_port_t *port = link->port;
    rlx_link_status_t status = rlx_link_check_run(link, in[0], out);
    (void)size;
    if (status != LINK_OK) {
        return status;
    }
    const rlx_model_t *model = link->models[in[0]];
    if (rlx_link_get32(in + 4) != link->next_step || link->next_step >= model->steps) {
        return rlx_link_fail(out, LINK_BAD_STEP, link->next_step);
    }
    bool measure = (in[1] & STEP_STACK) != 0;
    if (measure && (port->stack_paint == NULL || port->stack_unused == NULL)) {
        return rlx_link_fail(out, LINK_UNSUPPORTED, 0);
    }
    rlx_link_busy(link, link->next_step, model->layers[link->next_step].macs);
    uint32_t before = 0;
    if (measure) {
        port->stack_paint(port->ctx);
        before = port->stack_unused(port->ctx);
    }
    uint64_t ticks = run_step(link, model);
    uint32_t left = measure ? port->stack_unused(port->ctx) : 0;
    rlx_link_put64(out, ticks);
    rlx_link_put32(out, before - left);
    rlx_link_put32(out, left);
    return LINK_OK;
}

/* Whether a whole tensor is in the arena now. */
static bool is_live(const rlx_link_t *link, const rlx_model_t *model, uint32_t tensor)
{
    if (link->phase == RLX_LINK_LOADING) {
        return tensor < model->input_count && input_loaded(link, tensor);
    }
    bool just_completed = link->next_step > 0 && model->tensors[tensor].step == link->next_step - 1;
    return just_completed || (link->phase == RLX_LINK_DONE && rlx_link_output_index(model, tensor) != 0xFF);
}

/* Where bytes [offset, offset + bytes) of a tensor lie in the arena; RLX_NO_STEP when they are not there now. */
static uint32_t place_of(const rlx_link_t *link, const rlx_model_t *model, uint32_t tensor, uint32_t offset,
                         uint32_t bytes, bool as_it_is)
{
    if (link->row_tensor == tensor && offset >= link->row_first && bytes <= link->row_bytes &&
        offset - link->row_first <= link->row_bytes - bytes) {
        return link->row_offset + (offset - link->row_first);
    }
    bool whole = rlx_link_rows_of(model, tensor) == 0 && link->next_row == 0;
    return whole && (as_it_is || is_live(link, model, tensor)) ? model->tensors[tensor].offset + offset : RLX_NO_STEP;
}

/* in: model u8, flags u8, tensor u16, offset u32, bytes u16. reply: the bytes. */
rlx_link_status_t rlx_link_read(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    uint32_t index = rlx_link_get16(in + 2);
    uint32_t offset = rlx_link_get32(in + 4);
    uint32_t bytes = rlx_link_get16(in + 8);
    (void)size;
    if (in[0] >= link->model_count) {
        return rlx_link_fail(out, LINK_BAD_MODEL, link->model_count);
    }
    const rlx_model_t *model = link->models[in[0]];
    if (index >= model->tensor_count) {
        return rlx_link_fail(out, LINK_BAD_TENSOR, model->tensor_count);
    }
    const rlx_tensor_t *tensor = &model->tensors[index];
    if (offset > tensor->bytes || bytes > tensor->bytes - offset || bytes > RLX_LINK_MAX_PAYLOAD) {
        return rlx_link_fail(out, LINK_BAD_RANGE, tensor->bytes);
    }
    uint32_t place = is_current(link, in[0])
                         ? place_of(link, model, index, offset, bytes, (in[1] & READ_AS_IT_IS) != 0)
                         : RLX_NO_STEP;
    if (place == RLX_NO_STEP) {
        return rlx_link_fail(out, LINK_NOT_READY, tensor->step);
    }
    rlx_link_put_bytes(out, link->arena + place, bytes);
    return LINK_OK;
}
