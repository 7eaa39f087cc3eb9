/* EGL's objects of the simulated machine: see eglobjects.h. */
#define _GNU_SOURCE
#include "eglobjects.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x45474c53u
#define SLICE_US 5000u
#define HEADER_BYTES (1u << 16)
#define PIXEL_BYTES_MOST 16u

typedef enum place {
    FREE,    /* not in use */
    WAITING, /* presented, but not acquired */
    HELD,    /* acquired */
    KEPT,    /* released, and the last frame of the stream */
    BACK     /* released or replaced: the producer may take it back */
} place;

typedef struct end {
    bool was_connected, is_connected;
    int pid;
    void *context;
    int device;
} end;

typedef struct slot {
    sim_egl_frame frame;
    place place;
    uint64_t back_order;
} slot;

typedef struct shared {
    unsigned magic;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fifo_frames;
    bool keeps_last, is_spoilt, is_over;
    end consumer, producer;
    uint64_t presented, acquired, returns;
    size_t slot_bytes;
    slot slots[EGL_FRAMES_MOST];
} shared;

struct sim_egl_stream {
    sim_egl_stream *next;
    int file;
    shared *shared;
    char *pixels;
    size_t pixel_bytes;
    bool is_alive;
};

static struct {
    pthread_mutex_t lock;
    sim_egl_stream *streams;
    sim_egl_image *images;
    sim_egl_sync *syncs;
    bool (*is_live)(void *context);
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

void sim_egl_set_context_check(bool (*is_live)(void *context)) {
    objects.is_live = is_live;
}

/*
 * Streams as objects
 */

static sim_egl_stream *opened(int file) {
    shared *mapped = mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    sim_egl_stream *made = mapped == MAP_FAILED ? NULL : calloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    *made = (sim_egl_stream){.file = file, .shared = mapped, .is_alive = true};
    pthread_mutex_lock(&objects.lock);
    made->next = objects.streams;
    objects.streams = made;
    pthread_mutex_unlock(&objects.lock);
    return made;
}

sim_egl_stream *sim_egl_stream_make(int fifo_frames, bool keeps_last) {
    _Static_assert(sizeof(shared) <= HEADER_BYTES, "the header holds the stream");
    int file = memfd_create("egl-stream", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, HEADER_BYTES) != 0) {
        return NULL;
    }
    sim_egl_stream *made = opened(file);
    if (made == NULL) {
        return NULL;
    }
    pthread_mutexattr_t lock;
    pthread_condattr_t changed;
    pthread_mutexattr_init(&lock);
    pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&lock, PTHREAD_MUTEX_ROBUST);
    pthread_condattr_init(&changed);
    pthread_condattr_setpshared(&changed, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&changed, CLOCK_MONOTONIC);
    pthread_mutex_init(&made->shared->lock, &lock);
    pthread_cond_init(&made->shared->changed, &changed);
    made->shared->fifo_frames = fifo_frames;
    made->shared->keeps_last = keeps_last;
    made->shared->magic = MAGIC;
    return made;
}

sim_egl_stream *sim_egl_stream_open(int descriptor) {
    struct stat about;
    int file = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (file < 0 || fstat(file, &about) != 0 || about.st_size < HEADER_BYTES) {
        return NULL;
    }
    sim_egl_stream *made = opened(file);
    return made != NULL && made->shared->magic == MAGIC ? made : NULL;
}

bool sim_egl_stream_is(const sim_egl_stream *stream) {
    pthread_mutex_lock(&objects.lock);
    const sim_egl_stream *found = objects.streams;
    while (found != NULL && found != stream) {
        found = found->next;
    }
    bool is_alive = found != NULL && found->is_alive;
    pthread_mutex_unlock(&objects.lock);
    return is_alive;
}

static void lock(shared *stream) {
    if (pthread_mutex_lock(&stream->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&stream->lock);
    }
}

static void unlock(shared *stream) {
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

/* Waits a short time for a change: the death of a process wakes nobody. */
static void rest(shared *stream) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SLICE_US * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&stream->changed, &stream->lock, &until) == EOWNERDEAD) {
        pthread_mutex_consistent(&stream->lock);
    }
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static bool is_running(int pid) {
    char path[64];
    char text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    size_t read = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    const char *name_end = read == 0 ? NULL : strrchr(text, ')');
    return name_end != NULL && name_end[2] != 'Z' && name_end[2] != 'X';
}

static bool is_gone(const end *one) {
    if (!one->is_connected) {
        return false;
    }
    if (one->pid == getpid()) {
        return objects.is_live != NULL && !objects.is_live(one->context);
    }
    return !is_running(one->pid);
}

/* Disconnects an end whose process died or whose context was destroyed. The caller holds the lock, here and below. */
static bool is_over(shared *stream) {
    stream->is_over = stream->is_over || is_gone(&stream->consumer) || is_gone(&stream->producer);
    return stream->is_over;
}

static int count_of(const shared *stream, place where) {
    int count = 0;
    for (int number = 0; number < EGL_FRAMES_MOST; number++) {
        count += stream->slots[number].place == where;
    }
    return count;
}

static int state_of(shared *stream) {
    if (is_over(stream)) {
        return EGL_STATE_DISCONNECTED;
    }
    if (!stream->producer.is_connected) {
        return stream->consumer.is_connected ? EGL_STATE_CONNECTING : EGL_STATE_CREATED;
    }
    if (count_of(stream, WAITING) > 0) {
        return EGL_STATE_NEW_FRAME;
    }
    bool has_old = stream->keeps_last && count_of(stream, HELD) + count_of(stream, KEPT) > 0;
    return has_old ? EGL_STATE_OLD_FRAME : EGL_STATE_EMPTY;
}

int sim_egl_stream_state(sim_egl_stream *stream) {
    lock(stream->shared);
    int state = state_of(stream->shared);
    unlock(stream->shared);
    return state;
}

int sim_egl_stream_fifo(sim_egl_stream *stream) {
    return stream->shared->fifo_frames;
}

bool sim_egl_stream_keeps_last(sim_egl_stream *stream) {
    return stream->shared->keeps_last;
}

uint64_t sim_egl_stream_presented(sim_egl_stream *stream) {
    return stream->shared->presented;
}

uint64_t sim_egl_stream_acquired(sim_egl_stream *stream) {
    return stream->shared->acquired;
}

int sim_egl_stream_descriptor(sim_egl_stream *stream) {
    bool is_late = stream->shared->producer.was_connected || stream->shared->consumer.was_connected;
    return is_late ? -1 : fcntl(stream->file, F_DUPFD_CLOEXEC, 0);
}

void sim_egl_stream_destroy(sim_egl_stream *stream) {
    lock(stream->shared);
    bool is_own = stream->shared->consumer.pid == getpid() || stream->shared->producer.pid == getpid();
    stream->shared->is_over = stream->shared->is_over || is_own;
    unlock(stream->shared);
    pthread_mutex_lock(&objects.lock);
    stream->is_alive = false;
    pthread_mutex_unlock(&objects.lock);
}

/*
 * The ends
 */

bool sim_egl_connect(sim_egl_stream *stream, bool is_producer, void *context, int device) {
    shared *what = stream->shared;
    lock(what);
    end *own = is_producer ? &what->producer : &what->consumer;
    bool is_early = is_producer && !what->consumer.is_connected;
    bool is_allowed = !what->is_spoilt && !is_over(what) && !own->was_connected && !is_early;
    /* A producer that connects too early, or a second end, spoils the stream for later ends. */
    what->is_spoilt = what->is_spoilt || is_early || own->was_connected;
    if (is_allowed) {
        *own = (end){.was_connected = true, .is_connected = true, .pid = getpid(), .context = context, .device = device};
    } else if (!is_producer && !own->was_connected && !is_over(what)) {
        *own = (end){.was_connected = true, .is_connected = true, .pid = getpid(), .context = context, .device = device};
        is_allowed = true; /* a consumer can connect to a spoilt stream, but a producer never can */
    }
    unlock(what);
    return is_allowed;
}

void sim_egl_disconnect(sim_egl_stream *stream, bool is_producer) {
    lock(stream->shared);
    end *own = is_producer ? &stream->shared->producer : &stream->shared->consumer;
    own->is_connected = false;
    stream->shared->is_over = true;
    unlock(stream->shared);
}

/* Maps the pixels of all frames, and first makes room for them if that was not done. */
static bool reach_pixels(sim_egl_stream *stream) {
    size_t bytes = stream->shared->slot_bytes * EGL_FRAMES_MOST;
    if (stream->pixels != NULL && stream->pixel_bytes == bytes) {
        return true;
    }
    if (ftruncate(stream->file, (off_t)(HEADER_BYTES + bytes)) != 0) {
        return false;
    }
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, stream->file, HEADER_BYTES);
    stream->pixels = mapped == MAP_FAILED ? NULL : mapped;
    stream->pixel_bytes = bytes;
    return stream->pixels != NULL;
}

static size_t bytes_of(const sim_egl_frame *frame) {
    size_t bytes = 0;
    for (unsigned plane = 0; plane < frame->plane_count; plane++) {
        bytes += (size_t)frame->row_bytes[plane] * frame->rows[plane];
    }
    return bytes;
}

static void save_pixels(char *to, const sim_egl_frame *frame) {
    for (unsigned plane = 0; plane < frame->plane_count; plane++) {
        const char *from = (const char *)(uintptr_t)frame->planes[plane];
        for (unsigned row = 0; row < frame->rows[plane]; row++) {
            memcpy(to, from + (size_t)row * frame->pitches[plane], frame->row_bytes[plane]);
            to += frame->row_bytes[plane];
        }
    }
}

static slot *oldest(shared *stream, place where) {
    slot *found = NULL;
    for (int number = 0; number < EGL_FRAMES_MOST; number++) {
        slot *one = &stream->slots[number];
        bool is_older = found == NULL || (where == BACK ? one->back_order < found->back_order
                                                        : one->frame.number < found->frame.number);
        found = one->place == where && is_older ? one : found;
    }
    return found;
}

static void give_back(shared *stream, slot *one) {
    one->place = BACK;
    one->back_order = ++stream->returns;
}

/* The frame that the stream kept goes back when another frame comes. */
static void replace_kept(shared *stream) {
    slot *kept = oldest(stream, KEPT);
    if (kept != NULL) {
        give_back(stream, kept);
    }
}

sim_egl_result sim_egl_present(sim_egl_stream *stream, const sim_egl_frame *frame) {
    shared *what = stream->shared;
    sim_egl_result result = SIM_EGL_FAILED;
    lock(what);
    /* A full FIFO makes its producer wait, unless the producer has presented the most frames that it may. */
    while (!is_over(what) && oldest(what, FREE) != NULL && what->fifo_frames > 0 && count_of(what, WAITING) >= what->fifo_frames) {
        rest(what);
    }
    if (what->slot_bytes == 0) {
        size_t most = (size_t)frame->width * frame->height * PIXEL_BYTES_MOST;
        what->slot_bytes = (most + 4095) / 4096 * 4096;
    }
    slot *one = oldest(what, FREE);
    bool fits = bytes_of(frame) <= what->slot_bytes;
    if (!is_over(what) && one != NULL && fits && reach_pixels(stream)) {
        slot *waiting = what->fifo_frames == 0 ? oldest(what, WAITING) : NULL;
        if (waiting != NULL) {
            give_back(what, waiting);
        }
        one->frame = *frame;
        one->frame.number = ++what->presented;
        one->place = WAITING;
        save_pixels(stream->pixels + what->slot_bytes * (size_t)(one - what->slots), frame);
        result = SIM_EGL_DONE;
    }
    unlock(what);
    return result;
}

static slot *next_frame(shared *stream, uint64_t timeout_us) {
    uint64_t until_us = now_us() + timeout_us;
    slot *found = oldest(stream, WAITING);
    while (found == NULL && !is_over(stream) && now_us() < until_us) {
        rest(stream);
        found = oldest(stream, WAITING);
    }
    if (found != NULL) {
        replace_kept(stream);
        return found;
    }
    return stream->keeps_last ? oldest(stream, KEPT) : NULL;
}

sim_egl_result sim_egl_acquire(sim_egl_stream *stream, uint64_t timeout_us, sim_egl_frame *frame, int *number,
                               const char *pixels[EGL_PLANES_MOST]) {
    shared *what = stream->shared;
    sim_egl_result result = SIM_EGL_TIMED_OUT;
    lock(what);
    slot *found = is_over(what) ? NULL : next_frame(what, timeout_us);
    if (is_over(what) || (found != NULL && !reach_pixels(stream))) {
        result = SIM_EGL_FAILED;
    } else if (found != NULL && found->frame.type == 0 && found->frame.device != what->consumer.device) {
        result = SIM_EGL_OTHER_DEVICE; /* an array stays on the same GPU */
    } else if (found != NULL) {
        result = SIM_EGL_DONE;
        found->place = HELD;
        what->acquired = found->frame.number;
        *frame = found->frame;
        *number = (int)(found - what->slots);
        const char *at = stream->pixels + what->slot_bytes * (size_t)*number;
        for (unsigned plane = 0; plane < frame->plane_count; plane++) {
            pixels[plane] = at;
            at += (size_t)frame->row_bytes[plane] * frame->rows[plane];
        }
    }
    unlock(what);
    return result;
}

sim_egl_result sim_egl_release(sim_egl_stream *stream, int number) {
    shared *what = stream->shared;
    lock(what);
    slot *one = &what->slots[number];
    bool is_held = one->place == HELD;
    if (is_held && what->keeps_last && one->frame.number == what->acquired) {
        one->place = KEPT;
    } else if (is_held) {
        give_back(what, one);
    }
    bool is_lost = is_over(what);
    unlock(what);
    return is_held && !is_lost ? SIM_EGL_DONE : SIM_EGL_FAILED;
}

sim_egl_result sim_egl_return(sim_egl_stream *stream, uint64_t timeout_us, sim_egl_frame *frame) {
    shared *what = stream->shared;
    sim_egl_result result = SIM_EGL_TIMED_OUT;
    lock(what);
    uint64_t until_us = now_us() + timeout_us;
    slot *found = oldest(what, BACK);
    while (found == NULL && !is_over(what) && now_us() < until_us) {
        rest(what);
        found = oldest(what, BACK);
    }
    if (is_over(what)) {
        result = SIM_EGL_FAILED;
    } else if (found != NULL) {
        *frame = found->frame;
        found->place = FREE;
        result = SIM_EGL_DONE;
    }
    unlock(what);
    return result;
}

/*
 * Images and syncs
 */

sim_egl_image *sim_egl_image_make(const sim_egl_frame *frame) {
    sim_egl_image *made = calloc(1, sizeof *made);
    if (made != NULL) {
        *made = (sim_egl_image){.frame = *frame, .is_alive = true};
        pthread_mutex_lock(&objects.lock);
        made->next = objects.images;
        objects.images = made;
        pthread_mutex_unlock(&objects.lock);
    }
    return made;
}

bool sim_egl_image_is(const sim_egl_image *image) {
    pthread_mutex_lock(&objects.lock);
    const sim_egl_image *found = objects.images;
    while (found != NULL && found != image) {
        found = found->next;
    }
    pthread_mutex_unlock(&objects.lock);
    return found != NULL && found->is_alive;
}

sim_egl_sync *sim_egl_sync_make(void *event) {
    sim_egl_sync *made = calloc(1, sizeof *made);
    if (made != NULL) {
        *made = (sim_egl_sync){.event = event, .is_alive = true};
        pthread_mutex_lock(&objects.lock);
        made->next = objects.syncs;
        objects.syncs = made;
        pthread_mutex_unlock(&objects.lock);
    }
    return made;
}

bool sim_egl_sync_is(const sim_egl_sync *sync) {
    pthread_mutex_lock(&objects.lock);
    const sim_egl_sync *found = objects.syncs;
    while (found != NULL && found != sync) {
        found = found->next;
    }
    pthread_mutex_unlock(&objects.lock);
    return found != NULL && found->is_alive;
}
