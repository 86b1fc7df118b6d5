/* A model by hand, in the shape that the generator writes: 16 bytes in, two steps, 16 bytes out. */
#ifndef TOY_H
#define TOY_H

#include "rlx.h"

#define TOY_ARENA_BYTES 48u
#define TOY_STEPS 2u

typedef struct {
    RLX_ALIGNAS(16) uint8_t bytes[TOY_ARENA_BYTES];
} toy_arena_t;

int8_t *toy_input(toy_arena_t *arena);
const int8_t *toy_output(const toy_arena_t *arena);
void toy_run(toy_arena_t *arena);
void toy_step(toy_arena_t *arena, uint32_t step);
void toy_reset(toy_arena_t *arena);

extern const rlx_model_t toy_model;

#endif
