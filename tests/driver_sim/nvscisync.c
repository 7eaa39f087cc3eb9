/*
 * libnvscisync.so.1 of the driver simulator: attribute lists, objects with their timelines, and fences. See nvsci.h.
 *
 * An object has one signaler. Its timeline counts signals; a fence is a point of the timeline. Not simulated:
 * timestamps, other processes (NvSciIpc).
 */
#define _GNU_SOURCE
#include "nvsci.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct NvSciSyncModuleRec {
    bool open;
} *NvSciSyncModule;

/* The requests of one party: permissions of the processor, and of an engine. */
struct NvSciSyncAttrListRec {
    NvSciSyncModule module;
    bool reconciled;
    bool needs_cpu, has_permission;
    uint64_t cpu, engine;
};

struct NvSciSyncObjRec {
    struct NvSciSyncObjRec *next;
    uint64_t cpu, engine; /* the permissions of each party */
    uint64_t promised, signalled;
    uint32_t fences;
    bool freed;
};

typedef struct NvSciSyncCpuWaitContextRec {
    bool waiting;
} *NvSciSyncCpuWaitContext;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static NvSciSyncObj objects;
static void (*listener)(void);

static void set_up(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void take_lock(void) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
}

static void give_lock(void) {
    pthread_mutex_unlock(&lock);
}

static bool refused(const char *function, int *status) {
    return sim_enter(function, SIM_NO_DEVICE, status) == SIM_STATUS;
}

SIM_EXPORT int NvSciSyncModuleOpen(NvSciSyncModule *module) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    *module = calloc(1, sizeof **module);
    return *module ? NvSciError_Success : NvSciError_InsufficientMemory;
}

SIM_EXPORT void NvSciSyncModuleClose(NvSciSyncModule module) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    free(module);
}

SIM_EXPORT int NvSciSyncCpuWaitContextAlloc(NvSciSyncModule module, NvSciSyncCpuWaitContext *context) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!module || !context) {
        return NvSciError_BadParameter;
    }
    *context = calloc(1, sizeof **context);
    return *context ? NvSciError_Success : NvSciError_InsufficientMemory;
}

SIM_EXPORT void NvSciSyncCpuWaitContextFree(NvSciSyncCpuWaitContext context) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    free(context);
}

SIM_EXPORT int NvSciSyncAttrListCreate(NvSciSyncModule module, NvSciSyncAttrList *list) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!module || !list) {
        return NvSciError_BadParameter;
    }
    *list = calloc(1, sizeof **list);
    if (!*list) {
        return NvSciError_InsufficientMemory;
    }
    (*list)->module = module;
    return NvSciError_Success;
}

SIM_EXPORT void NvSciSyncAttrListFree(NvSciSyncAttrList list) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    free(list);
}

static bool set(NvSciSyncAttrList list, const struct sci_pair *pair) {
    if (pair->key == NvSciSyncAttrKey_NeedCpuAccess && pair->len == 1 && !list->needs_cpu) {
        list->needs_cpu = *(const bool *)pair->value;
        return true;
    }
    if (pair->key == NvSciSyncAttrKey_RequiredPerm && pair->len == 8 && !list->has_permission) {
        uint64_t permission;
        memcpy(&permission, pair->value, 8);
        list->has_permission = true;
        list->cpu = permission;
        return permission == NvSciSyncAccessPerm_WaitOnly || permission == NvSciSyncAccessPerm_SignalOnly;
    }
    return false;
}

SIM_EXPORT int NvSciSyncAttrListSetAttrs(NvSciSyncAttrList list, const struct sci_pair *pairs, size_t count) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!list || list->reconciled || !pairs || !count) {
        return NvSciError_BadParameter;
    }
    for (size_t i = 0; i < count; i++) {
        if (!pairs[i].value || !set(list, &pairs[i])) {
            return NvSciError_BadParameter;
        }
    }
    return NvSciError_Success;
}

bool sim_sci_fill(NvSciSyncAttrList list, uint64_t permission) {
    if (!list || list->reconciled || list->has_permission) {
        return false;
    }
    list->has_permission = true;
    list->engine = permission;
    return true;
}

SIM_EXPORT int NvSciSyncAttrListReconcile(const NvSciSyncAttrList lists[], size_t count, NvSciSyncAttrList *reconciled,
                                          NvSciSyncAttrList *conflicts) {
    int status, signalers = 0, waiters = 0;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!lists || !count || !reconciled || !conflicts) {
        return NvSciError_BadParameter;
    }
    NvSciSyncAttrList made = calloc(1, sizeof *made);
    if (!made) {
        return NvSciError_InsufficientMemory;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t each = lists[i]->cpu | lists[i]->engine;
        signalers += !!(each & NvSciSyncAccessPerm_SignalOnly);
        waiters += !!(each & NvSciSyncAccessPerm_WaitOnly);
        made->cpu |= lists[i]->needs_cpu ? lists[i]->cpu : 0;
        made->engine |= lists[i]->engine;
        made->module = lists[i]->module;
    }
    if (signalers != 1 || !waiters) {
        *conflicts = made; /* the caller frees it */
        return NvSciError_ReconciliationFailed;
    }
    made->reconciled = true;
    *reconciled = made;
    return NvSciError_Success;
}

SIM_EXPORT int NvSciSyncObjAlloc(NvSciSyncAttrList list, NvSciSyncObj *object) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!list || !list->reconciled || !object) {
        return NvSciError_BadParameter;
    }
    *object = calloc(1, sizeof **object);
    if (!*object) {
        return NvSciError_InsufficientMemory;
    }
    (*object)->cpu = list->cpu;
    (*object)->engine = list->engine;
    take_lock();
    (*object)->next = objects;
    objects = *object;
    give_lock();
    return NvSciError_Success;
}

/* The caller holds the lock. A fence that was not cleared keeps its object. */
static void drop(NvSciSyncObj object) {
    if (!object->freed || object->fences) {
        return;
    }
    NvSciSyncObj *link = &objects;
    while (*link != object) {
        link = &(*link)->next;
    }
    *link = object->next;
    free(object);
}

static bool is_object(NvSciSyncObj object) {
    NvSciSyncObj each = objects;
    while (each && each != object) {
        each = each->next;
    }
    return each != NULL;
}

SIM_EXPORT void NvSciSyncObjFree(NvSciSyncObj object) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    take_lock();
    if (is_object(object)) {
        sim_trace("NvSciSyncObjFree", "fences=%u", object->fences);
        object->freed = true;
        drop(object);
    }
    give_lock();
}

/* The caller holds the lock, because fences hold their object. */
static void clear(NvSciSyncFence *fence) {
    NvSciSyncObj object = (NvSciSyncObj)(uintptr_t)fence->payload[0];
    memset(fence, 0, sizeof *fence);
    if (object && is_object(object)) {
        object->fences--;
        drop(object);
    }
}

/* The caller holds the lock. */
static void point_at(NvSciSyncFence *fence, NvSciSyncObj object, uint64_t point) {
    object->fences++;
    clear(fence);
    fence->payload[0] = (uint64_t)(uintptr_t)object;
    fence->payload[1] = point;
}

SIM_EXPORT int NvSciSyncObjGenerateFence(NvSciSyncObj object, NvSciSyncFence *fence) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    take_lock();
    status = !fence || !is_object(object)                      ? NvSciError_BadParameter
             : !(object->cpu & NvSciSyncAccessPerm_SignalOnly) ? NvSciError_NotPermitted
                                                               : NvSciError_Success;
    if (status == NvSciError_Success) {
        point_at(fence, object, ++object->promised);
    }
    give_lock();
    return status;
}

static void advance(NvSciSyncObj object) {
    take_lock();
    object->signalled++;
    pthread_cond_broadcast(&changed);
    void (*tell)(void) = listener;
    give_lock();
    if (tell) {
        tell();
    }
}

SIM_EXPORT int NvSciSyncObjSignal(NvSciSyncObj object) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    take_lock();
    bool may = is_object(object) && object->cpu & NvSciSyncAccessPerm_SignalOnly;
    give_lock();
    if (!may) {
        return NvSciError_BadParameter;
    }
    advance(object);
    return NvSciError_Success;
}

SIM_EXPORT void NvSciSyncFenceClear(NvSciSyncFence *fence) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    sim_sci_clear(fence);
}

/* The caller holds the lock. */
static bool is_reached(const NvSciSyncFence *fence) {
    NvSciSyncObj object = (NvSciSyncObj)(uintptr_t)fence->payload[0];
    return object->signalled >= fence->payload[1];
}

static struct timespec time_after_us(int64_t timeout_us) {
    struct timespec when;
    clock_gettime(CLOCK_MONOTONIC, &when);
    int64_t total = when.tv_nsec + timeout_us % 1000000 * 1000;
    when.tv_sec += (time_t)(timeout_us / 1000000 + total / 1000000000);
    when.tv_nsec = (long)(total % 1000000000);
    return when;
}

/* The caller holds the lock. A negative time-out means no limit. */
static int wait_until_reached(const NvSciSyncFence *fence, int64_t timeout_us) {
    struct timespec until = time_after_us(timeout_us < 0 ? 0 : timeout_us);
    while (!is_reached(fence)) {
        if (timeout_us < 0) {
            pthread_cond_wait(&changed, &lock);
        } else if (pthread_cond_timedwait(&changed, &lock, &until) == ETIMEDOUT && !is_reached(fence)) {
            return NvSciError_Timeout;
        }
    }
    return NvSciError_Success;
}

SIM_EXPORT int NvSciSyncFenceWait(const NvSciSyncFence *fence, NvSciSyncCpuWaitContext context, int64_t timeout_us) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    take_lock();
    if (!fence || !context || context->waiting) {
        status = NvSciError_BadParameter; /* a context waits for one fence at a time */
    } else if (!fence->payload[0]) {
        status = NvSciError_ClearedFence;
    } else if (!is_object((NvSciSyncObj)(uintptr_t)fence->payload[0])) {
        status = NvSciError_BadParameter;
    } else {
        context->waiting = true;
        status = wait_until_reached(fence, timeout_us);
        context->waiting = false;
    }
    give_lock();
    return status;
}

/*
 * For libcudla
 */

bool sim_sci_allows(NvSciSyncObj object, uint64_t permission) {
    take_lock();
    bool allows = is_object(object) && (object->engine & permission) == permission;
    give_lock();
    return allows;
}

void sim_sci_promise(NvSciSyncObj object, NvSciSyncFence *fence) {
    take_lock();
    point_at(fence, object, ++object->promised);
    give_lock();
}

void sim_sci_signal(NvSciSyncObj object) {
    advance(object);
}

void sim_sci_copy(const NvSciSyncFence *fence, NvSciSyncFence *copy) {
    take_lock();
    point_at(copy, (NvSciSyncObj)(uintptr_t)fence->payload[0], fence->payload[1]);
    give_lock();
}

void sim_sci_clear(NvSciSyncFence *fence) {
    take_lock();
    clear(fence);
    give_lock();
}

bool sim_sci_is_fence(const NvSciSyncFence *fence) {
    take_lock();
    bool is = fence && fence->payload[0] && is_object((NvSciSyncObj)(uintptr_t)fence->payload[0]);
    give_lock();
    return is;
}

bool sim_sci_is_reached(const NvSciSyncFence *fence) {
    take_lock();
    bool reached = is_reached(fence);
    give_lock();
    return reached;
}

void sim_sci_tell(void (*tell)(void)) {
    take_lock();
    listener = tell;
    give_lock();
}
