/* rlx_link_commands.c: the table of commands, and those that describe what is there.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "rlx_link_parts.h"

#define IMAGE_CHUNK 65536u /* bytes of flash summed up between two BUSY frames */

rlx_link_status_t rlx_link_fail(rlx_link_out_t *out, rlx_link_status_t status, uint32_t detail)
{
    out->size = 0;
    rlx_link_put32(out, detail);
    return status;
}

uint32_t rlx_link_output_index(const rlx_model_t *model, uint32_t tensor)
{
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (model->outputs[i] == tensor) {
            return i;
        }
    }
    return 0xFF;
}

/* ---- What there is ------------------------------------------------------------------------------------------ */

static void sum_image(rlx_link_t *link)
{
    const rlx_link_port_t *port = link->port;
    for (uint32_t at = 0; at < port->image_bytes && !link->image_summed; at += IMAGE_CHUNK) {
        uint32_t left = port->image_bytes - at;
        rlx_link_busy(link, RLX_NO_STEP, 0);
        link->image_crc = rlx_crc32(link->image_crc, port->image + at, left < IMAGE_CHUNK ? left : IMAGE_CHUNK);
    }
    link->image_summed = true;
}

static rlx_link_status_t say_hello(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    const rlx_link_port_t *port = link->port;
    (void)in;
    (void)size;
    rlx_link_forget(link);
    sum_image(link);
    rlx_link_put16(out, RLX_LINK_PROTOCOL_VERSION);
    rlx_link_put16(out, RLX_LINK_MAX_PAYLOAD);
    rlx_link_put32(out, link->boot_id);
    rlx_link_put16(out, port->ring_bytes);
    rlx_link_put16(out, port->setup_failed);
    rlx_link_put32(out, port->reset_reason);
    rlx_link_put32(out, port->image_bytes);
    rlx_link_put32(out, link->image_crc);
    rlx_link_put32(out, port->count_stop != NULL ? port->count_hz : 0);
    rlx_link_put32(out, link->arena_bytes);
    rlx_link_put8(out, link->model_count);
    rlx_link_put_string(out, port->device, 0);
    return LINK_OK;
}

static rlx_link_status_t describe_model(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    (void)size;
    if (in[0] >= link->model_count) {
        return rlx_link_fail(out, LINK_BAD_MODEL, link->model_count);
    }
    const rlx_model_t *model = link->models[in[0]];
    rlx_link_busy(link, RLX_NO_STEP, 0); /* summing up the weights may take a while */
    uint32_t weights_ok = model->weights_ok == NULL || model->weights_ok() != 0;
    rlx_link_put_bytes(out, model->hash, sizeof model->hash);
    rlx_link_put32(out, model->arena_bytes);
    rlx_link_put32(out, model->steps);
    rlx_link_put16(out, model->tensor_count);
    rlx_link_put8(out, model->input_count);
    rlx_link_put8(out, model->output_count);
    rlx_link_put8(out, weights_ok);
    rlx_link_put8(out, model->variable_input);
    rlx_link_put_string(out, model->name, 32);
    rlx_link_put_string(out, model->ident, 0);
    return LINK_OK;
}

static uint32_t float_bits(float value)
{
    union {
        float value;
        uint32_t bits;
    } both = { value };
    return both.bits;
}

static rlx_link_status_t describe_tensor(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    uint32_t index = rlx_link_get16(in + 2);
    (void)size;
    if (in[0] >= link->model_count) {
        return rlx_link_fail(out, LINK_BAD_MODEL, link->model_count);
    }
    const rlx_model_t *model = link->models[in[0]];
    if (index >= model->tensor_count) {
        return rlx_link_fail(out, LINK_BAD_TENSOR, model->tensor_count);
    }
    const rlx_tensor_t *tensor = &model->tensors[index];
    rlx_link_put32(out, tensor->bytes);
    rlx_link_put32(out, tensor->step);
    rlx_link_put32(out, float_bits(tensor->scale));
    rlx_link_put32(out, (uint32_t)tensor->zero_point);
    rlx_link_put8(out, index < model->input_count);
    rlx_link_put8(out, rlx_link_output_index(model, index));
    rlx_link_put8(out, tensor->dtype);
    rlx_link_put8(out, tensor->rank);
    for (uint32_t i = 0; i < RLX_MAX_RANK; i++) {
        rlx_link_put16(out, tensor->dims[i]);
    }
    rlx_link_put16(out, rlx_link_rows_of(model, index));
    rlx_link_put_string(out, tensor->name, 0);
    return LINK_OK;
}

static rlx_link_status_t describe_layer(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    uint32_t step = rlx_link_get32(in + 4);
    (void)size;
    if (in[0] >= link->model_count) {
        return rlx_link_fail(out, LINK_BAD_MODEL, link->model_count);
    }
    const rlx_model_t *model = link->models[in[0]];
    if (step >= model->steps) {
        return rlx_link_fail(out, LINK_BAD_STEP, model->steps);
    }
    const rlx_stage_t *stage = rlx_link_stage(model, step);
    rlx_link_put32(out, model->layers[step].macs);
    rlx_link_put32(out, stage != NULL ? stage->rows : 0);
    rlx_link_put_string(out, model->layers[step].op, 32);
    rlx_link_put_string(out, model->layers[step].name, 0);
    return LINK_OK;
}

/* ---- The device --------------------------------------------------------------------------------------------- */

static rlx_link_status_t reset_device(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    (void)in;
    (void)size;
    if (link->port->reset == NULL) {
        return rlx_link_fail(out, LINK_UNSUPPORTED, 0);
    }
    link->reset_wanted = true; /* after the reply */
    return LINK_OK;
}

/* in: offset u32, bytes u16. reply: the bytes of the firmware as they lie in flash. */
static rlx_link_status_t read_image(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    const rlx_link_port_t *port = link->port;
    uint32_t offset = rlx_link_get32(in);
    uint32_t bytes = rlx_link_get16(in + 4);
    (void)size;
    if (port->image_bytes == 0) { /* not by its address: flash may begin at 0 */
        return rlx_link_fail(out, LINK_UNSUPPORTED, 0);
    }
    if (offset > port->image_bytes || bytes > port->image_bytes - offset || bytes > RLX_LINK_MAX_PAYLOAD) {
        return rlx_link_fail(out, LINK_BAD_RANGE, port->image_bytes);
    }
    rlx_link_put_bytes(out, port->image + offset, bytes);
    return LINK_OK;
}

/* reply: the chip's unique number. */
static rlx_link_status_t read_uid(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    const rlx_link_port_t *port = link->port;
    (void)in;
    (void)size;
    if (port->uid == NULL) {
        return rlx_link_fail(out, LINK_UNSUPPORTED, 0);
    }
    for (uint32_t i = 0; i < port->uid_words; i++) {
        rlx_link_put32(out, port->uid[i]);
    }
    return LINK_OK;
}

static rlx_link_status_t echo(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out)
{
    (void)link;
    rlx_link_put_bytes(out, in, size);
    return LINK_OK;
}

/* ---- The table ---------------------------------------------------------------------------------------------- */

typedef struct {
    rlx_link_status_t (*handle)(rlx_link_t *link, const uint8_t *in, uint32_t size, rlx_link_out_t *out);
    uint16_t least; /* payload bytes */
    uint16_t most;
} command_t;

rlx_link_status_t rlx_link_execute(rlx_link_t *link, uint32_t command, const uint8_t *payload, uint32_t size,
                                   rlx_link_out_t *out)
{
    static const command_t commands[LINK_COMMANDS] = {
        [LINK_HELLO] = { say_hello, 0, RLX_LINK_MAX_PAYLOAD }, /* later versions may say more */
        [LINK_MODEL] = { describe_model, 1, 1 },
        [LINK_TENSOR] = { describe_tensor, 4, 4 },
        [LINK_LAYER] = { describe_layer, 8, 8 },
        [LINK_CLEAR] = { rlx_link_clear, 1, 1 },
        [LINK_WRITE] = { rlx_link_write, 8, RLX_LINK_MAX_PAYLOAD },
        [LINK_RUN] = { rlx_link_run, 1, 1 },
        [LINK_STEP] = { rlx_link_step, 8, 8 },
        [LINK_READ] = { rlx_link_read, 10, 10 },
        [LINK_RESET] = { reset_device, 0, 0 },
        [LINK_PING] = { echo, 0, RLX_LINK_MAX_PAYLOAD },
        [LINK_ROW] = { rlx_link_row, 12, 12 },
        [LINK_IMAGE] = { read_image, 6, 6 },
        [LINK_UID] = { read_uid, 0, 0 },
    };
    if (command >= LINK_COMMANDS || commands[command].handle == NULL) {
        return rlx_link_fail(out, LINK_BAD_COMMAND, LINK_COMMANDS - 1);
    }
    if (size < commands[command].least || size > commands[command].most) {
        return rlx_link_fail(out, LINK_BAD_LENGTH, size);
    }
    return commands[command].handle(link, payload, size, out);
}
