/* main.c: cases over standard input and output, for the host build under sanitizers.
 *
 * Reads { u32 bytes, case } again and again and writes { u32 bytes, output }. Every region lies in memory of its own,
 * of just its size, so that the address sanitizer sees any access beyond it.
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run_one(const uint8_t *bytes, uint32_t size)
{
    uint32_t *words = malloc(size);
    uint8_t *regions[CASE_MAX_REGIONS] = {0};
    memcpy(words, bytes, size);
    for (uint32_t i = 0; i < words[5] && i < CASE_MAX_REGIONS; i++) {
        const uint32_t offset = words[CASE_HEADER_WORDS + 2 * i];
        const uint32_t length = words[CASE_HEADER_WORDS + 2 * i + 1];
        regions[i] = malloc(length);
        memcpy(regions[i], bytes + offset, length);
    }
    const uint32_t out_bytes = words[8];
    uint8_t *out = malloc(out_bytes);
    const int ok = case_run(words, size / 4, regions, out);
    fwrite(&out_bytes, 4, 1, stdout);
    fwrite(out, 1, out_bytes, stdout);
    fflush(stdout);
    free(out);
    for (uint32_t i = 0; i < CASE_MAX_REGIONS; i++) {
        free(regions[i]);
    }
    free(words);
    return ok;
}

int main(void)
{
    uint32_t size;
    while (fread(&size, 4, 1, stdin) == 1) {
        uint8_t *bytes = malloc(size);
        if (fread(bytes, 1, size, stdin) != size || !run_one(bytes, size)) {
            return 1;
        }
        free(bytes);
    }
    return 0;
}
