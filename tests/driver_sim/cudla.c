/*
 * libcudla.so.1 of the driver simulator: the library, devices and their handles. See cudla.h.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LIBRARY_VERSION 1002001 /* 1.2.1, as 1000000 * major + 1000 * minor + patch */
#define ORIN_DLA_VERSION 2      /* "Orin has 2.0"; how the number is coded is not documented */
#define HANDLES_PER_DLA_MOST 16
#define TIMEOUT_DEFAULT_MS 30000
#define TIMEOUT_MOST_MS 1000000
#define ADDRESSES_FROM UINT64_C(0x0d1a00000000) /* a range without host memory: a DLA has its own address space */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

dla_device *devices;
dla_task *tasks;
uint64_t serials;

static void tell_of_signal(void) {
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void set_up(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sim_sci_tell(tell_of_signal);
    if (sim_cuda_set_external_wait) {
        sim_cuda_set_external_wait(wait_for_stream);
    }
}

void take_lock(void) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
}

void give_lock(void) {
    pthread_mutex_unlock(&lock);
}
void tell_change(void) {
    pthread_cond_broadcast(&changed);
}

void wait_for_change(void) {
    pthread_cond_wait(&changed, &lock);
}

void wait_for_change_until(struct timespec when) {
    pthread_cond_timedwait(&changed, &lock, &when);
}

struct timespec time_after_ms(uint64_t milliseconds) {
    struct timespec when;
    clock_gettime(CLOCK_MONOTONIC, &when);
    when.tv_sec += (time_t)(milliseconds / 1000);
    when.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (when.tv_nsec >= 1000000000) {
        when.tv_sec += 1;
        when.tv_nsec -= 1000000000;
    }
    return when;
}

bool is_before(struct timespec when) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec < when.tv_sec || (now.tv_sec == when.tv_sec && now.tv_nsec < when.tv_nsec);
}

bool is_refused(const char *function, int gpu, int *status) {
    return sim_enter(function, gpu, status) == SIM_STATUS;
}

/*
 * Devices
 */

dla_device *device_of(cudlaDevHandle handle) {
    dla_device *device = devices;
    while (device && device != handle) {
        device = device->next;
    }
    return device;
}

int gpu_of(cudlaDevHandle handle) {
    take_lock();
    const dla_device *device = device_of(handle);
    int gpu = device ? device->gpu : SIM_NO_DEVICE;
    give_lock();
    return gpu;
}

static int accelerator_count(void) {
    int count = 0;
    for (int i = 0; i < sim_machine()->device_count; i++) {
        count += sim_gpu_at(i)->engines[SIM_DLA];
    }
    return count;
}

static int handle_count(int number) {
    int count = 0;
    for (const dla_device *each = devices; each; each = each->next) {
        count += each->number == number;
    }
    return count;
}

SIM_EXPORT int cudlaGetVersion(uint64_t *version) {
    int status;
    if (is_refused(__func__, SIM_NO_DEVICE, &status)) {
        return status;
    }
    if (!version) {
        return cudlaErrorInvalidParam;
    }
    *version = LIBRARY_VERSION;
    return cudlaSuccess;
}

SIM_EXPORT int cudlaDeviceGetCount(uint64_t *count) {
    int status;
    if (is_refused(__func__, SIM_NO_DEVICE, &status)) {
        return status;
    }
    if (!count) {
        return cudlaErrorInvalidParam;
    }
    *count = (uint64_t)accelerator_count();
    return cudlaSuccess;
}

/* Hybrid mode uses the current GPU, which must be a Tegra's. */
static int couple(int *gpu) {
    *gpu = SIM_NO_DEVICE;
    const sim_device *current = sim_cuda_device(NULL);
    if (!current) {
        return cudlaErrorCuda;
    }
    *gpu = current->index;
    return current->integrated ? cudlaSuccess : cudlaErrorUnsupportedOperation;
}

/* Standalone mode has no context: faults concern the GPU beside the accelerators. */
static int lie_beside(int *gpu) {
    *gpu = SIM_NO_DEVICE;
    for (int i = 0; i < sim_machine()->device_count && *gpu == SIM_NO_DEVICE; i++) {
        *gpu = sim_gpu_at(i)->engines[SIM_DLA] ? i : SIM_NO_DEVICE;
    }
    return cudlaSuccess;
}

/* The caller holds the lock. */
static int add_device(dla_device *device) {
    if (handle_count(device->number) >= HANDLES_PER_DLA_MOST) {
        return cudlaErrorOutOfResources;
    }
    if (start_thread(device_main, device)) {
        return cudlaErrorCreationFailed;
    }
    device->next = devices;
    devices = device;
    return cudlaSuccess;
}

SIM_EXPORT int cudlaCreateDevice(uint64_t number, cudlaDevHandle *handle, uint32_t flags) {
    int gpu, said, status = flags == CUDLA_STANDALONE ? lie_beside(&gpu) : couple(&gpu);
    sim_trace("cudlaCreateDevice", "dla=%llu mode=%u", (unsigned long long)number, flags);
    if (is_refused(__func__, gpu, &said)) {
        return said;
    }
    if (!handle || flags > CUDLA_STANDALONE || number >= (uint64_t)accelerator_count()) {
        return cudlaErrorInvalidParam;
    }
    if (status != cudlaSuccess) {
        return status;
    }
    dla_device *device = calloc(1, sizeof *device);
    if (!device) {
        return cudlaErrorOutOfResources;
    }
    device->number = (int)number;
    device->gpu = gpu;
    device->standalone = flags == CUDLA_STANDALONE;
    device->timeout_ms = TIMEOUT_DEFAULT_MS;
    device->next_address = ADDRESSES_FROM + (number << 40);
    take_lock();
    status = add_device(device);
    give_lock();
    if (status == cudlaSuccess) {
        *handle = device;
    } else {
        free(device);
    }
    return status;
}

static void free_regions(dla_region *region) {
    while (region) {
        dla_region *next = region->next;
        free(region);
        region = next;
    }
}

/* "Failure to do so can lead to application crashes" (cudlaDestroyDevice): here it always does, so tests notice. */
static void require_drained(const dla_device *device) {
    if (!device->unfinished) {
        return;
    }
    fprintf(stderr, "driver simulator: cudlaDestroyDevice with %u unfinished tasks of DLA %d\n", device->unfinished,
            device->number);
    abort();
}

SIM_EXPORT int cudlaDestroyDevice(cudlaDevHandle handle) {
    int status;
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    take_lock();
    dla_device *device = device_of(handle);
    status = device ? device->error : cudlaErrorInvalidDevice;
    if (device) {
        require_drained(device);
        dla_device **link = &devices;
        while (*link != device) {
            link = &(*link)->next;
        }
        *link = device->next;
        free_regions(device->regions);
        free(device->module);
        device->closing = true; /* the device's thread frees it */
        tell_change();
    }
    give_lock();
    return status;
}

SIM_EXPORT int cudlaDeviceGetAttribute(cudlaDevHandle handle, int attribute, cudlaDevAttribute *value) {
    int status;
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    take_lock();
    const dla_device *device = device_of(handle);
    status = device ? device->error : cudlaErrorInvalidDevice;
    give_lock();
    if (status != cudlaSuccess) {
        return status;
    }
    if (!value) {
        return cudlaErrorInvalidParam;
    }
    if (attribute != CUDLA_UNIFIED_ADDRESSING && attribute != CUDLA_DEVICE_VERSION) {
        return cudlaErrorInvalidAttribute;
    }
    if (attribute == CUDLA_UNIFIED_ADDRESSING) {
        value->unifiedAddressingSupported = 0;
    } else {
        value->deviceVersion = ORIN_DLA_VERSION;
    }
    return cudlaSuccess;
}

SIM_EXPORT int cudlaGetLastError(cudlaDevHandle handle) {
    int status;
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    take_lock();
    const dla_device *device = device_of(handle);
    status = device ? device->error : cudlaErrorInvalidDevice;
    give_lock();
    return status;
}

SIM_EXPORT int cudlaSetTaskTimeoutInMs(cudlaDevHandle handle, uint32_t timeout_ms) {
    int status;
    sim_trace("cudlaSetTaskTimeoutInMs", "timeout_ms=%u", timeout_ms);
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    take_lock();
    dla_device *device = device_of(handle);
    status = !device || !timeout_ms || timeout_ms > TIMEOUT_MOST_MS ? cudlaErrorInvalidParam : device->error;
    if (status == cudlaSuccess) {
        device->timeout_ms = timeout_ms;
    }
    give_lock();
    return status;
}
