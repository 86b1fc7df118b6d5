/* models.h: small hand-written models that the link's tests serve on the host.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TEST_LINK_MODELS_H
#define TEST_LINK_MODELS_H

#include "rlx_link.h"

#define TEST_ARENA_BYTES 4112u
#define TEST_MODELS 6u

/* What the model "crash" is asked to do, by the value of its input. */
typedef enum { CRASH_FAULT = 1, CRASH_RESET = 2, CRASH_HANG = 3, CRASH_TEXT = 4 } crash_t;

/* Supplied by the program: does it. */
void test_crash(crash_t how);

/* 0 chain: out = { sum of (x + b[0]) * 3, runs so far }; 1 other: reverses; 2 bytes: sums up a prefix; 3 crash;
 * 4 rows: a stage of two layers, and a sum; 5 huge: needs a larger arena than there is. */
extern const rlx_model_t *const test_models[TEST_MODELS];

#endif
