/*
 * The simulated cuDLA: memory that a handle may use.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <stdlib.h>

dla_region *region_at(const dla_device *device, const uint64_t *address) {
    dla_region *region = device->regions;
    while (region && region->address != (uint64_t)(uintptr_t)address) {
        region = region->next;
    }
    return region;
}

static bool is_registered(const dla_device *device, const void *origin) {
    const dla_region *region = device->regions;
    while (region && region->origin != origin) {
        region = region->next;
    }
    return region != NULL;
}

/* Adds a copy of a region to the handle's regions, and returns the address on the accelerator. */
int add_region(dla_device *device, const dla_region *wanted, uint64_t **address) {
    if (is_registered(device, wanted->origin)) {
        return cudlaErrorMemoryRegistered;
    }
    dla_region *region = malloc(sizeof *region);
    if (!region) {
        return cudlaErrorOutOfResources;
    }
    *region = *wanted;
    region->address = device->next_address;
    region->next = device->regions;
    device->regions = region;
    device->next_address += (wanted->bytes / 4096 + 2) * 4096;
    *address = (uint64_t *)(uintptr_t)region->address; /* an accelerator's address: not dereferenced here */
    return cudlaSuccess;
}

static int register_memory(cudlaDevHandle handle, const dla_region *wanted, uint64_t **address) {
    dla_device *device = device_of(handle);
    if (!device) {
        return cudlaErrorInvalidDevice;
    }
    if (device->error != cudlaSuccess) {
        return device->error;
    }
    if (device->standalone) {
        return cudlaErrorUnsupportedOperation; /* there is no CUDA */
    }
    if (!address || wanted->flags & ~(uint32_t)CUDLA_TASK_STATISTICS) {
        return cudlaErrorInvalidParam;
    }
    if ((uintptr_t)wanted->origin % ALIGNMENT_BYTES || !wanted->bytes ||
        !sim_memory_holds(wanted->origin, wanted->bytes)) {
        return cudlaErrorInvalidAddress;
    }
    return add_region(device, wanted, address);
}

SIM_EXPORT int cudlaMemRegister(cudlaDevHandle handle, const uint64_t *pointer, size_t bytes, uint64_t **address,
                                uint32_t flags) {
    int status;
    sim_trace("cudlaMemRegister", "bytes=%zu flags=%u", bytes, flags);
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    dla_region wanted = {.origin = pointer, .memory = (void *)(uintptr_t)pointer, .bytes = bytes, .flags = flags};
    take_lock();
    status = register_memory(handle, &wanted, address);
    give_lock();
    return status;
}

static int unregister_memory(cudlaDevHandle handle, const uint64_t *address) {
    dla_device *device = device_of(handle);
    if (!device) {
        return cudlaErrorInvalidDevice;
    }
    dla_region *region = region_at(device, address);
    if (!region) {
        return cudlaErrorInvalidAddress;
    }
    if (region->users) {
        return cudlaErrorUmd; /* tasks still use it */
    }
    dla_region **link = &device->regions;
    while (*link != region) {
        link = &(*link)->next;
    }
    *link = region->next;
    free(region);
    return device->error;
}

SIM_EXPORT int cudlaMemUnregister(cudlaDevHandle handle, const uint64_t *address) {
    int status;
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    take_lock();
    status = unregister_memory(handle, address);
    give_lock();
    return status;
}
