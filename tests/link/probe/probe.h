/* probe.h: a model by hand, in the shape that the generator writes, to test the link on emulated boards.
 *
 * Inputs: what (1 byte: see probe.c) and data (8,000 bytes, or 100 a row). Step 0 copies data to t, step 1 does what it was told,
 * step 2 doubles t into out.
 */
#ifndef PROBE_H
#define PROBE_H

#include "rlx.h"

/* Rows of 100 bytes of the tensors data, t and out; tests of small boards define fewer. */
#ifndef PROBE_ROWS
#define PROBE_ROWS 80
#endif
#define PROBE_BYTES (100u * PROBE_ROWS)
#define PROBE_ARENA_BYTES (16u + 3u * PROBE_BYTES)

typedef struct {
    RLX_ALIGNAS(16) uint8_t bytes[PROBE_ARENA_BYTES];
} probe_arena_t;

void probe_run(probe_arena_t *arena);

extern const rlx_model_t probe_model;

#endif
