/*
 * The simulated NVML: GPU instances and compute instances (NVML API Reference Manual, "Multi Instance GPU Management").
 *
 * A GPU instance stands under the number of the first MIG device in it, a compute instance under that of its own.
 */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nvml_gpu_instance {
    char unused;
};

struct nvml_compute_instance {
    char unused;
};

static struct nvml_gpu_instance gpu_instances[SIM_DEVICES_MOST][SIM_SLICES_MOST];
static struct nvml_compute_instance compute_instances[SIM_DEVICES_MOST][SIM_SLICES_MOST];

/* The profiles of compute instances by NVML's number of the kind, which is the id too: slices of each; 0: none. */
static const unsigned kinds[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {1, 2, 3, 4, 7};

/* What a question about an instance is about: the MIG device that it stands under. */
typedef struct place {
    const sim_device *gpu;
    int number;
    const sim_slice *slice;
} place;

static unsigned slices_in(const sim_slice *slice) {
    return (unsigned)strtoul(slice->profile, NULL, 10);
}

/* The slices of a kind of compute instance in a GPU instance; 0 where it has no such kind: four have none of three. */
static unsigned slices_of_kind(const sim_slice *instance, unsigned kind) {
    unsigned whole = slices_in(instance);
    unsigned slices = kind < NVML_COMPUTE_INSTANCE_PROFILE_COUNT ? kinds[kind] : 0;
    return slices > whole || (whole == 4 && slices == 3) ? 0 : slices;
}

static unsigned kind_of(const sim_slice *slice) {
    unsigned kind = 0;
    while (kinds[kind] != slice->compute_slices) {
        kind++;
    }
    return kind;
}

static bool is_same_instance(const sim_slice *one, const sim_slice *other) {
    return one->gpu_instance == other->gpu_instance;
}

/*
 * GPU instances
 */

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

SIM_EXPORT int nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t handle, unsigned profile_id,
                                                             nvmlPlacement_t *out, unsigned *count) {
    subject asked;
    int status = ask_cut(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    const sim_profile *profile = profile_with_id(asked.gpu, profile_id);
    if (!profile || !count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = profile->start_count;
    for (unsigned i = 0; out && i < *count; i++) {
        out[i] = (nvmlPlacement_t){profile->starts[i], profile->size};
    }
    return NVML_SUCCESS;
}

/* Opens a question about one of `parts`, the instances of all devices, each of this many bytes. */
static int ask_part(const char *function, const void *handle, const void *parts, size_t bytes, place *found) {
    for (int gpu = 0; gpu < sim_machine()->device_count; gpu++) {
        for (int i = 0; i < sim_gpu_at(gpu)->slice_count; i++) {
            if (handle == (const char *)parts + ((size_t)gpu * SIM_SLICES_MOST + (size_t)i) * bytes) {
                *found = (place){sim_gpu_at(gpu), i, &sim_gpu_at(gpu)->slices[i]};
                return enter_open(function, gpu);
            }
        }
    }
    int status = enter_open(function, SIM_NO_DEVICE);
    return status == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : status;
}

static int ask_instance(const char *function, nvmlGpuInstance_t handle, place *found) {
    return ask_part(function, handle, gpu_instances, sizeof gpu_instances[0][0], found);
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

/*
 * Compute instances
 */

/* Opens a question about a kind of compute instance. */
static int ask_kind(const char *function, nvmlGpuInstance_t handle, unsigned kind, place *found, unsigned *slices) {
    int status = ask_instance(function, handle, found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *slices = slices_of_kind(found->slice, kind);
    return *slices ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static int find_kind(const char *function, nvmlGpuInstance_t handle, unsigned kind, unsigned engines, place *found,
                     nvmlComputeCounts *counts) {
    unsigned slices = 0;
    int status = ask_kind(function, handle, kind, found, &slices);
    if (status == NVML_ERROR_INVALID_ARGUMENT && kind < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && !engines) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (status != NVML_SUCCESS || engines) {
        return status == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : status;
    }
    const int *shared = found->slice->engines;
    *counts = (nvmlComputeCounts){.id = kind,
                                  .sliceCount = slices,
                                  .instanceCount = slices_in(found->slice) / slices,
                                  .sharedDecoderCount = (unsigned)shared[SIM_NVDEC],
                                  .sharedEncoderCount = (unsigned)shared[SIM_NVENC],
                                  .sharedJpegCount = (unsigned)shared[SIM_NVJPG],
                                  .sharedOfaCount = (unsigned)shared[SIM_OFA]};
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned kind, unsigned engines,
                                                            nvmlComputeInstanceProfileInfo_t *out) {
    place found;
    return find_kind(__func__, handle, kind, engines, &found, &out->counts);
}

SIM_EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned kind, unsigned engines,
                                                             nvmlComputeInstanceProfileInfo_v2_t *out) {
    place found;
    int status = find_kind(__func__, handle, kind, engines, &found, &out->counts);
    if (status != NVML_SUCCESS) {
        return status;
    }
    bool is_whole = out->counts.sliceCount == slices_in(found.slice);
    if (is_whole) {
        snprintf(out->name, sizeof out->name, "MIG %.80s", found.slice->profile);
    } else {
        snprintf(out->name, sizeof out->name, "MIG %uc.%.70s", out->counts.sliceCount, found.slice->profile);
    }
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned profile_id,
                                                                  unsigned *out) {
    place found;
    unsigned slices = 0;
    int status = ask_kind(__func__, handle, profile_id, &found, &slices);
    if (status != NVML_SUCCESS) {
        return status;
    }
    unsigned left = slices_in(found.slice);
    for (int i = 0; i < found.gpu->slice_count; i++) {
        left -= is_same_instance(&found.gpu->slices[i], found.slice) ? found.gpu->slices[i].compute_slices : 0;
    }
    *out = left / slices;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned profile_id,
                                                                   nvmlPlacement_t *out, unsigned *count) {
    place found;
    unsigned slices = 0;
    int status = ask_kind(__func__, handle, profile_id, &found, &slices);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *count = slices_in(found.slice) / slices;
    for (unsigned i = 0; out && i < *count; i++) {
        out[i] = (nvmlPlacement_t){i * slices, slices};
    }
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned profile_id,
                                                  nvmlComputeInstance_t *out, unsigned *count) {
    place found;
    unsigned slices = 0;
    int status = ask_kind(__func__, handle, profile_id, &found, &slices);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *count = 0;
    for (int i = 0; i < found.gpu->slice_count; i++) {
        const sim_slice *each = &found.gpu->slices[i];
        if (is_same_instance(each, found.slice) && each->compute_slices == slices) {
            out[(*count)++] = &compute_instances[found.gpu->index][i];
        }
    }
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned id,
                                                     nvmlComputeInstance_t *out) {
    place found;
    int status = ask_instance(__func__, handle, &found);
    for (int i = 0; status == NVML_SUCCESS && i < found.gpu->slice_count; i++) {
        const sim_slice *each = &found.gpu->slices[i];
        if (is_same_instance(each, found.slice) && (unsigned)each->compute_instance == id) {
            *out = &compute_instances[found.gpu->index][i];
            return NVML_SUCCESS;
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : status;
}

static int ask_compute(const char *function, nvmlComputeInstance_t handle, place *found) {
    return ask_part(function, handle, compute_instances, sizeof compute_instances[0][0], found);
}

SIM_EXPORT int nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *out) {
    place found;
    int status = ask_compute(__func__, handle, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    const sim_slice *slices = found.gpu->slices;
    int first = sim_slice_account(found.gpu, found.number) - SIM_DEVICES_MOST - found.gpu->index * SIM_SLICES_MOST;
    unsigned start = 0;
    for (int i = 0; i < found.number; i++) {
        start += is_same_instance(&slices[i], found.slice) ? slices[i].compute_slices : 0;
    }
    *out = (nvmlComputeInstanceInfo_t){handle_of(found.gpu->index, SIM_UNKNOWN),
                                       &gpu_instances[found.gpu->index][first],
                                       (unsigned)found.slice->compute_instance,
                                       kind_of(found.slice),
                                       {start, found.slice->compute_slices}};
    return NVML_SUCCESS;
}
