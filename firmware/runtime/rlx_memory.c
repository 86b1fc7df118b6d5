/* rlx_memory.c: the four functions that compilers call even in freestanding code (C11 7.24), for images without libc.
 *
 * Word by word where both pointers are aligned alike, for such calls are part of a model's run time. Compile with
 * -fno-tree-loop-distribute-patterns, or gcc turns each loop into a call to itself.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);

/* A word that may lie over objects of any type, as a byte may. */
typedef uint32_t __attribute__((may_alias)) word_t;

#define WORD sizeof(word_t)

static size_t misalignment(const void *p) { return (uintptr_t)p % WORD; }

/* From the lowest address up. Right for overlapping areas too where to lies below from: where both are aligned alike,
 * their distance is whole words. */
static void copy_up(uint8_t *to, const uint8_t *from, size_t size)
{
    if (misalignment(to) == misalignment(from)) {
        for (; size > 0 && misalignment(to) != 0; size--) {
            *to++ = *from++;
        }
        for (; size >= WORD; size -= WORD, to += WORD, from += WORD) {
            *(word_t *)(void *)to = *(const word_t *)(const void *)from;
        }
    }
    for (; size > 0; size--) {
        *to++ = *from++;
    }
}

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    copy_up(to, from, size);
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    uint8_t *d = to;
    const uint8_t *s = from;
    if ((uintptr_t)d - (uintptr_t)s >= size) { /* also when d < s: the difference wraps */
        copy_up(d, s, size);
    } else {
        while (size-- > 0) {
            d[size] = s[size];
        }
    }
    return to;
}

void *memset(void *to, int value, size_t size)
{
    uint8_t *d = to;
    const uint8_t byte = (uint8_t)value;
    for (; size > 0 && misalignment(d) != 0; size--) {
        *d++ = byte;
    }
    for (; size >= WORD; size -= WORD, d += WORD) {
        *(word_t *)(void *)d = byte * (word_t)0x01010101u;
    }
    for (; size > 0; size--) {
        *d++ = byte;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t size)
{
    const uint8_t *x = a;
    const uint8_t *y = b;
    for (size_t i = 0; i < size; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i] ? -1 : 1;
        }
    }
    return 0;
}
