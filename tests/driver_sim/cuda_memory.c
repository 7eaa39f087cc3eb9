/* Memory of the simulated libcuda: allocations, pools, and attributes of pointers. */
#define _GNU_SOURCE
#include "cuda_deferred.h"

#include <pthread.h>
#include <string.h>

#define POOLS_MOST 64
#define PITCH_BYTES 512u
#define LOCATION_DEVICE 1
#define POOL_MANAGED 2
#define POOL_ATTRIBUTES 16

typedef struct CUmemPoolHandle_st *CUmemoryPool;

struct CUmemPoolHandle_st {
    const sim_device *device; /* NULL: the memory of the stream's context */
    sim_memory_kind kind;
    uint64_t attributes[POOL_ATTRIBUTES];
    bool is_alive;
};

static struct {
    pthread_mutex_t lock;
    struct CUmemPoolHandle_st of_devices[SIM_DEVICES_MOST];
    struct CUmemPoolHandle_st of_host;
    struct CUmemPoolHandle_st managed;
    struct CUmemPoolHandle_st made[POOLS_MOST];
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *at(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

static int allocate(CUcontext context, CUdeviceptr *address, size_t bytes, sim_memory_kind kind) {
    REFUSE(address == NULL || bytes == 0, INVALID_VALUE);
    void *place = sim_memory_alloc(context->device, bytes, kind, cuda_owner_of(context));
    REFUSE(place == NULL, OUT_OF_MEMORY);
    *address = (CUdeviceptr)(uintptr_t)place;
    return SUCCESS;
}

SIM_EXPORT int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    ENTER("cuMemAlloc");
    return allocate(cuda_current(), address, bytes, SIM_DEVICE_MEMORY);
}

SIM_EXPORT int cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER("cuMemAllocPitch");
    REFUSE(pitch == NULL || width == 0 || (element != 4 && element != 8 && element != 16), INVALID_VALUE);
    *pitch = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    return allocate(cuda_current(), address, *pitch * height, SIM_DEVICE_MEMORY);
}

SIM_EXPORT int cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER("cuMemAllocManaged");
    return allocate(cuda_current(), address, bytes, SIM_MANAGED_MEMORY);
}

SIM_EXPORT int cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    ENTER_STREAM("cuMemAllocAsync", stream);
    int said = allocate(cuda_context_of(stream), address, bytes, SIM_DEVICE_MEMORY);
    if (said == OUT_OF_MEMORY) {
        sim_cuda_finish(SIM_EVERY_STREAM); /* memory whose release is still queued is released first */
        said = allocate(cuda_context_of(stream), address, bytes, SIM_DEVICE_MEMORY);
    }
    return said;
}

static int free_kind(CUdeviceptr address, bool is_host) {
    sim_allocation found;
    REFUSE(address == 0, SUCCESS);
    REFUSE(!sim_memory_find(at(address), &found) || found.base != address || found.registered, INVALID_VALUE);
    REFUSE((found.kind == SIM_HOST_MEMORY) != is_host, INVALID_VALUE);
    sim_memory_free(at(address));
    return SUCCESS;
}

SIM_EXPORT int cuMemFree_v2(CUdeviceptr address) {
    ENTER_ALL("cuMemFree");
    int said = sim_cuda_finish(SIM_EVERY_STREAM); /* the driver itself waits for the device */
    REFUSE(said != SUCCESS, said);
    return free_kind(address, false);
}

static int free_later(void *address) {
    return sim_memory_free(address) ? SUCCESS : INVALID_VALUE;
}

SIM_EXPORT int cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    sim_allocation found;
    ENTER_WORK("cuMemFreeAsync", stream);
    REFUSE(address == 0, SUCCESS);
    REFUSE(!sim_memory_find(at(address), &found) || found.base != address || found.registered, INVALID_VALUE);
    return sim_cuda_put(stream, free_later, at(address));
}

SIM_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    ENTER("cuMemGetInfo");
    const sim_device *device = cuda_current()->device;
    uint64_t used = sim_memory_used(device->account);
    *total_bytes = device->memory_bytes;
    *free_bytes = used < device->memory_bytes ? device->memory_bytes - used : 0;
    return SUCCESS;
}

SIM_EXPORT int cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    sim_allocation found;
    ENTER("cuMemGetAddressRange");
    REFUSE(!sim_memory_find(at(address), &found), NOT_FOUND);
    if (base != NULL) {
        *base = found.base;
    }
    if (bytes != NULL) {
        *bytes = found.bytes;
    }
    return SUCCESS;
}

static int allocate_host(void **address, size_t bytes) {
    CUdeviceptr place = 0;
    int said = allocate(cuda_current(), &place, bytes, SIM_HOST_MEMORY);
    if (said == SUCCESS) {
        *address = at(place);
    }
    return said;
}

SIM_EXPORT int cuMemAllocHost_v2(void **address, size_t bytes) {
    ENTER("cuMemAllocHost");
    return allocate_host(address, bytes);
}

SIM_EXPORT int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER("cuMemHostAlloc");
    return allocate_host(address, bytes);
}

SIM_EXPORT int cuMemFreeHost(void *address) {
    ENTER("cuMemFreeHost");
    sim_cuda_finish(SIM_EVERY_STREAM);
    return free_kind((CUdeviceptr)(uintptr_t)address, true);
}

SIM_EXPORT int cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags) {
    (void)flags;
    ENTER("cuMemHostGetDevicePointer");
    REFUSE(!sim_memory_find(host, NULL), INVALID_VALUE);
    *device = (CUdeviceptr)(uintptr_t)host;
    return SUCCESS;
}

SIM_EXPORT int cuMemHostGetFlags(unsigned *flags, void *host) {
    sim_allocation found;
    ENTER("cuMemHostGetFlags");
    REFUSE(!sim_memory_find(host, &found) || found.kind != SIM_HOST_MEMORY, INVALID_VALUE);
    *flags = 1 | 2; /* portable, mapped */
    return SUCCESS;
}

SIM_EXPORT int cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER("cuMemHostRegister");
    REFUSE(host == NULL || bytes == 0, INVALID_VALUE);
    return sim_memory_register(host, bytes, cuda_owner_of(cuda_current())) ? SUCCESS : HOST_MEMORY_ALREADY_REGISTERED;
}

SIM_EXPORT int cuMemHostUnregister(void *host) {
    sim_allocation found;
    ENTER("cuMemHostUnregister");
    sim_cuda_finish(SIM_EVERY_STREAM);
    REFUSE(!sim_memory_find(host, &found) || !found.registered || found.base != (uintptr_t)host,
           HOST_MEMORY_NOT_REGISTERED);
    sim_memory_free(host);
    return SUCCESS;
}

/*
 * Memory pools: each allocation is separate, and is given back when it is freed.
 */

typedef struct location {
    int type;
    int id;
} location;

typedef struct pool_properties {
    int allocation_type;
    int handle_types;
    location where;
} pool_properties;

static CUmemoryPool default_pool(int ordinal) {
    CUmemoryPool pool = &pools.of_devices[ordinal];
    pool->device = sim_device_at(ordinal);
    pool->is_alive = true;
    return pool;
}

SIM_EXPORT int cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER_DEVICE("cuDeviceGetDefaultMemPool", device);
    *pool = default_pool(device);
    return SUCCESS;
}

SIM_EXPORT int cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER_DEVICE("cuDeviceGetMemPool", device);
    *pool = default_pool(device);
    return SUCCESS;
}

static sim_memory_kind kind_of(int allocation_type, const location *where) {
    if (allocation_type == POOL_MANAGED) {
        return SIM_MANAGED_MEMORY;
    }
    return where->type == LOCATION_DEVICE ? SIM_DEVICE_MEMORY : SIM_HOST_MEMORY;
}

SIM_EXPORT int cuMemGetMemPool(CUmemoryPool *pool, const location *where, int allocation_type) {
    ENTER_READY("cuMemGetMemPool", SIM_NO_DEVICE);
    sim_memory_kind kind = kind_of(allocation_type, where);
    if (kind == SIM_DEVICE_MEMORY) {
        REFUSE(sim_device_at(where->id) == NULL, INVALID_VALUE);
        *pool = default_pool(where->id);
        return SUCCESS;
    }
    *pool = kind == SIM_HOST_MEMORY ? &pools.of_host : &pools.managed;
    (*pool)->kind = kind;
    (*pool)->is_alive = true;
    return SUCCESS;
}

SIM_EXPORT int cuMemGetDefaultMemPool(CUmemoryPool *pool, const location *where, int allocation_type) {
    return cuMemGetMemPool(pool, where, allocation_type);
}

SIM_EXPORT int cuMemPoolCreate(CUmemoryPool *pool, const pool_properties *properties) {
    ENTER_READY("cuMemPoolCreate", SIM_NO_DEVICE);
    bool is_device = properties->where.type == LOCATION_DEVICE;
    REFUSE(is_device && sim_device_at(properties->where.id) == NULL, INVALID_VALUE);
    pthread_mutex_lock(&pools.lock);
    *pool = NULL;
    for (int number = 0; number < POOLS_MOST && *pool == NULL; number++) {
        if (!pools.made[number].is_alive) {
            *pool = &pools.made[number];
            **pool = (struct CUmemPoolHandle_st){
                .device = is_device ? sim_device_at(properties->where.id) : NULL,
                .kind = kind_of(properties->allocation_type, &properties->where),
                .is_alive = true};
        }
    }
    pthread_mutex_unlock(&pools.lock);
    return *pool == NULL ? OUT_OF_MEMORY : SUCCESS;
}

SIM_EXPORT int cuMemPoolDestroy(CUmemoryPool pool) {
    ENTER_READY("cuMemPoolDestroy", SIM_NO_DEVICE);
    REFUSE(pool == NULL || !pool->is_alive, INVALID_VALUE);
    pool->is_alive = false;
    return SUCCESS;
}

/* The first three attributes are ints, the others have 64 bits. */
SIM_EXPORT int cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, const void *value) {
    ENTER_READY("cuMemPoolSetAttribute", SIM_NO_DEVICE);
    REFUSE(pool == NULL || attribute < 1 || attribute >= POOL_ATTRIBUTES, INVALID_VALUE);
    pool->attributes[attribute] = attribute <= 3 ? (uint64_t)(*(const int *)value) : *(const uint64_t *)value;
    return SUCCESS;
}

SIM_EXPORT int cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    ENTER_READY("cuMemPoolGetAttribute", SIM_NO_DEVICE);
    REFUSE(pool == NULL || attribute < 1 || attribute >= POOL_ATTRIBUTES, INVALID_VALUE);
    if (attribute <= 3) {
        *(int *)value = (int)pool->attributes[attribute];
    } else {
        *(uint64_t *)value = pool->attributes[attribute];
    }
    return SUCCESS;
}

SIM_EXPORT int cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) {
    (void)bytes;
    ENTER_READY("cuMemPoolTrimTo", SIM_NO_DEVICE);
    return pool == NULL ? INVALID_VALUE : SUCCESS;
}

SIM_EXPORT int cuMemPoolSetAccess(CUmemoryPool pool, const void *descriptions, size_t count) {
    (void)descriptions;
    (void)count;
    ENTER_READY("cuMemPoolSetAccess", SIM_NO_DEVICE);
    return pool == NULL ? INVALID_VALUE : SUCCESS;
}

SIM_EXPORT int cuMemPoolGetAccess(int *flags, CUmemoryPool pool, const location *where) {
    ENTER_READY("cuMemPoolGetAccess", SIM_NO_DEVICE);
    REFUSE(pool == NULL, INVALID_VALUE);
    bool is_own = where->type == LOCATION_DEVICE && pool->device == sim_device_at(where->id);
    *flags = is_own || pool->kind != SIM_DEVICE_MEMORY ? 3 : 0; /* read and write, none */
    return SUCCESS;
}

SIM_EXPORT int cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    ENTER_STREAM("cuMemAllocFromPoolAsync", stream);
    REFUSE(pool == NULL || !pool->is_alive, INVALID_VALUE);
    return allocate(cuda_context_of(stream), address, bytes, pool->kind);
}

/*
 * Pointers
 */

static int ordinal_of(int account) {
    for (int ordinal = 0; ordinal < sim_visible_count(); ordinal++) {
        if (sim_device_at(ordinal)->account == account) {
            return ordinal;
        }
    }
    return -2; /* the driver's number for an unknown device */
}

static int put_attribute(void *data, int attribute, CUdeviceptr address, const sim_allocation *found) {
    bool is_device = found->kind == SIM_DEVICE_MEMORY;
    switch (attribute) {
    case 1:
        *(CUcontext *)data = (CUcontext)(uintptr_t)found->owner;
        return SUCCESS;
    case 2:
        *(unsigned *)data = is_device || found->kind == SIM_MANAGED_MEMORY ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return SUCCESS;
    case 3:
        *(CUdeviceptr *)data = address;
        return SUCCESS;
    case 4:
        *(void **)data = is_device ? NULL : at(address);
        return is_device ? INVALID_VALUE : SUCCESS;
    case 6:
    case 8:
    case 10:
    case 13:
        *(unsigned char *)data = attribute == 8 ? found->kind == SIM_MANAGED_MEMORY : attribute == 13;
        return SUCCESS;
    case 7:
        *(uint64_t *)data = found->identity;
        return SUCCESS;
    case 9:
        *(int *)data = found->account == SIM_NO_DEVICE ? ((CUcontext)(uintptr_t)found->owner)->ordinal
                                                       : ordinal_of(found->account);
        return SUCCESS;
    case 11:
        *(CUdeviceptr *)data = found->base;
        return SUCCESS;
    case 12:
        *(size_t *)data = found->bytes;
        return SUCCESS;
    case 17:
        *(CUmemoryPool *)data = NULL;
        return SUCCESS;
    default:
        return NOT_SUPPORTED;
    }
}

SIM_EXPORT int cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
    sim_allocation found;
    ENTER_READY("cuPointerGetAttribute", cuda_device_of(cuda_current()));
    REFUSE(data == NULL || !sim_memory_find(at(address), &found), INVALID_VALUE);
    return put_attribute(data, attribute, address, &found);
}

static size_t bytes_of_attribute(int attribute) {
    switch (attribute) {
    case 2:
    case 9:
        return sizeof(int);
    case 6:
    case 8:
    case 10:
    case 13:
        return 1;
    default:
        return sizeof(uint64_t);
    }
}

/* For an unknown address the result is zeros, and the call succeeds. */
SIM_EXPORT int cuPointerGetAttributes(unsigned count, const int *attributes, void **data, CUdeviceptr address) {
    sim_allocation found;
    ENTER_READY("cuPointerGetAttributes", cuda_device_of(cuda_current()));
    bool is_known = sim_memory_find(at(address), &found);
    for (unsigned number = 0; number < count; number++) {
        if (!is_known || put_attribute(data[number], attributes[number], address, &found) != SUCCESS) {
            memset(data[number], 0, bytes_of_attribute(attributes[number]));
        }
        if (!is_known && attributes[number] == 9) {
            *(int *)data[number] = -2;
        }
    }
    return SUCCESS;
}

SIM_EXPORT int cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
    ENTER_READY("cuPointerSetAttribute", cuda_device_of(cuda_current()));
    REFUSE(value == NULL || attribute != 6 || !sim_memory_find(at(address), NULL), INVALID_VALUE);
    return SUCCESS;
}
