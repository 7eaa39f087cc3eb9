/*
 * What stands for NvSci in the simulated standalone mode.
 *
 * There is no NvSci here: a program makes its objects with the simNvSci functions, which stand for NvSciBufObjAlloc,
 * NvSciSyncObjAlloc and so on, and hands them to cuDLA as it would real ones.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <stdlib.h>
#include <string.h>

#define FENCE_WORDS 6
#define FENCE_MAGIC UINT64_C(0x4346464e4345)

/* Guarded by the library's lock. */
static nvsci_object *nvsci_objects;
static uint64_t nvsci_numbers;

nvsci_object *nvsci_find(const void *handle, nvsci_kind kind) {
    for (nvsci_object *each = nvsci_objects; each; each = each->next) {
        if (each == handle && each->kind == kind) {
            return each;
        }
    }
    return NULL;
}

nvsci_object *nvsci_numbered(uint64_t number) {
    for (nvsci_object *each = nvsci_objects; each; each = each->next) {
        if (each->number == number) {
            return each;
        }
    }
    return NULL;
}

/* What is gone keeps nobody waiting. */
static bool is_reached(fence_goal goal) {
    const nvsci_object *object = nvsci_numbered(goal.object);
    return !object || object->reached >= goal.value;
}

bool are_reached(const fence_goals *goals) {
    for (uint32_t i = 0; i < goals->count; i++) {
        if (!is_reached(goals->goals[i])) {
            return false;
        }
    }
    return true;
}

void reach(const fence_goals *goals) {
    for (uint32_t i = 0; i < goals->count; i++) {
        nvsci_object *object = nvsci_numbered(goals->goals[i].object);
        if (object && object->reached < goals->goals[i].value) {
            object->reached = goals->goals[i].value;
        }
    }
    if (goals->count) {
        tell_change();
    }
}

void write_fence(uint64_t *words, fence_goal goal) {
    memset(words, 0, FENCE_WORDS * sizeof *words);
    words[0] = FENCE_MAGIC;
    words[1] = goal.object;
    words[2] = goal.value;
}

bool read_fence(const uint64_t *words, fence_goal *goal) {
    *goal = (fence_goal){words[1], words[2]};
    return words[0] == FENCE_MAGIC;
}

static nvsci_object *nvsci_alloc(nvsci_kind kind, size_t bytes) {
    nvsci_object *object = calloc(1, sizeof *object);
    if (!object) {
        return NULL;
    }
    if (bytes && posix_memalign(&object->memory, ALIGNMENT_BYTES, bytes)) {
        free(object);
        return NULL;
    }
    if (bytes) {
        memset(object->memory, 0, bytes);
    }
    take_lock();
    object->kind = kind;
    object->bytes = bytes;
    object->number = ++nvsci_numbers;
    object->next = nvsci_objects;
    nvsci_objects = object;
    give_lock();
    return object;
}

/* Stands for NvSciBufObjAlloc: memory that reads as zeros. NULL where there is no more. */
SIM_EXPORT void *simNvSciBufAlloc(size_t bytes) {
    return bytes ? nvsci_alloc(NVSCI_BUFFER, bytes) : NULL;
}

/* Stands for NvSciBufObjGetCpuPtr. */
SIM_EXPORT void *simNvSciBufCpuPointer(const void *buffer) {
    take_lock();
    const nvsci_object *found = nvsci_find(buffer, NVSCI_BUFFER);
    void *memory = found ? found->memory : NULL;
    give_lock();
    return memory;
}

/* Stands for NvSciSyncObjAlloc. */
SIM_EXPORT void *simNvSciSyncAlloc(void) {
    return nvsci_alloc(NVSCI_SYNC, 0);
}

/* Stands for NvSciSyncAttrListCreate. */
SIM_EXPORT void *simNvSciAttributesAlloc(void) {
    return nvsci_alloc(NVSCI_ATTRIBUTES, 0);
}

/* Returns what cudlaGetNvSciSyncAttributes filled a list in for: its flags, 0 before. */
SIM_EXPORT uint32_t simNvSciAttributesFlags(const void *list) {
    take_lock();
    const nvsci_object *found = nvsci_find(list, NVSCI_ATTRIBUTES);
    uint32_t flags = found ? found->flags : 0;
    give_lock();
    return flags;
}

/* Stands for NvSciSyncObjGenerateFence: the fence of the next signal. `words` are six. 0, or 1: no such object. */
SIM_EXPORT int simNvSciSyncGenerateFence(void *sync, uint64_t *words) {
    take_lock();
    nvsci_object *found = nvsci_find(sync, NVSCI_SYNC);
    if (found) {
        write_fence(words, (fence_goal){found->number, ++found->promised});
    }
    give_lock();
    return !found;
}

/* Stands for NvSciSyncObjSignal. */
SIM_EXPORT int simNvSciSyncSignal(void *sync) {
    take_lock();
    nvsci_object *found = nvsci_find(sync, NVSCI_SYNC);
    if (found) {
        found->reached++;
        tell_change();
    }
    give_lock();
    return !found;
}

/* Stands for NvSciSyncFenceWait. 0: reached, 1: not within the time, 2: no fence. Below 0 it waits for ever. */
SIM_EXPORT int simNvSciSyncFenceWait(const uint64_t *words, int64_t timeout_us) {
    fence_goal goal;
    if (!read_fence(words, &goal)) {
        return 2;
    }
    struct timespec until = time_after_ms(timeout_us < 0 ? 0 : (uint64_t)timeout_us / 1000 + 1);
    take_lock();
    while (!is_reached(goal) && (timeout_us < 0 || is_before(until))) {
        if (timeout_us < 0) {
            wait_for_change();
        } else {
            wait_for_change_until(until);
        }
    }
    bool reached = is_reached(goal);
    give_lock();
    return !reached;
}

/* Stands for NvSciBufObjFree, NvSciSyncObjFree and NvSciSyncAttrListFree. */
SIM_EXPORT int simNvSciFree(void *object) {
    take_lock();
    nvsci_object **link = &nvsci_objects;
    while (*link && *link != object) {
        link = &(*link)->next;
    }
    nvsci_object *found = *link;
    if (found) {
        *link = found->next;
        tell_change();
    }
    give_lock();
    if (found) {
        free(found->memory);
    }
    free(found);
    return !found;
}
