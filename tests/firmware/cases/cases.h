/* cases.h: a hand-written model whose input is a kernel call and whose output is what the kernel wrote.
 *
 * It makes the parity firmware a resident test firmware: one image a core takes any number of cases over the link.
 * A case is little-endian 32-bit words, then data:
 *     magic, kernel, pointers, fields, views, regions, y0, y1, out_bytes, fill, initial, scratch
 *     regions x { offset of the data in the case, bytes }
 *     pointers x { region }                      the parameter struct's pointers
 *     fields x { value }                         the parameter struct's int32 fields
 *     views x { region, offset, pitch, ring }    inputs, then the output; region OUTPUT is the output buffer
 */
#ifndef CASES_H
#define CASES_H

#include "../rlx/rlx.h"

#ifndef CASES_INPUT_BYTES
#define CASES_INPUT_BYTES 4096u
#define CASES_OUTPUT_BYTES 1024u
#endif
#define CASES_ARENA_BYTES (CASES_INPUT_BYTES + CASES_OUTPUT_BYTES)
#define CASE_MAGIC 0x434C5852u /* "RXLC" */
#define CASE_HEADER_WORDS 12u
#define CASE_MAX_REGIONS 8u
#define CASE_OUTPUT 0xFFFFFFFFu
#define CASE_NONE 0xFFFFFFFFu

typedef struct {
    RLX_ALIGNAS(16) uint8_t bytes[CASES_ARENA_BYTES];
} cases_arena_t;

/* Runs a case. regions[i] holds the data of region i; out has the header's out_bytes and is filled with `fill` first.
 * Region `scratch` is the kernel's scratch memory. With initial != CASE_NONE, region `initial` is copied there instead, for kernels that work in place.
 * Returns 1, or 0 for a case that makes no sense. */
int case_run(const uint32_t *words, uint32_t word_count, uint8_t *const *regions, uint8_t *out);

void cases_run(cases_arena_t *arena);
extern const rlx_model_t cases_model;

#endif
