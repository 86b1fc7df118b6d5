/* rlx_link.h: serves models over a serial line, so that a computer can send inputs, run them and read every tensor.
 *
 * The caller owns all state (rlx_link_t) and gives the line as two functions; there are no globals, no heap and no
 * libc. One call from the main loop does everything:
 *
 *     static rlx_link_t link;
 *     static const rlx_model_t *const models[] = { &kws_model };
 *     static RLX_ALIGNAS(16) uint8_t arena[KWS_ARENA_BYTES];
 *     static const rlx_link_port_t port = { .read = uart_read, .write = uart_write, .device = "my-board" };
 *
 *     rlx_link_init(&link, &port, models, 1, arena, sizeof arena);
 *     for (;;) rlx_link_poll(&link);
 *
 * docs/protocol.md specifies what travels over the line.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef RLX_LINK_H
#define RLX_LINK_H

#include "rlx.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* The most payload bytes of one frame, either way. The link keeps two buffers of about this size. Give the same value
 * to every file that includes this header (-DRLX_LINK_MAX_PAYLOAD=256). */
#ifndef RLX_LINK_MAX_PAYLOAD
#define RLX_LINK_MAX_PAYLOAD 1024
#endif
#if RLX_LINK_MAX_PAYLOAD < 128 || RLX_LINK_MAX_PAYLOAD > 32768
#error "RLX_LINK_MAX_PAYLOAD must lie within 128 and 32768"
#endif

#define RLX_LINK_PROTOCOL_VERSION 3u
#define RLX_LINK_HEADER_BYTES 8u
#define RLX_LINK_CRC_BYTES 4u
#define RLX_LINK_MAX_INPUTS 256u /* rlx_model_t counts inputs in 8 bits */

/* header, payload and CRC, before COBS */
#define RLX_LINK_BODY_BYTES (RLX_LINK_HEADER_BYTES + RLX_LINK_MAX_PAYLOAD + RLX_LINK_CRC_BYTES)
/* after COBS, with both delimiters, for a body of n bytes */
#define RLX_LINK_FRAME_BYTES(n) ((n) + (n) / 254u + 3u)

/* ---- What the caller provides ------------------------------------------------------------------------------- */

/* The line and the device. read and write are needed; every other member may be zero. Must outlive the link. */
typedef struct {
    /* Copies up to capacity received bytes to data and returns how many, 0 when there are none. Must not wait. */
    uint32_t (*read)(void *ctx, uint8_t *data, uint32_t capacity);
    /* Sends all size bytes; may wait. */
    void (*write)(void *ctx, const uint8_t *data, uint32_t size);
    /* A number that differs from boot to boot, so that the computer notices a reset. Called once, when the first byte
     * has arrived, so that the moment of that byte can make it differ where nothing else does. */
    uint32_t (*boot_id)(void *ctx);
    /* Restarts the device. Does not return, or returns once the link has been initialized anew. */
    void (*reset)(void *ctx);
    /* A counter of cycles, instructions or time: started right before a step and stopped right after it. */
    void (*count_start)(void *ctx);
    uint64_t (*count_stop)(void *ctx);
    /* For measuring stack: fill the unused stack with a pattern, and count the bytes that still hold it. */
    void (*stack_paint)(void *ctx);
    uint32_t (*stack_unused)(void *ctx);
    void *ctx;

    const uint8_t *image;  /* the firmware in flash, which the link sums up for the computer to compare */
    uint32_t image_bytes;
    uint32_t count_hz;     /* ticks per second of the counter */
    uint32_t reset_reason; /* as the device knows it; shown to people */
    uint32_t setup_failed; /* which step of the board's set-up waited in vain, from 1; 0: none */
    /* Received bytes that are kept while nobody calls read, at most 65535: the size of a ring that an interrupt fills.
     * 0: bytes are lost while the link works on a request, so the computer sends one request at a time. */
    uint32_t ring_bytes;
    const volatile uint32_t *uid; /* the chip's unique number, read only when asked for */
    uint32_t uid_words;
    const char *device;    /* the board's name */
} rlx_link_port_t;

/* ---- The link's state --------------------------------------------------------------------------------------- */

/* Where the current model stands. */
typedef enum {
    RLX_LINK_IDLE = 0,    /* no model chosen */
    RLX_LINK_LOADING = 1, /* inputs are arriving */
    RLX_LINK_RUNNING = 2, /* some steps are done; the inputs are used up */
    RLX_LINK_DONE = 3     /* all steps are done; the outputs may be read */
} rlx_link_phase_t;

/* Treat as private. */
typedef struct {
    const rlx_link_port_t *port;
    const rlx_model_t *const *models;
    uint32_t model_count;
    uint8_t *arena;
    uint32_t arena_bytes;

    /* the run */
    rlx_link_phase_t phase;
    uint32_t model;                              /* index of the current model, unless idle */
    uint32_t next_step;                          /* steps done so far */
    uint32_t next_row;                           /* of the next step, if that is a stage: rows done so far */
    uint32_t row_tensor;                         /* the tensor of the row made last, or RLX_NO_TENSOR ... */
    uint32_t row_first;                          /* ... where the row begins in the tensor ... */
    uint32_t row_bytes;
    uint32_t row_offset;                         /* ... and in the arena */
    uint32_t loading_input;                      /* the input that was written last ... */
    uint32_t loading_bytes;                      /* ... and how many of its bytes arrived, without gaps, from 0 */
    uint8_t loaded[RLX_LINK_MAX_INPUTS / 8u];    /* a bit per input: all of it arrived */

    /* the session */
    bool reset_wanted;
    bool image_summed;
    bool awake;              /* a byte has arrived since the start, and boot_id is known */
    uint32_t boot_id;
    uint32_t nonce;          /* drawn by the computer that opened the session; 0: nobody did */
    uint32_t last_nonce;     /* of the session before, whose late HELLO must not open it again */
    uint16_t sequence;       /* of the request executed last */
    uint32_t request_session; /* its session field */
    uint32_t request_crc;
    uint32_t image_crc;

    /* received bytes of the frame that is arriving; also the room to encode what is sent */
    uint32_t frame_size;
    bool frame_overflow;
    uint8_t frame[RLX_LINK_FRAME_BYTES(RLX_LINK_BODY_BYTES)];
    /* the last reply, kept to be sent again when its request is repeated */
    uint32_t reply_size;
    uint8_t reply[RLX_LINK_BODY_BYTES];
} rlx_link_t;

/* What the processor said about a fault. */
typedef struct {
    uint32_t pc, lr, psr, cfsr, hfsr, bfar, r0, sp;
} rlx_link_fault_t;

/* ---- Functions ---------------------------------------------------------------------------------------------- */

/// Starts a link. models[0..model_count) share the arena, one at a time; model_count is at most 255. The arena must be
/// aligned to 16. port, models and arena must outlive the link.
void rlx_link_init(rlx_link_t *link, const rlx_link_port_t *port, const rlx_model_t *const *models,
                   uint32_t model_count, uint8_t *arena, uint32_t arena_bytes);

/// Takes what has arrived, answers the requests that are complete, and returns; waits only for writing, for the steps
/// of a model that was asked to run, and for sums over flash. Returns true when any byte had arrived.
bool rlx_link_poll(rlx_link_t *link);

/// Tells the computer about a fault. For fault handlers: uses about 300 bytes of stack and port->write only.
void rlx_link_fault(const rlx_link_t *link, const rlx_link_fault_t *fault);

#if defined(__cplusplus)
}
#endif
#endif
