/* rlx_depthwise_dsp.h: the inner loop of depthwise convolution over planes (rlx_planes_dsp.h), in assembly and as a twin in C.
 *
 * A line's bytes end so that its last output's begin, plus the inner stride, is a multiple of the planes' pitch: the loop
 * knows its end by that.
 *
 * stream: RLX_DEPTHWISE_RECORD bytes a channel, in the order of memory, without alignment (w[outer][inner]):
 *     int32 2 * bias, int32 multiplier,
 *     RLX_DEPTHWISE_BITS 8: int8 w00 w10 w02 w12  w20 w01 w22 w11;
 *                        4: uint16 of 4 bits each, from the lowest, w00 w10 w20 w01; another one: w02 w12 w22 w11; all + 8;
 *                        2: uint8 of 2 bits each, and another one, in the same order; all + 2;
 *     int8 w21, uint8 right shift
 * Weights are doubled when they are loaded, as SMMLAR wants 2 acc (rlx_dsp.h). With weights of 4 and 2 bits, whose
 * multipliers are often 1/2 or more, right shifts may be 0: they are requantized as rlx_digits_dsp.h says.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_DEPTHWISE_DSP_H
#define RLX_DEPTHWISE_DSP_H

#include "rlx_planes_dsp.h"

enum { RLX_DEPTHWISE_RECORD = 10 + RLX_DEPTHWISE_BITS };

/* How lines of outputs are computed from planes. The assembly loads the fields but the last two in this order. */
typedef struct {
    int32_t channels;
    int32_t pixel_step;           /* bytes of y from output to output of a line */
    int32_t odd, skip;            /* whether a line has an odd output, and bytes of code that its first pass skips */
    int32_t plane_step, out_step; /* from a line's end to the next line's begin */
    int32_t span, plane_bytes;    /* bytes of a plane from the first line's begin to one line past the last */
    int32_t two_zp;               /* 2 * out_zp + 1: K = two_zp << (shift - 1), or two_zp << shift */
    /* The same for two lines at once, where both strides are 1; double_span = 0: only one at a time */
    int32_t double_odd, double_skip, double_plane_step, double_out_step, double_span, double_pixel_step, line_step;
    int32_t outputs, stride;      /* of a line; only the twin reads these */
} rlx_lines_t;

enum {
    RLX_PAIR_2_CODE = (RLX_DEPTHWISE_BITS == 8 ? 39 : 41) * 4,
    RLX_BLOCK_CODE = (RLX_DEPTHWISE_BITS == 8 ? 61 : 65) * 4,
    RLX_UNROLL = 2, /* of all three loops but the one of pairs with stride 1, which is for what the blocks leave */
};

#if RLX_DSP

/* The lines of `channels` planes. In the loop:
 *     r0 plane, r1 out, r2 and r3 accumulators (doubled), r4 to r6 taps 0 and 2 of kernel rows 0 to 2 (halfwords),
 *     r7 tap 1 of rows 0 and 1, r8 right shift (low byte) and tap 1 of row 2 (high half), r9 2 bias, r10 multiplier, r11 K,
 *     r12 pixels 0 and 2, then t; lr pixels 1 and 3, then the pixel step.
 *     sp: +0 plane, +4 out, +8 stream, +12 channels left, +16 pixel step, +20 where a line begins, +24 where its pairs begin,
 *     +28 plane step, +32 out step, +36 span, +40 plane bytes, +44 two_zp, +48 the plane's end.
 * In the loop over two lines at once (stride 1): r9 and r10 accumulators of the second line, r11 2 bias, then t; r12 and
 *     lr pixels, then multiplier and K, then pixel step and line step.
 *     sp: +52 2 bias, +56 multiplier, +60 K, +64 pixel step, +68 line step, +72 double plane step, +76 double out step,
 *     +80 double span, +84 where two lines begin, +88 where their blocks begin, +92 the end of the lines by twos.
 * All instructions of a pair or block are 32 bits wide, so that the loops can be entered at any of theirs. */
#define RLX_BYTES_TO_HALVES "sxtb16 lr, r12, ror #8\n\tsxtb16 r12, r12\n\t"

/* With m and K in registers, and t for a sum. */
#if RLX_DEPTHWISE_BITS == 8
#define RLX_REQUANTIZE_BY(acc, m, k, t) \
    "add " t ", " k ", " acc ", asr #31\n\t" \
    "smmlar " acc ", " acc ", " m ", " t "\n\t" \
    "asr " acc ", " acc ", r8\n\t" \
    "ssat " acc ", #8, " acc "\n\t"
#define RLX_DEPTHWISE_OFFSET "sub lr, r8, #1\n\tlsl r11, r11, lr\n\t"
#else
#define RLX_REQUANTIZE_BY(acc, m, k, t) \
    "add " t ", " k ", " acc ", asr #31\n\t" \
    "smmulr " acc ", " acc ", " m "\n\t" \
    "add " acc ", " t ", " acc ", lsl #1\n\t" \
    "asr " acc ", " acc ", r8\n\t" \
    "ssat " acc ", #8, " acc ", asr #1\n\t"
#define RLX_DEPTHWISE_OFFSET "lsl r11, r11, r8\n\t"
#endif
#define RLX_REQUANTIZE(acc) RLX_REQUANTIZE_BY(acc, "r10", "r11", "r12")

/* One output: bytes 0 to 2. start: r9 or r2. */
#define RLX_ROW_OF_ONE(load, taps, start, half, tap_1) \
    load RLX_BYTES_TO_HALVES \
    "smlad r2, r12, " taps ", " start "\n\t" \
    "smlab" half " r2, lr, " tap_1 ", r2\n\t"

/* Two outputs, stride 1: bytes 0 to 2 and 1 to 3. */
#define RLX_ROW_OF_PAIR_1(load, taps, start_0, start_1, half, tap_1) \
    RLX_ROW_OF_ONE(load, taps, start_0, half, tap_1) \
    "smlad r3, lr, " taps ", " start_1 "\n\t" \
    "smlat" half " r3, r12, " tap_1 ", r3\n\t"

/* Two outputs, stride 2: bytes 0 to 2 and 2 to 4. */
#define RLX_ROW_OF_PAIR_2(load, byte_4, taps, start_0, start_1, half, tap_1) \
    RLX_ROW_OF_ONE(load, taps, start_0, half, tap_1) \
    "smlatb r3, r12, " taps ", " start_1 "\n\t" \
    "smlat" half " r3, lr, " tap_1 ", r3\n\t" \
    byte_4 \
    "smlabt r3, r12, " taps ", r3\n\t"

#define RLX_STORE_PAIR \
    RLX_REQUANTIZE("r2") RLX_REQUANTIZE("r3") \
    "ldr lr, [sp, #16]\n\tstrb.w r2, [r1]\n\tstrb r3, [r1, lr]\n\tadd r1, r1, lr, lsl #1\n\t"

#define RLX_PAIR_1 \
    RLX_ROW_OF_PAIR_1("ldr r12, [r0], #2\n\t", "r4", "r9", "r9", "b", "r7") \
    RLX_ROW_OF_PAIR_1("ldr r12, [r0, #30]\n\t", "r5", "r2", "r3", "t", "r7") \
    RLX_ROW_OF_PAIR_1("ldr r12, [r0, #62]\n\t", "r6", "r2", "r3", "t", "r8") \
    RLX_STORE_PAIR

#define RLX_PAIR_2 \
    RLX_ROW_OF_PAIR_2("ldr r12, [r0], #4\n\t", "ldrsb r12, [r0]\n\t", "r4", "r9", "r9", "b", "r7") \
    RLX_ROW_OF_PAIR_2("ldr r12, [r0, #28]\n\t", "ldrsb r12, [r0, #32]\n\t", "r5", "r2", "r3", "t", "r7") \
    RLX_ROW_OF_PAIR_2("ldr r12, [r0, #60]\n\t", "ldrsb r12, [r0, #64]\n\t", "r6", "r2", "r3", "t", "r8") \
    RLX_STORE_PAIR

/* Two lines of one or two outputs. A kernel row of both lines is loaded once. */
#define RLX_TAPS_OF_ONE(acc, taps, start, half, tap_1) \
    "smlad " acc ", r12, " taps ", " start "\n\t" \
    "smlab" half " " acc ", lr, " tap_1 ", " acc "\n\t"

#define RLX_TAPS_OF_TWO(acc_0, acc_1, taps, start_0, start_1, half, tap_1) \
    RLX_TAPS_OF_ONE(acc_0, taps, start_0, half, tap_1) \
    "smlad " acc_1 ", lr, " taps ", " start_1 "\n\t" \
    "smlat" half " " acc_1 ", r12, " tap_1 ", " acc_1 "\n\t"

#define RLX_REQUANTIZE_LATE(acc) RLX_REQUANTIZE_BY(acc, "r12", "lr", "r11")

#define RLX_COLUMN \
    "ldr r12, [r0], #1\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_ONE("r2", "r4", "r11", "b", "r7") \
    "ldr r12, [r0, #31]\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_ONE("r2", "r5", "r2", "t", "r7") \
    RLX_TAPS_OF_ONE("r9", "r4", "r11", "b", "r7") \
    "ldr r12, [r0, #63]\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_ONE("r2", "r6", "r2", "t", "r8") \
    RLX_TAPS_OF_ONE("r9", "r5", "r9", "t", "r7") \
    "ldr r12, [r0, #95]\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_ONE("r9", "r6", "r9", "t", "r8") \
    "ldrd r12, lr, [sp, #56]\n\t" \
    RLX_REQUANTIZE_LATE("r2") RLX_REQUANTIZE_LATE("r9") \
    "ldrd r12, lr, [sp, #64]\n\t" \
    "strb.w r2, [r1]\n\t" \
    "strb r9, [r1, lr]\n\t" \
    "add r1, r1, r12\n\t" \
    "ldr r11, [sp, #52]\n\t"

#define RLX_BLOCK \
    "ldr r12, [r0], #2\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_TWO("r2", "r3", "r4", "r11", "r11", "b", "r7") \
    "ldr r12, [r0, #30]\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_TWO("r2", "r3", "r5", "r2", "r3", "t", "r7") \
    RLX_TAPS_OF_TWO("r9", "r10", "r4", "r11", "r11", "b", "r7") \
    "ldr r12, [r0, #62]\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_TWO("r2", "r3", "r6", "r2", "r3", "t", "r8") \
    RLX_TAPS_OF_TWO("r9", "r10", "r5", "r9", "r10", "t", "r7") \
    "ldr r12, [r0, #94]\n\t" RLX_BYTES_TO_HALVES \
    RLX_TAPS_OF_TWO("r9", "r10", "r6", "r9", "r10", "t", "r8") \
    "ldrd r12, lr, [sp, #56]\n\t" \
    RLX_REQUANTIZE_LATE("r2") RLX_REQUANTIZE_LATE("r3") RLX_REQUANTIZE_LATE("r9") RLX_REQUANTIZE_LATE("r10") \
    "ldrd r12, lr, [sp, #64]\n\t" \
    "strb.w r2, [r1]\n\t" \
    "strb r3, [r1, r12]\n\t" \
    "add r11, r1, lr\n\t" \
    "strb r9, [r11]\n\t" \
    "strb r10, [r11, r12]\n\t" \
    "add r1, r1, r12, lsl #1\n\t" \
    "ldr r11, [sp, #52]\n\t"

/* Doubled weights in r4 to r7; the shift in r8, tap 1 of row 2 in r12. */
#if RLX_DEPTHWISE_BITS == 8
#define RLX_DEPTHWISE_TAPS \
    "ldr r12, [r2, #8]\n\t" \
    "sxtb16 r4, r12\n\t" \
    "sxtb16 r5, r12, ror #8\n\t" \
    "ldr r12, [r2, #12]\n\t" \
    "sxtb16 r6, r12\n\t" \
    "sxtb16 r7, r12, ror #8\n\t" \
    "sadd16 r4, r4, r4\n\t" \
    "sadd16 r5, r5, r5\n\t" \
    "sadd16 r6, r6, r6\n\t" \
    "sadd16 r7, r7, r7\n\t" \
    "ldrb r8, [r2, #17]\n\t" \
    "ldrsb r12, [r2, #16]\n\t"
#else
#if RLX_DEPTHWISE_BITS == 4
#define RLX_DEPTHWISE_FIELDS "ldr r12, [r2, #8]\n\tmov lr, #0x001e001e\n\tmov r11, #0x00100010\n\t"
#define RLX_DEPTHWISE_SHIFTS "lsr #3", "lsr #7", "lsr #11"
#define RLX_DEPTHWISE_LAST "ldrb r8, [r2, #13]\n\tldrsb r12, [r2, #12]\n\t"
#else
#define RLX_DEPTHWISE_FIELDS \
    "ldrh r12, [r2, #8]\n\torr r12, r12, r12, lsl #8\n\tmov lr, #0x00060006\n\tmov r11, #0x00040004\n\t"
#define RLX_DEPTHWISE_SHIFTS "lsr #1", "lsr #3", "lsr #5"
#define RLX_DEPTHWISE_LAST "ldrb r8, [r2, #11]\n\tldrsb r12, [r2, #10]\n\t"
#endif
#define RLX_DEPTHWISE_UNPACK(shift_5, shift_6, shift_7) \
    "and r4, lr, r12, lsl #1\n\tand r5, lr, r12, " shift_5 "\n\t" \
    "and r6, lr, r12, " shift_6 "\n\tand r7, lr, r12, " shift_7 "\n\t" \
    "ssub16 r4, r4, r11\n\tssub16 r5, r5, r11\n\tssub16 r6, r6, r11\n\tssub16 r7, r7, r11\n\t"
#define RLX_DEPTHWISE_EACH(...) RLX_DEPTHWISE_UNPACK(__VA_ARGS__)
#define RLX_DEPTHWISE_TAPS RLX_DEPTHWISE_FIELDS RLX_DEPTHWISE_EACH(RLX_DEPTHWISE_SHIFTS) RLX_DEPTHWISE_LAST
#endif

/* lr: where the fields for two lines at once begin */
#define RLX_DOUBLE_SETUP \
    "ldm lr, {r4-r10}\n\t" \
    "adr.w r12, 9f\n\t" \
    "add r5, r5, r12\n\t" \
    "orr r5, r5, #1\n\t" \
    "cmp r4, #0\n\t" \
    "ite eq\n\t" \
    "moveq r4, r5\n\t" \
    "adrne.w r4, 8f\n\t" \
    "orr r4, r4, #1\n\t" \
    "strd r9, r10, [sp, #64]\n\t" \
    "strd r6, r7, [sp, #72]\n\t" \
    "str r8, [sp, #80]\n\t" \
    "strd r4, r5, [sp, #84]\n\t"

#define RLX_DOUBLE_LINES \
    "ldr r12, [sp, #80]\n\t" \
    "cmp r12, #0\n\t" \
    "beq.w 7f\n\t" \
    "add lr, sp, #52\n\t" \
    "stm lr, {r9-r11}\n\t" \
    "add r12, r0, r12\n\t" \
    "str r12, [sp, #92]\n\t" \
    "mov r11, r9\n\t" \
    "ldr pc, [sp, #84]\n\t" \
    ".balign 4\n" \
    "8:\n\t" \
    RLX_COLUMN \
    "tst.w r0, #31\n\t" \
    "beq.w 10f\n\t" \
    "ldr pc, [sp, #88]\n\t" \
    ".balign 4\n" \
    "9:\n\t" \
    RLX_BLOCK RLX_BLOCK \
    "tst.w r0, #31\n\t" \
    "bne.w 9b\n" \
    "10:\n\t" \
    "ldrd r12, lr, [sp, #72]\n\t" \
    "add r0, r0, r12\n\t" \
    "add r1, r1, lr\n\t" \
    "ldr r12, [sp, #92]\n\t" \
    "cmp r0, r12\n\t" \
    "it ne\n\t" \
    "ldrne pc, [sp, #84]\n\t" \
    "ldr r12, [sp, #48]\n\t" \
    "cmp r0, r12\n\t" \
    "beq.w 6f\n\t" \
    "add lr, sp, #52\n\t" \
    "ldm lr, {r9-r11}\n" \
    "7:\n\t"

/* stride, 32 - stride, 64 - stride; the loop over pairs; what comes before for two lines at once */
#define RLX_LINES(stride, row_1, row_2, pairs, double_setup, double_lines) \
    __asm__ volatile( \
        "push {r4-r11, lr}\n\t" \
        "mov lr, r3\n\t" \
        "ldm lr!, {r3-r11}\n\t" /* channels, pixel step, odd, skip, plane step, out step, span, plane bytes, two_zp */ \
        "sub sp, sp, #100\n\t" \
        "adr.w r12, 4f\n\t" \
        "add r6, r6, r12\n\t" \
        "orr r6, r6, #1\n\t" \
        "cmp r5, #0\n\t" \
        "ite eq\n\t" \
        "moveq r5, r6\n\t" \
        "adrne.w r5, 3f\n\t" \
        "orr r5, r5, #1\n\t" \
        "stm sp, {r0-r11}\n\t" \
        double_setup \
        "1:\n\t" \
        RLX_DEPTHWISE_TAPS \
        "ldr r11, [sp, #44]\n\t" \
        RLX_DEPTHWISE_OFFSET \
        "pkhbt r8, r8, r12, lsl #17\n\t" \
        "ldr r12, [sp, #36]\n\t" \
        "ldr r10, [r2, #4]\n\t" \
        "ldr r9, [r2], #" RLX_DSP_TEXT(RLX_DEPTHWISE_BITS) " + 10\n\t" \
        "add r12, r0, r12\n\t" \
        "str r2, [sp, #8]\n\t" \
        "str r12, [sp, #48]\n\t" \
        double_lines \
        "ldr pc, [sp, #20]\n\t" \
        ".balign 4\n" \
        "3:\n\t" \
        RLX_ROW_OF_ONE("ldr r12, [r0], #" stride "\n\t", "r4", "r9", "b", "r7") \
        RLX_ROW_OF_ONE("ldr r12, [r0, #" row_1 "]\n\t", "r5", "r2", "t", "r7") \
        RLX_ROW_OF_ONE("ldr r12, [r0, #" row_2 "]\n\t", "r6", "r2", "t", "r8") \
        RLX_REQUANTIZE("r2") \
        "ldr lr, [sp, #16]\n\t" \
        "strb.w r2, [r1]\n\t" \
        "add.w r1, r1, lr\n\t" \
        "tst.w r0, #31\n\t" \
        "beq.w 5f\n\t" \
        "ldr pc, [sp, #24]\n\t" \
        ".balign 4\n" \
        "4:\n\t" \
        pairs \
        "tst.w r0, #31\n\t" \
        "bne.w 4b\n" \
        "5:\n\t" \
        "ldrd r12, lr, [sp, #28]\n\t" \
        "add r0, r0, r12\n\t" \
        "add r1, r1, lr\n\t" \
        "ldr r12, [sp, #48]\n\t" \
        "cmp r0, r12\n\t" \
        "it ne\n\t" \
        "ldrne pc, [sp, #20]\n" \
        "6:\n\t" \
        "ldm sp, {r0-r3}\n\t" \
        "ldr r12, [sp, #40]\n\t" \
        "subs r3, r3, #1\n\t" \
        "add r0, r0, r12\n\t" \
        "add r1, r1, #1\n\t" \
        "stm sp, {r0-r3}\n\t" \
        "bne.w 1b\n\t" \
        "add sp, sp, #100\n\t" \
        "pop {r4-r11, pc}")

static RLX_NAKED void rlx_lines_1(
    RLX_UNSEEN const int8_t *plane, RLX_UNSEEN int8_t *out, RLX_UNSEEN const int8_t *stream, RLX_UNSEEN const rlx_lines_t *job)
{
    RLX_LINES("1", "31", "63", RLX_PAIR_1, RLX_DOUBLE_SETUP, RLX_DOUBLE_LINES);
}

static RLX_NAKED void rlx_lines_2(
    RLX_UNSEEN const int8_t *plane, RLX_UNSEEN int8_t *out, RLX_UNSEEN const int8_t *stream, RLX_UNSEEN const rlx_lines_t *job)
{
    RLX_LINES("2", "30", "62", RLX_PAIR_2 RLX_PAIR_2, "", "");
}

static inline void rlx_lines(const int8_t *plane, int8_t *out, const int8_t *stream, const rlx_lines_t *job)
{
    if (job->stride == 1) {
        rlx_lines_1(plane, out, stream, job);
    } else {
        rlx_lines_2(plane, out, stream, job);
    }
}

#else

static inline int32_t rlx_lines_word(const int8_t *bytes)
{
    const uint8_t *b = (const uint8_t *)bytes;
    return (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

/* Of w00 w01 w02 w10 ... */
static inline int32_t rlx_lines_weight(const int8_t *record, int32_t tap)
{
#if RLX_DEPTHWISE_BITS == 8
    static const uint8_t places[9] = {0, 5, 2, 1, 7, 3, 4, 8, 6};
    return record[8 + places[tap]];
#else
    static const uint8_t places[9] = {0, 3, 4, 1, 7, 5, 2, 8, 6};
    if (places[tap] == 8) {
        return record[RLX_DEPTHWISE_RECORD - 2];
    }
    const int32_t bit = places[tap] * RLX_DEPTHWISE_BITS;
    const uint32_t field = (uint32_t)(uint8_t)record[8 + bit / 8] >> bit % 8 & ((1u << RLX_DEPTHWISE_BITS) - 1u);
    return (int32_t)field - (1 << (RLX_DEPTHWISE_BITS - 1));
#endif
}

static inline int8_t rlx_lines_output(const int8_t *pixels, const int8_t *record, int32_t two_zp)
{
    int32_t acc = rlx_lines_word(record) / 2;
    for (int32_t tap = 0; tap < 9; tap++) {
        acc += pixels[tap / 3 * RLX_PLANE_PITCH + tap % 3] * rlx_lines_weight(record, tap);
    }
    const int32_t shift = record[RLX_DEPTHWISE_RECORD - 1];
#if RLX_DEPTHWISE_BITS == 8
    const int32_t k = (int32_t)((uint32_t)two_zp << (shift - 1));
    return rlx_dsp_requantize(acc, rlx_lines_word(record + 4), k, shift);
#else
    const int32_t k = (int32_t)((uint32_t)two_zp << shift);
    return rlx_dsp_requantize_doubled(acc, rlx_lines_word(record + 4), k, shift);
#endif
}

static inline void rlx_lines(const int8_t *plane, int8_t *out, const int8_t *stream, const rlx_lines_t *job)
{
    for (int32_t c = 0; c < job->channels; c++, stream += RLX_DEPTHWISE_RECORD) {
        const int8_t *pixels = plane + c * job->plane_bytes;
        const int8_t *end = pixels + job->span;
        int8_t *y = out + c;
        while (pixels != end) {
            for (int32_t i = 0; i < job->outputs; i++) {
                *y = rlx_lines_output(pixels, stream, job->two_zp);
                y += job->pixel_step;
                pixels += job->stride;
            }
            pixels += job->plane_step;
            y += job->out_step;
        }
    }
}

#endif
#endif
