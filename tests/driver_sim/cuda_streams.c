/* Streams, events and kernels of the simulated libcuda. deferred_work.h says when the work of a stream is done. */
#define _GNU_SOURCE
#include "cuda_deferred.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LEGACY_STREAM ((CUstream)1)
#define PER_THREAD_STREAM ((CUstream)2)
#define NON_BLOCKING 1u

/* Streams and events are never given back to the allocator, so that stale handles can be recognised. */
struct CUstream_st {
    CUstream next;
    CUcontext context;
    unsigned flags;
    int priority;
    uint64_t identity;
    bool is_alive;
    queue *queue; /* NULL if nothing is deferred */
};

struct CUevent_st {
    CUevent next;
    CUcontext context;
    unsigned flags;
    uint64_t recorded_ns;
    ticket *recorded; /* for the work before the event, NULL if there was none */
    bool is_alive;
};

static struct {
    pthread_mutex_t lock;
    CUstream free_streams;
    CUevent free_events;
    uint64_t last_identity;
} handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_default_stream(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM;
}

bool cuda_is_stream(CUstream stream) {
    return is_default_stream(stream) || stream->is_alive;
}

CUcontext cuda_context_of(CUstream stream) {
    return is_default_stream(stream) ? cuda_current() : stream->context;
}

queue *cuda_queue_of(CUstream stream) {
    return is_default_stream(stream) ? NULL : stream->queue;
}

SIM_EXPORT int cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    ENTER("cuStreamCreate");
    REFUSE(stream == NULL, INVALID_VALUE);
    pthread_mutex_lock(&handles.lock);
    CUstream made = handles.free_streams;
    if (made != NULL) {
        handles.free_streams = made->next;
    } else {
        made = calloc(1, sizeof *made);
    }
    if (made != NULL) {
        *made = (struct CUstream_st){.context = cuda_current(),
                                     .flags = flags,
                                     .priority = priority,
                                     .identity = ++handles.last_identity,
                                     .is_alive = true,
                                     .queue = queue_new(cuda_current(), (flags & NON_BLOCKING) == 0)};
    }
    pthread_mutex_unlock(&handles.lock);
    *stream = made;
    return made == NULL ? OUT_OF_MEMORY : SUCCESS;
}

SIM_EXPORT int cuStreamCreate(CUstream *stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

SIM_EXPORT int cuStreamDestroy_v2(CUstream stream) {
    bool is_own = !is_default_stream(stream) && stream->is_alive;
    ENTER_READY("cuStreamDestroy", is_own ? cuda_device_of(stream->context) : SIM_NO_DEVICE);
    REFUSE(!is_own, INVALID_HANDLE);
    pthread_mutex_lock(&handles.lock);
    stream->is_alive = false;
    queue_leave(stream->queue);
    stream->next = handles.free_streams;
    handles.free_streams = stream;
    pthread_mutex_unlock(&handles.lock);
    return SUCCESS;
}

SIM_EXPORT int cuStreamSynchronize(CUstream stream) {
    ENTER_WORK("cuStreamSynchronize", stream);
    return sim_cuda_finish(stream);
}

SIM_EXPORT int cuStreamQuery(CUstream stream) {
    ENTER_STREAM("cuStreamQuery", stream);
    ticket *end = queue_end(stream);
    bool is_done = ticket_advance(end);
    ticket_drop(end);
    int said = cuda_query(stream);
    return said == SUCCESS && !is_done ? NOT_READY : said;
}

SIM_EXPORT int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    ENTER_WORK("cuStreamWaitEvent", stream);
    REFUSE(event == NULL || !event->is_alive, INVALID_HANDLE);
    return queue_wait(stream, event->recorded);
}

SIM_EXPORT int cuStreamGetCtx(CUstream stream, CUcontext *context) {
    ENTER_STREAM("cuStreamGetCtx", stream);
    *context = cuda_context_of(stream);
    return SUCCESS;
}

SIM_EXPORT int cuStreamGetCtx_v2(CUstream stream, CUcontext *context, void **green) {
    if (green != NULL) {
        *green = NULL;
    }
    return cuStreamGetCtx(stream, context);
}

SIM_EXPORT int cuStreamGetDevice(CUstream stream, CUdevice *device) {
    ENTER_STREAM("cuStreamGetDevice", stream);
    *device = cuda_context_of(stream)->ordinal;
    return SUCCESS;
}

SIM_EXPORT int cuStreamGetFlags(CUstream stream, unsigned *flags) {
    ENTER_STREAM("cuStreamGetFlags", stream);
    *flags = is_default_stream(stream) ? 0 : stream->flags;
    return SUCCESS;
}

SIM_EXPORT int cuStreamGetPriority(CUstream stream, int *priority) {
    ENTER_STREAM("cuStreamGetPriority", stream);
    *priority = is_default_stream(stream) ? 0 : stream->priority;
    return SUCCESS;
}

SIM_EXPORT int cuStreamGetId(CUstream stream, unsigned long long *identity) {
    ENTER_STREAM("cuStreamGetId", stream);
    *identity = is_default_stream(stream) ? (uintptr_t)stream : stream->identity;
    return SUCCESS;
}

SIM_EXPORT int cuStreamIsCapturing(CUstream stream, int *status) {
    ENTER_STREAM("cuStreamIsCapturing", stream);
    *status = 0;
    return SUCCESS;
}

SIM_EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int own_mode;
    int before = own_mode;
    own_mode = *mode;
    *mode = before;
    return SUCCESS;
}

typedef struct host_call {
    CUstream stream;
    void (*function)(void *);
    void (*callback)(CUstream, int, void *);
    void *argument;
} host_call;

static int call_host(void *argument) {
    host_call *given = argument;
    if (given->function != NULL) {
        given->function(given->argument);
    } else {
        given->callback(given->stream, SUCCESS, given->argument);
    }
    free(given);
    return SUCCESS;
}

static int put_host_call(host_call given) {
    host_call *kept = malloc(sizeof *kept);
    REFUSE(kept == NULL, OUT_OF_MEMORY);
    *kept = given;
    return sim_cuda_put(given.stream, call_host, kept);
}

SIM_EXPORT int cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument) {
    ENTER_WORK("cuLaunchHostFunc", stream);
    return put_host_call((host_call){.stream = stream, .function = function, .argument = argument});
}

SIM_EXPORT int cuStreamAddCallback(CUstream stream, void (*function)(CUstream, int, void *), void *argument,
                                   unsigned flags) {
    (void)flags;
    ENTER_WORK("cuStreamAddCallback", stream);
    return put_host_call((host_call){.stream = stream, .callback = function, .argument = argument});
}

/*
 * Events
 */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#define ENTER_EVENT(name, event)                                                                                       \
    do {                                                                                                               \
        bool known = (event) != NULL && (event)->is_alive;                                                             \
        ENTER_READY(name, known ? cuda_device_of((event)->context) : SIM_NO_DEVICE);                                   \
        REFUSE(!known, INVALID_HANDLE);                                                                                \
    } while (0)

SIM_EXPORT int cuEventCreate(CUevent *event, unsigned flags) {
    ENTER("cuEventCreate");
    REFUSE(event == NULL, INVALID_VALUE);
    pthread_mutex_lock(&handles.lock);
    CUevent made = handles.free_events;
    if (made != NULL) {
        handles.free_events = made->next;
    } else {
        made = calloc(1, sizeof *made);
    }
    if (made != NULL) {
        *made = (struct CUevent_st){.context = cuda_current(), .flags = flags, .is_alive = true};
    }
    pthread_mutex_unlock(&handles.lock);
    *event = made;
    return made == NULL ? OUT_OF_MEMORY : SUCCESS;
}

SIM_EXPORT int cuEventDestroy_v2(CUevent event) {
    ENTER_EVENT("cuEventDestroy", event);
    pthread_mutex_lock(&handles.lock);
    event->is_alive = false;
    ticket_drop(event->recorded);
    event->next = handles.free_events;
    handles.free_events = event;
    pthread_mutex_unlock(&handles.lock);
    return SUCCESS;
}

static int note_time(void *event) {
    ((CUevent)event)->recorded_ns = now_ns();
    return SUCCESS;
}

SIM_EXPORT int cuEventRecord(CUevent event, CUstream stream) {
    ENTER_EVENT("cuEventRecord", event);
    REFUSE(!cuda_is_stream(stream), INVALID_HANDLE);
    int awaited = cuda_await(stream);
    REFUSE(awaited != SUCCESS, awaited);
    event->recorded_ns = 0;
    int said = sim_cuda_put(stream, note_time, event);
    pthread_mutex_lock(&handles.lock);
    ticket *before = event->recorded;
    event->recorded = queue_end(stream);
    pthread_mutex_unlock(&handles.lock);
    ticket_drop(before);
    return said;
}

SIM_EXPORT int cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    (void)flags;
    return cuEventRecord(event, stream);
}

SIM_EXPORT int cuEventQuery(CUevent event) {
    ENTER_EVENT("cuEventQuery", event);
    return ticket_advance(event->recorded) ? SUCCESS : NOT_READY;
}

SIM_EXPORT int cuEventSynchronize(CUevent event) {
    ENTER_EVENT("cuEventSynchronize", event);
    return ticket_finish(event->recorded);
}

SIM_EXPORT int cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    ENTER_EVENT("cuEventElapsedTime", start);
    REFUSE(end == NULL || !end->is_alive, INVALID_HANDLE);
    REFUSE(start->recorded != NULL && start->recorded_ns == 0, NOT_READY);
    REFUSE(end->recorded != NULL && end->recorded_ns == 0, NOT_READY);
    REFUSE(start->recorded_ns == 0 || end->recorded_ns == 0, INVALID_HANDLE);
    *milliseconds = (float)((double)(int64_t)(end->recorded_ns - start->recorded_ns) / 1e6);
    return SUCCESS;
}

SIM_EXPORT int cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/*
 * Kernels: nothing here could run them
 */

/* Both calling conventions of Linux let a function leave its arguments unread. */
#define NO_KERNELS(name)                                                                                               \
    SIM_EXPORT int name(void) {                                                                                        \
        ENTER(#name);                                                                                                  \
        sim_trace(#name, "refused=kernels-cannot-run");                                                                \
        return NOT_SUPPORTED;                                                                                          \
    }

NO_KERNELS(cuModuleLoad)
NO_KERNELS(cuModuleLoadData)
NO_KERNELS(cuModuleLoadDataEx)
NO_KERNELS(cuModuleLoadFatBinary)
NO_KERNELS(cuLibraryLoadData)
NO_KERNELS(cuLibraryLoadFromFile)
NO_KERNELS(cuLaunchKernel)
NO_KERNELS(cuLaunchKernelEx)
