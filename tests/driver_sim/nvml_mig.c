/*
 * The simulated NVML: GPUs that can be divided, and their slices (Multi-Instance GPU User Guide).
 */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const sim_profile *profile_of_kind(const sim_device *gpu, unsigned kind) {
    for (int i = 0; i < gpu->profile_count; i++) {
        if (gpu->profiles[i].kind == kind) {
            return &gpu->profiles[i];
        }
    }
    return NULL;
}

const sim_profile *profile_with_id(const sim_device *gpu, unsigned id) {
    for (int i = 0; i < gpu->profile_count; i++) {
        if (gpu->profiles[i].id == id) {
            return &gpu->profiles[i];
        }
    }
    return NULL;
}

bool is_gpu_instance(const sim_device *gpu, int slice) {
    return sim_slice_account(gpu, slice) == SIM_DEVICES_MOST + gpu->index * SIM_SLICES_MOST + slice;
}

static unsigned slices_of(const sim_device *gpu) {
    unsigned most = 0;
    for (int i = 0; i < gpu->profile_count; i++) {
        most = gpu->profiles[i].slices > most ? gpu->profiles[i].slices : most;
    }
    return most;
}

SIM_EXPORT int nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *current = *pending = asked.gpu->mig_enabled;
    return asked.gpu->mig_capable ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

ANSWER_NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, asked.gpu->mig_enabled ? slices_of(asked.gpu) : 0)

static int find_profile(const char *function, nvmlDevice_t handle, unsigned kind, subject *asked,
                        const sim_profile **found) {
    int status = ask_gpu(function, handle, asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (kind >= NVML_GPU_INSTANCE_PROFILE_COUNT) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *found = asked->gpu->mig_capable ? profile_of_kind(asked->gpu, kind) : NULL;
    return *found ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlProfileCounts counts_of(const sim_profile *profile) {
    return (nvmlProfileCounts){.id = profile->id,
                               .sliceCount = profile->slices,
                               .instanceCount = profile->most,
                               .decoderCount = (unsigned)profile->engines[SIM_NVDEC],
                               .encoderCount = (unsigned)profile->engines[SIM_NVENC],
                               .jpegCount = (unsigned)profile->engines[SIM_NVJPG],
                               .ofaCount = (unsigned)profile->engines[SIM_OFA]};
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned kind,
                                                   nvmlGpuInstanceProfileInfo_t *out) {
    subject asked;
    const sim_profile *found;
    int status = find_profile(__func__, handle, kind, &asked, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    out->counts = counts_of(found);
    out->memorySizeMB = found->memory_bytes / MIB;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned kind,
                                                    nvmlGpuInstanceProfileInfo_v2_t *out) {
    subject asked;
    const sim_profile *found;
    int status = find_profile(__func__, handle, kind, &asked, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    out->counts = counts_of(found);
    out->memorySizeMB = found->memory_bytes / MIB;
    snprintf(out->name, sizeof out->name, "MIG %.90s", found->name);
    return NVML_SUCCESS;
}

static bool overlaps(const sim_slice *slice, unsigned start, unsigned size) {
    return slice->start < start + size && start < slice->start + slice->size;
}

static bool is_place_free(const sim_device *gpu, unsigned start, unsigned size) {
    for (int i = 0; i < gpu->slice_count; i++) {
        if (overlaps(&gpu->slices[i], start, size)) {
            return false;
        }
    }
    return true;
}

/* How many more instances of a profile are possible: limited by places, compute slices, and the profile's maximum. */
static unsigned capacity_left(const sim_device *gpu, const sim_profile *wanted) {
    unsigned places = 0, slices = slices_of(gpu), alike = 0;
    for (unsigned i = 0; i < wanted->start_count; i++) {
        places += is_place_free(gpu, wanted->starts[i], wanted->size);
    }
    for (int i = 0; i < gpu->slice_count; i++) {
        unsigned taken = is_gpu_instance(gpu, i) ? (unsigned)strtoul(gpu->slices[i].profile, NULL, 10) : 0;
        slices -= least(slices, taken);
        alike += is_gpu_instance(gpu, i) && !strcmp(gpu->slices[i].profile, wanted->name);
    }
    return least(least(places, slices / wanted->slices), wanted->most - least(wanted->most, alike));
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t handle, unsigned profile_id, unsigned *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    const sim_profile *found = asked.gpu->mig_capable ? profile_with_id(asked.gpu, profile_id) : NULL;
    if (!found) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *out = capacity_left(asked.gpu, found);
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned place, nvmlDevice_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (!asked.gpu->mig_enabled || place >= (unsigned)asked.gpu->slice_count) {
        return NVML_ERROR_NOT_FOUND;
    }
    *out = handle_of(asked.gpu->index, (int)place);
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle, nvmlDevice_t *out) {
    subject asked;
    int status = ask_slice(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = handle_of(asked.gpu->index, SIM_UNKNOWN);
    }
    return status;
}

SIM_EXPORT int nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *out) {
    subject asked;
    int status = ask(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = asked.slice != NULL;
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned *out) {
    subject asked;
    int status = ask_slice(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = (unsigned)asked.slice->gpu_instance;
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned *out) {
    subject asked;
    int status = ask_slice(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = (unsigned)asked.slice->compute_instance;
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t *out) {
    subject asked;
    int status = ask_slice(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    const int *engines = asked.slice->engines;
    *out = (nvmlDeviceAttributes_t){.sharedDecoderCount = (unsigned)engines[SIM_NVDEC],
                                    .sharedEncoderCount = (unsigned)engines[SIM_NVENC],
                                    .sharedJpegCount = (unsigned)engines[SIM_NVJPG],
                                    .sharedOfaCount = (unsigned)engines[SIM_OFA],
                                    .gpuInstanceSliceCount = (unsigned)strtoul(asked.slice->profile, NULL, 10),
                                    .computeInstanceSliceCount = asked.slice->compute_slices,
                                    .memorySizeMB = asked.slice->memory_bytes / MIB};
    return NVML_SUCCESS;
}
