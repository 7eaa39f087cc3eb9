/*
 * The simulated cuDLA: the replacements of CUDA in standalone mode (CUDA for Tegra, 5.1.3 and 5.1.4): memory of
 * NvSciBuf, semaphores of NvSciSync, and the events of tasks.
 *
 * The simulator is strict about rules that the guide leaves to the caller (5.4): memory must be aligned for the DLA, no
 * fence may be given twice, and a submission has one signal event.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <stdlib.h>
#include <string.h>

static int check_handle(const dla_device *device) {
    if (!device) {
        return cudlaErrorInvalidDevice;
    }
    if (device->error != cudlaSuccess) {
        return device->error;
    }
    return device->standalone ? cudlaSuccess : cudlaErrorUnsupportedOperation;
}

static int find_memory(const cudlaExternalMemoryHandleDesc *described, uint32_t flags, dla_region *wanted) {
    sci_memory memory;
    if (!described || flags & ~(uint32_t)(CUDLA_READ_ONLY_PERM | CUDLA_TASK_STATISTICS)) {
        return cudlaErrorInvalidParam;
    }
    if (!sim_sci_memory((NvSciBufObj)(uintptr_t)described->extBufObject, &memory)) {
        return cudlaErrorNvSci;
    }
    if (memory.alignment % SCI_ALIGNMENT_BYTES || !described->size || described->size > memory.bytes) {
        return cudlaErrorInvalidAddress;
    }
    *wanted = (dla_region){
        .origin = described->extBufObject, .memory = memory.address, .bytes = described->size, .flags = flags};
    return cudlaSuccess;
}

SIM_EXPORT int cudlaImportExternalMemory(cudlaDevHandle handle, const cudlaExternalMemoryHandleDesc *described,
                                         uint64_t **address, uint32_t flags) {
    int status;
    sim_trace("cudlaImportExternalMemory", "bytes=%llu flags=%u", described ? described->size : 0, flags);
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    dla_region wanted;
    take_lock();
    dla_device *device = device_of(handle);
    status = check_handle(device);
    status = status == cudlaSuccess ? find_memory(described, flags, &wanted) : status;
    status = status == cudlaSuccess && !address ? cudlaErrorInvalidParam : status;
    status = status == cudlaSuccess ? add_region(device, &wanted, address) : status;
    give_lock();
    return status;
}

SIM_EXPORT int cudlaImportExternalSemaphore(cudlaDevHandle handle, const cudlaExternalSemaphoreHandleDesc *described,
                                            uint64_t **address, uint32_t flags) {
    int status;
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    take_lock();
    dla_device *device = device_of(handle);
    status = check_handle(device);
    if (status == cudlaSuccess && (!described || !address || flags)) {
        status = cudlaErrorInvalidParam;
    }
    if (status == cudlaSuccess) {
        NvSciSyncObj object = (NvSciSyncObj)(uintptr_t)described->extSyncObject;
        bool fits = sim_sci_allows(object, CUDLA_NVSCISYNC_ATTR_WAIT) || sim_sci_allows(object, CUDLA_NVSCISYNC_ATTR_SIGNAL);
        dla_region wanted = {.origin = object, .semaphore = object};
        status = fits ? add_region(device, &wanted, address) : cudlaErrorNvSci;
    }
    give_lock();
    return status;
}

/* The attributes' numbers are also those of NvSciSync's permissions. */
SIM_EXPORT int cudlaGetNvSciSyncAttributes(uint64_t *list, uint32_t flags) {
    int status;
    if (is_refused(__func__, SIM_NO_DEVICE, &status)) {
        return status;
    }
    if (!list || (flags != CUDLA_NVSCISYNC_ATTR_WAIT && flags != CUDLA_NVSCISYNC_ATTR_SIGNAL)) {
        return cudlaErrorInvalidParam;
    }
    return sim_sci_fill((NvSciSyncAttrList)(void *)list, flags) ? cudlaSuccess : cudlaErrorNvSci;
}

static int check_waits(const cudlaWaitEvents *events) {
    if (!events->numEvents || !events->preFences) {
        return cudlaErrorInvalidParam;
    }
    for (uint32_t i = 0; i < events->numEvents; i++) {
        const CudlaFence *each = &events->preFences[i];
        if (each->type != CUDLA_NVSCISYNC_FENCE || !sim_sci_is_fence(each->fence)) {
            return cudlaErrorInvalidParam;
        }
        for (uint32_t j = 0; j < i; j++) {
            if (!memcmp(each->fence, events->preFences[j].fence, sizeof(NvSciSyncFence))) {
                return cudlaErrorInvalidParam; /* a duplicate fence */
            }
        }
    }
    return cudlaSuccess;
}

static int check_signal(const dla_device *device, const cudlaSignalEvents *events) {
    if (events->numEvents != 1 || !events->devPtrs || !events->eofFences ||
        events->eofFences[0].type != CUDLA_NVSCISYNC_FENCE || !events->eofFences[0].fence) {
        return cudlaErrorInvalidParam;
    }
    const dla_region *region = region_at(device, events->devPtrs[0]);
    bool can = region && region->semaphore && sim_sci_allows(region->semaphore, CUDLA_NVSCISYNC_ATTR_SIGNAL);
    return can ? cudlaSuccess : cudlaErrorInvalidAddress;
}

int check_events(const dla_device *device, const cudlaTask *list, uint32_t count) {
    uint32_t signals = 0;
    int status = cudlaSuccess;
    for (uint32_t i = 0; i < count && status == cudlaSuccess; i++) {
        if (!device->standalone && (list[i].waitEvents || list[i].signalEvents)) {
            return cudlaErrorUnsupportedOperation;
        }
        if (list[i].waitEvents) {
            status = check_waits(list[i].waitEvents);
        }
        if (list[i].signalEvents && status == cudlaSuccess) {
            signals++;
            status = check_signal(device, list[i].signalEvents);
        }
    }
    return signals > 1 ? cudlaErrorInvalidParam : status;
}

int bind_events(dla_task *task, const cudlaTask *source) {
    uint32_t count = source->waitEvents ? source->waitEvents->numEvents : 0;
    task->waits = count ? calloc(count, sizeof *task->waits) : NULL;
    if (count && !task->waits) {
        return cudlaErrorOutOfResources;
    }
    for (; task->wait_count < count; task->wait_count++) {
        sim_sci_copy(source->waitEvents->preFences[task->wait_count].fence, &task->waits[task->wait_count]);
    }
    if (source->signalEvents) {
        task->signals = region_at(task->device, source->signalEvents->devPtrs[0]);
        task->end = source->signalEvents->eofFences[0].fence;
    }
    sim_trace("cudlaEvents", "waits=%u signals=%d", count, task->signals != NULL);
    return cudlaSuccess;
}

void free_waits(dla_task *task) {
    for (uint32_t i = 0; i < task->wait_count; i++) {
        sim_sci_clear(&task->waits[i]);
    }
    free(task->waits);
}

bool are_waits_over(const dla_task *task) {
    for (uint32_t i = 0; i < task->wait_count; i++) {
        if (!sim_sci_is_reached(&task->waits[i])) {
            return false;
        }
    }
    return true;
}
