/* Contexts of the simulated libcuda: one stack for each thread, and each device's primary context. */
#define _GNU_SOURCE
#include "cuda_deferred.h"

#include <pthread.h>
#include <stdlib.h>

#define CONTEXTS_MOST 64
#define CONTEXT_BYTES (520u << 20) /* the memory that a process takes on an H200 */

static struct {
    pthread_mutex_t lock;
    CUcontext contexts[CONTEXTS_MOST];
    CUcontext primary[SIM_DEVICES_MOST];
    uint64_t last_identity;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local CUcontext stack[CONTEXTS_MOST];
static _Thread_local int depth;

CUcontext cuda_current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

int cuda_device_of(CUcontext context) {
    return context == NULL ? SIM_NO_DEVICE : context->device->index;
}

bool cuda_is_live(CUcontext context) {
    pthread_mutex_lock(&driver.lock);
    bool found = false;
    for (int number = 0; number < CONTEXTS_MOST && context != NULL; number++) {
        found = found || (driver.contexts[number] == context && context->is_alive);
    }
    pthread_mutex_unlock(&driver.lock);
    return found;
}

const sim_device *sim_cuda_device(CUcontext context) {
    CUcontext asked = context == NULL ? cuda_current() : context;
    return cuda_is_live(asked) ? asked->device : NULL;
}

uint64_t cuda_owner_of(CUcontext context) {
    return (uint64_t)(uintptr_t)context;
}

/* Makes a context, which takes memory of its device, as a real one does. NULL if there is not enough memory. */
static CUcontext new_context(int ordinal, unsigned flags, bool is_primary) {
    const sim_device *device = sim_device_at(ordinal);
    CUcontext context = calloc(1, sizeof *context);
    uint64_t most = device->memory_bytes / 8;
    size_t bytes = most < CONTEXT_BYTES ? (size_t)most : CONTEXT_BYTES;
    if (context == NULL || sim_memory_alloc(device, bytes, SIM_DEVICE_MEMORY, cuda_owner_of(context)) == NULL) {
        free(context);
        return NULL;
    }
    *context = (struct CUctx_st){
        .device = device, .ordinal = ordinal, .flags = flags, .is_primary = is_primary, .is_alive = true};
    return context;
}

/* Adds a context to the table, in the place of a dead one, whose memory is kept so that its handle stays dead. */
static bool keep_context(CUcontext context) {
    for (int number = 0; number < CONTEXTS_MOST; number++) {
        if (driver.contexts[number] == NULL || !driver.contexts[number]->is_alive) {
            context->identity = ++driver.last_identity;
            driver.contexts[number] = context;
            return true;
        }
    }
    return false;
}

static int create_context(CUcontext *context, int ordinal, unsigned flags, bool is_primary) {
    CUcontext made = new_context(ordinal, flags, is_primary);
    REFUSE(made == NULL, OUT_OF_MEMORY);
    REFUSE(!keep_context(made), OUT_OF_MEMORY);
    *context = made;
    return SUCCESS;
}

static void end_context(CUcontext context) {
    sim_cuda_finish(SIM_EVERY_STREAM);
    context->is_alive = false;
    sim_memory_free_of(cuda_owner_of(context));
}

static int push(CUcontext context) {
    REFUSE(depth == CONTEXTS_MOST, OUT_OF_MEMORY);
    stack[depth++] = context;
    return SUCCESS;
}

SIM_EXPORT int cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    ENTER_DEVICE("cuCtxCreate", device);
    REFUSE(context == NULL, INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    int said = create_context(context, device, flags, false);
    pthread_mutex_unlock(&driver.lock);
    return said == SUCCESS ? push(*context) : said;
}

SIM_EXPORT int cuCtxCreate_v4(CUcontext *context, const void *parameters, unsigned flags, CUdevice device) {
    (void)parameters; /* execution affinity and graphics interoperation: neither would be visible here */
    return cuCtxCreate_v2(context, flags, device);
}

SIM_EXPORT int cuCtxDestroy_v2(CUcontext context) {
    ENTER_READY("cuCtxDestroy", cuda_is_live(context) ? cuda_device_of(context) : SIM_NO_DEVICE);
    REFUSE(!cuda_is_live(context) || context->is_primary, INVALID_CONTEXT);
    if (cuda_current() == context) {
        depth--;
    }
    end_context(context);
    return SUCCESS;
}

SIM_EXPORT int cuCtxPushCurrent_v2(CUcontext context) {
    ENTER_READY("cuCtxPushCurrent", cuda_is_live(context) ? cuda_device_of(context) : SIM_NO_DEVICE);
    REFUSE(!cuda_is_live(context), INVALID_CONTEXT);
    return push(context);
}

SIM_EXPORT int cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER_READY("cuCtxPopCurrent", cuda_device_of(cuda_current()));
    REFUSE(depth == 0, INVALID_CONTEXT);
    CUcontext popped = stack[--depth];
    if (context != NULL) {
        *context = popped;
    }
    return SUCCESS;
}

SIM_EXPORT int cuCtxSetCurrent(CUcontext context) {
    ENTER_READY("cuCtxSetCurrent", cuda_is_live(context) ? cuda_device_of(context) : SIM_NO_DEVICE);
    REFUSE(context != NULL && !cuda_is_live(context), INVALID_CONTEXT);
    depth -= depth > 0;
    return context == NULL ? SUCCESS : push(context);
}

SIM_EXPORT int cuCtxGetCurrent(CUcontext *context) {
    ENTER_READY("cuCtxGetCurrent", cuda_device_of(cuda_current()));
    REFUSE(context == NULL, INVALID_VALUE);
    *context = cuda_current();
    return SUCCESS;
}

SIM_EXPORT int cuCtxGetDevice(CUdevice *device) {
    ENTER("cuCtxGetDevice");
    REFUSE(device == NULL, INVALID_VALUE);
    *device = cuda_current()->ordinal;
    return SUCCESS;
}

SIM_EXPORT int cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    REFUSE(context != NULL && !cuda_is_live(context), INVALID_CONTEXT);
    if (context == NULL) {
        return cuCtxGetDevice(device);
    }
    ENTER_READY("cuCtxGetDevice", cuda_device_of(context));
    *device = context->ordinal;
    return SUCCESS;
}

SIM_EXPORT int cuCtxGetFlags(unsigned *flags) {
    ENTER("cuCtxGetFlags");
    *flags = cuda_current()->flags;
    return SUCCESS;
}

SIM_EXPORT int cuCtxSetFlags(unsigned flags) {
    ENTER("cuCtxSetFlags");
    cuda_current()->flags = flags;
    return SUCCESS;
}

SIM_EXPORT int cuCtxGetId(CUcontext context, unsigned long long *identity) {
    CUcontext asked = context == NULL ? cuda_current() : context;
    ENTER_READY("cuCtxGetId", cuda_is_live(asked) ? cuda_device_of(asked) : SIM_NO_DEVICE);
    REFUSE(!cuda_is_live(asked), CONTEXT_IS_DESTROYED);
    *identity = asked->identity;
    return SUCCESS;
}

SIM_EXPORT int cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    ENTER_READY("cuCtxGetApiVersion", SIM_NO_DEVICE);
    REFUSE(context != NULL && !cuda_is_live(context), INVALID_CONTEXT);
    *version = (unsigned)sim_machine()->cuda_version;
    return SUCCESS;
}

SIM_EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER("cuCtxGetStreamPriorityRange");
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = -5;
    }
    return SUCCESS;
}

SIM_EXPORT int cuCtxSynchronize(void) {
    ENTER_ALL("cuCtxSynchronize");
    return sim_cuda_finish(SIM_EVERY_STREAM);
}

SIM_EXPORT int cuCtxSynchronize_v2(CUcontext context) {
    ENTER_READY("cuCtxSynchronize", cuda_is_live(context) ? cuda_device_of(context) : cuda_device_of(cuda_current()));
    REFUSE(!cuda_is_live(context == NULL ? cuda_current() : context), INVALID_CONTEXT);
    int awaited = cuda_await(SIM_EVERY_STREAM);
    return awaited == SUCCESS ? sim_cuda_finish(SIM_EVERY_STREAM) : awaited;
}

SIM_EXPORT int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER_DEVICE("cuDevicePrimaryCtxRetain", device);
    REFUSE(context == NULL, INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    CUcontext *primary = &driver.primary[device];
    int said = SUCCESS;
    if (*primary == NULL || !(*primary)->is_alive) {
        said = create_context(primary, device, *primary == NULL ? 0 : (*primary)->flags, true);
    }
    if (said == SUCCESS) {
        (*primary)->holders++;
        *context = *primary;
    }
    pthread_mutex_unlock(&driver.lock);
    return said;
}

SIM_EXPORT int cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER_DEVICE("cuDevicePrimaryCtxRelease", device);
    pthread_mutex_lock(&driver.lock);
    CUcontext primary = driver.primary[device];
    bool is_held = primary != NULL && primary->is_alive && primary->holders > 0;
    if (is_held && --primary->holders == 0) {
        end_context(primary);
    }
    pthread_mutex_unlock(&driver.lock);
    return is_held ? SUCCESS : INVALID_CONTEXT;
}

SIM_EXPORT int cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER_DEVICE("cuDevicePrimaryCtxReset", device);
    pthread_mutex_lock(&driver.lock);
    CUcontext primary = driver.primary[device];
    if (primary != NULL && primary->is_alive) {
        end_context(primary);
    }
    pthread_mutex_unlock(&driver.lock);
    return SUCCESS;
}

SIM_EXPORT int cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER_DEVICE("cuDevicePrimaryCtxGetState", device);
    pthread_mutex_lock(&driver.lock);
    CUcontext primary = driver.primary[device];
    *active = primary != NULL && primary->is_alive;
    *flags = primary == NULL ? 0 : primary->flags;
    pthread_mutex_unlock(&driver.lock);
    return SUCCESS;
}

SIM_EXPORT int cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    ENTER_DEVICE("cuDevicePrimaryCtxSetFlags", device);
    pthread_mutex_lock(&driver.lock);
    if (driver.primary[device] != NULL) {
        driver.primary[device]->flags = flags;
    }
    pthread_mutex_unlock(&driver.lock);
    return SUCCESS;
}
