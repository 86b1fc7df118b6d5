/* rlx.h: the types that kernels, generated models and the link share.
 *
 * C11 or C++, freestanding: needs stdint.h, stdbool.h and stddef.h only. Nothing here allocates.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_H
#define RLX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bumped whenever a struct or a signature in this file changes. A generated model names the version that it was
 * made for and refuses any other, so that a mixed bundle fails at compile time. */
#define RLX_API_VERSION 2

#if defined(__cplusplus)
#define RLX_ALIGNAS(n) alignas(n)
extern "C" {
#else
#define RLX_ALIGNAS(n) _Alignas(n)
#endif

/* ---- Tensors ---------------------------------------------------------------------------------------------- */

/* Rows of an NHWC image: row y starts at base + (y % ring) * pitch bytes. ring = 0 means that every row is there,
 * so that no modulo is needed. Row y of a matrix [M, K] is its y-th row. */
typedef struct {
    int8_t *base;
    int32_t pitch; /* bytes between two rows */
    int32_t ring;  /* rows held, or 0 for all */
} rlx_view_t;

static inline int8_t *rlx_row(rlx_view_t view, int32_t y)
{
    return view.base + (view.ring != 0 ? y % view.ring : y) * view.pitch;
}

typedef enum { RLX_S8 = 1, RLX_S32 = 2, RLX_F32 = 3 } rlx_dtype_t;

#define RLX_NO_STEP 0xFFFFFFFFu
#define RLX_NO_TENSOR 0xFFFFu
#define RLX_MAX_RANK 6

/* A tensor of a generated model, as it lies in the arena while it lives. */
typedef struct {
    const char *name;             /* of the lowered graph */
    uint32_t offset;              /* bytes from the arena's first byte */
    uint32_t bytes;
    uint32_t step;                /* the step that completes it; RLX_NO_STEP for a model input */
    float scale;                  /* 0 for tensors that are not quantized */
    int32_t zero_point;
    uint8_t dtype;                /* rlx_dtype_t */
    uint8_t rank;
    uint16_t dims[RLX_MAX_RANK];  /* in memory order; unused entries are 0 */
} rlx_tensor_t;

/* What one step does, for people and profilers. */
typedef struct {
    const char *name; /* of the tensor that the step completes */
    const char *op;   /* the IR kind, e.g. "QConv2d" */
    uint32_t macs;    /* multiply-accumulates */
} rlx_layer_t;

/* ---- Stages ----------------------------------------------------------------------------------------------- */

/* What a layer of a stage makes: a tensor of which only some rows exist at a time. Row y lies at the tensor's offset +
 * (y % ring) * pitch. */
typedef struct {
    uint16_t tensor; /* index in the model's tensors[]; RLX_NO_TENSOR for a running sum */
    uint16_t rows;   /* of the whole tensor */
    uint16_t ring;   /* rows held, or 0 for all */
    uint32_t pitch;  /* bytes between two rows */
} rlx_line_t;

/* A step that makes several layers row by row, as data, for code that looks at each row (the link, the host). */
typedef struct {
    uint32_t step;
    uint32_t rows;                                       /* of all layers: entries of order[] */
    const uint8_t *order;                                /* the layer that makes its next row */
    const rlx_line_t *lines;                             /* by layer */
    void (*const *layers)(uint8_t *arena, int32_t y);    /* make row y */
} rlx_stage_t;

/* ---- Models ----------------------------------------------------------------------------------------------- */

/* Called after the step that completes a tensor, while the tensor still lies in the arena. */
typedef void (*rlx_tap_fn)(void *ctx, uint32_t tensor, const void *data, uint32_t bytes);

/* A generated model as data, for code that serves any model (the link, the parity firmware). A program that runs
 * one model it knows calls that model's own functions instead, and the linker drops this. */
typedef struct {
    const char *name;
    const char *ident;            /* "name requant target hash": unique for weights, plan and kernels */
    uint8_t hash[16];             /* the same hash, as bytes */
    uint32_t arena_bytes;
    uint32_t steps;
    uint16_t tensor_count;        /* entries of tensors[]: inputs, one per step, those within stages */
    uint8_t input_count;          /* the first input_count entries of tensors[] are the inputs */
    uint8_t output_count;
    const uint16_t *outputs;      /* indices into tensors[] */
    const rlx_tensor_t *tensors;
    const rlx_layer_t *layers;    /* one per step */
    const rlx_stage_t *stages;    /* the steps among them that are stages, in order; NULL without any */
    uint32_t stage_count;
    void (*step)(uint8_t *arena, uint32_t step); /* arena: aligned to 16 */
    void (*reset)(uint8_t *arena);               /* clears state tensors; may do nothing */
    int (*weights_ok)(void);                     /* 1 when the weights in flash match their checksum */
    bool variable_input;                         /* inputs may be shorter than their tensors (test firmware); else false */
} rlx_model_t;

#if defined(__cplusplus)
}
#endif
#endif
