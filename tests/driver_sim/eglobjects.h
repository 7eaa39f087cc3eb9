/*
 * EGL's objects that the simulated libEGL makes and the simulated libcuda uses: streams, images, syncs.
 *
 * A stream is in a memory file, followed by its frames' pixels, so that several processes can share it through a
 * descriptor. Built into libcodecfleet_sim.so.1. Sources: EGL_KHR_stream, EGL_KHR_stream_fifo, EGL_NV_stream_reset; the
 * behaviour of an H100 with driver 580.159.04.
 */
#ifndef CODECFLEET_DRIVER_SIM_EGLOBJECTS_H
#define CODECFLEET_DRIVER_SIM_EGLOBJECTS_H

#include "scenario.h"

#define EGL_FRAMES_MOST 64
#define EGL_PLANES_MOST 3

enum {
    EGL_STATE_CREATED = 0x3215,
    EGL_STATE_CONNECTING,
    EGL_STATE_EMPTY,
    EGL_STATE_NEW_FRAME,
    EGL_STATE_OLD_FRAME,
    EGL_STATE_DISCONNECTED
};

/* A frame as CUDA describes it, and the addresses of its planes in the process that made it. */
typedef struct sim_egl_frame {
    uint64_t planes[EGL_PLANES_MOST];
    unsigned width, height, pitch, plane_count, channels, type, colour, format;
    unsigned row_bytes[EGL_PLANES_MOST], rows[EGL_PLANES_MOST], pitches[EGL_PLANES_MOST];
    int device; /* the scenario's number */
    uint64_t number;
} sim_egl_frame;

typedef struct sim_egl_stream sim_egl_stream;

SIM_EXPORT sim_egl_stream *sim_egl_stream_make(int fifo_frames, bool keeps_last);
SIM_EXPORT sim_egl_stream *sim_egl_stream_open(int descriptor); /* NULL: not of a stream */
SIM_EXPORT bool sim_egl_stream_is(const sim_egl_stream *stream);
SIM_EXPORT void sim_egl_stream_destroy(sim_egl_stream *stream);
SIM_EXPORT int sim_egl_stream_descriptor(sim_egl_stream *stream); /* -1: an end has connected */
SIM_EXPORT int sim_egl_stream_state(sim_egl_stream *stream);
SIM_EXPORT int sim_egl_stream_fifo(sim_egl_stream *stream);
SIM_EXPORT bool sim_egl_stream_keeps_last(sim_egl_stream *stream);
SIM_EXPORT uint64_t sim_egl_stream_presented(sim_egl_stream *stream);
SIM_EXPORT uint64_t sim_egl_stream_acquired(sim_egl_stream *stream);

/* libcuda says whether a context lives, so that an end ends with its context. */
SIM_EXPORT void sim_egl_set_context_check(bool (*is_live)(void *context));

/* The ends. False if the stream does not allow this connection; the attempt spoils the stream. */
SIM_EXPORT bool sim_egl_connect(sim_egl_stream *stream, bool is_producer, void *context, int device);
SIM_EXPORT void sim_egl_disconnect(sim_egl_stream *stream, bool is_producer);

typedef enum sim_egl_result { SIM_EGL_DONE, SIM_EGL_TIMED_OUT, SIM_EGL_FAILED, SIM_EGL_OTHER_DEVICE } sim_egl_result;

SIM_EXPORT sim_egl_result sim_egl_present(sim_egl_stream *stream, const sim_egl_frame *frame);
/* A frame is released by its `*slot`; `pixels[plane]` are rows of `row_bytes` without gaps. */
SIM_EXPORT sim_egl_result sim_egl_acquire(sim_egl_stream *stream, uint64_t timeout_us, sim_egl_frame *frame, int *slot,
                                          const char *pixels[EGL_PLANES_MOST]);
SIM_EXPORT sim_egl_result sim_egl_release(sim_egl_stream *stream, int slot);
SIM_EXPORT sim_egl_result sim_egl_return(sim_egl_stream *stream, uint64_t timeout_us, sim_egl_frame *frame);

/* An image, with planes where CUDA can reach them. */
typedef struct sim_egl_image {
    struct sim_egl_image *next;
    sim_egl_frame frame;
    bool is_alive;
} sim_egl_image;

SIM_EXPORT sim_egl_image *sim_egl_image_make(const sim_egl_frame *frame);
SIM_EXPORT bool sim_egl_image_is(const sim_egl_image *image);

/* A sync for EGL's own commands, which are done at once, or for a CUDA event. */
typedef struct sim_egl_sync {
    struct sim_egl_sync *next;
    void *event;
    bool is_alive;
} sim_egl_sync;

SIM_EXPORT sim_egl_sync *sim_egl_sync_make(void *event);
SIM_EXPORT bool sim_egl_sync_is(const sim_egl_sync *sync);

#endif
