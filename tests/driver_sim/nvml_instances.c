/*
 * The simulated NVML: GPU instances (NVML API Reference Manual, "Multi Instance GPU Management").
 *
 * A GPU instance has the number of the first MIG device in it.
 */
#include "nvml.h"

#include <string.h>

struct nvml_gpu_instance {
    char unused;
};

static struct nvml_gpu_instance gpu_instances[SIM_DEVICES_MOST][SIM_SLICES_MOST];

/* The subject of a query of an instance: the MIG device that represents the instance. */
typedef struct place {
    const sim_device *gpu;
    const sim_slice *slice;
} place;

static int ask_cut(const char *function, nvmlDevice_t handle, subject *asked) {
    int status = ask_gpu(function, handle, asked);
    return status == NVML_SUCCESS && !asked->gpu->mig_enabled ? NVML_ERROR_NOT_SUPPORTED : status;
}

SIM_EXPORT int nvmlDeviceGetGpuInstances(nvmlDevice_t handle, unsigned profile_id, nvmlGpuInstance_t *out,
                                         unsigned *count) {
    subject asked;
    int status = ask_cut(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    const sim_profile *profile = profile_with_id(asked.gpu, profile_id);
    if (!profile || !out || !count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = 0;
    for (int i = 0; i < asked.gpu->slice_count; i++) {
        if (is_gpu_instance(asked.gpu, i) && !strcmp(asked.gpu->slices[i].profile, profile->name)) {
            out[(*count)++] = &gpu_instances[asked.gpu->index][i];
        }
    }
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceById(nvmlDevice_t handle, unsigned id, nvmlGpuInstance_t *out) {
    subject asked;
    int status = ask_cut(__func__, handle, &asked);
    for (int i = 0; status == NVML_SUCCESS && i < asked.gpu->slice_count; i++) {
        if (is_gpu_instance(asked.gpu, i) && (unsigned)asked.gpu->slices[i].gpu_instance == id) {
            *out = &gpu_instances[asked.gpu->index][i];
            return NVML_SUCCESS;
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : status;
}

/* Begins a query of a GPU instance. */
static int ask_instance(const char *function, nvmlGpuInstance_t handle, place *found) {
    for (int gpu = 0; gpu < sim_machine()->device_count; gpu++) {
        for (int i = 0; i < sim_gpu_at(gpu)->slice_count; i++) {
            if (handle == &gpu_instances[gpu][i]) {
                *found = (place){sim_gpu_at(gpu), &sim_gpu_at(gpu)->slices[i]};
                return enter_open(function, gpu);
            }
        }
    }
    int status = enter_open(function, SIM_NO_DEVICE);
    return status == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : status;
}

static unsigned profile_id_of(const place *found) {
    for (int i = 0; i < found->gpu->profile_count; i++) {
        if (!strcmp(found->gpu->profiles[i].name, found->slice->profile)) {
            return found->gpu->profiles[i].id;
        }
    }
    return NVML_NO_INSTANCE;
}

SIM_EXPORT int nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *out) {
    place found;
    int status = ask_instance(__func__, handle, &found);
    if (status == NVML_SUCCESS) {
        *out = (nvmlGpuInstanceInfo_t){handle_of(found.gpu->index, SIM_UNKNOWN),
                                       (unsigned)found.slice->gpu_instance,
                                       profile_id_of(&found),
                                       {found.slice->start, found.slice->size}};
    }
    return status;
}
