/*
 * The simulated NVML: GPUs that can be cut, and their slices (Multi-Instance GPU User Guide).
 */
#include "nvml.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const profile in_sevenths[] = {{0, 1, 1, ""}, {1, 2, 2, ""},    {2, 3, 4, ""}, {3, 4, 4, ""},
                                      {4, 7, 8, ""}, {7, 1, 1, "+me"}, {9, 1, 2, ""}};
static const profile in_quarters[] = {{0, 1, 2, ""}, {1, 2, 4, ""}, {3, 4, 8, ""}, {7, 1, 2, "+me"}};

/* Decoders by kind of profile (Multi-Instance GPU User Guide, supported profiles); others get their share. */
static const struct {
    const char *model;
    unsigned kind;
    int decoders;
} documented_decoders[] = {{"A100", 0, 0}, {"A100", 1, 1}, {"A100", 2, 2}, {"A100", 3, 2},
                           {"A100", 4, 5}, {"A100", 7, 1}, {"A100", 9, 1}, {"A30", 0, 0},
                           {"A30", 1, 2},  {"A30", 3, 4},  {"A30", 7, 1}};

static bool is_word(char letter) {
    return isalnum((unsigned char)letter) || letter == '_';
}

static size_t span(const char *text, int (*is_kind)(int)) {
    size_t length = 0;
    while (is_kind((unsigned char)text[length])) {
        length++;
    }
    return length;
}

void model_of(const sim_device *gpu, char *model, size_t bytes) {
    for (const char *at = gpu->name; *at; at++) {
        size_t letters = span(at, isupper);
        size_t digits = span(at + letters, isdigit);
        if ((at > gpu->name && is_word(at[-1])) || !letters || !digits) {
            continue;
        }
        size_t length = letters + digits + span(at + letters + digits, isupper);
        snprintf(model, bytes, "%.*s", (int)length, at);
        return;
    }
    snprintf(model, bytes, "GPU");
}

static bool is_model(const sim_device *gpu, const char *model) {
    char own[SIM_TEXT_BYTES];
    model_of(gpu, own, sizeof own);
    return !strcmp(own, model);
}

int profiles_of(const sim_device *gpu, const profile **profiles) {
    bool quarters = is_model(gpu, "A30");
    *profiles = quarters ? in_quarters : in_sevenths;
    if (!gpu->mig_capable) {
        return 0;
    }
    return (int)(quarters ? sizeof in_quarters / sizeof(profile) : sizeof in_sevenths / sizeof(profile));
}

static const profile *profile_of(const sim_device *gpu, unsigned kind) {
    const profile *profiles;
    int count = profiles_of(gpu, &profiles);
    for (int i = 0; i < count; i++) {
        if (profiles[i].kind == kind) {
            return &profiles[i];
        }
    }
    return NULL;
}

static unsigned slices_of(const sim_device *gpu) {
    return is_model(gpu, "A30") ? 4 : 7;
}

void name_profile(const sim_device *gpu, const profile *kind, char *name, size_t bytes) {
    double gib = (double)gpu->memory_bytes / (double)GIB * kind->eighths / 8;
    snprintf(name, bytes, "%ug.%ugb%s", kind->slices, (unsigned)(gib + 0.5), kind->suffix);
}

static unsigned engines_of(const sim_device *gpu, const profile *kind, sim_engine engine) {
    for (size_t i = 0; engine == SIM_NVDEC && i < sizeof documented_decoders / sizeof *documented_decoders; i++) {
        if (documented_decoders[i].kind == kind->kind && is_model(gpu, documented_decoders[i].model)) {
            return (unsigned)documented_decoders[i].decoders;
        }
    }
    return (unsigned)gpu->engines[engine] * kind->slices / slices_of(gpu);
}

static unsigned instances_most(const sim_device *gpu, const profile *kind) {
    return least(*kind->suffix ? 1 : slices_of(gpu) / kind->slices, 8 / kind->eighths);
}

static unsigned slices_taken(const sim_slice *slice) {
    unsigned slices = (unsigned)strtoul(slice->profile, NULL, 10);
    return slices ? slices : 1;
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

ANSWER_NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, asked.gpu->mig_capable ? slices_of(asked.gpu) : 0)

static int find_profile(const char *function, nvmlDevice_t handle, unsigned kind, subject *asked,
                        const profile **found) {
    int status = ask_gpu(function, handle, asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (kind >= NVML_GPU_INSTANCE_PROFILE_COUNT) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *found = profile_of(asked->gpu, kind);
    return *found ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlProfileCounts counts_of(const sim_device *gpu, const profile *kind) {
    return (nvmlProfileCounts){.id = kind->kind,
                               .sliceCount = kind->slices,
                               .instanceCount = instances_most(gpu, kind),
                               .decoderCount = engines_of(gpu, kind, SIM_NVDEC),
                               .encoderCount = engines_of(gpu, kind, SIM_NVENC),
                               .jpegCount = engines_of(gpu, kind, SIM_NVJPG),
                               .ofaCount = engines_of(gpu, kind, SIM_OFA)};
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned kind,
                                                   nvmlGpuInstanceProfileInfo_t *out) {
    subject asked;
    const profile *found;
    int status = find_profile(__func__, handle, kind, &asked, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    out->counts = counts_of(asked.gpu, found);
    out->memorySizeMB = asked.gpu->memory_bytes * found->eighths / 8 / MIB;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned kind,
                                                    nvmlGpuInstanceProfileInfo_v2_t *out) {
    subject asked;
    const profile *found;
    char name[48];
    int status = find_profile(__func__, handle, kind, &asked, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    name_profile(asked.gpu, found, name, sizeof name);
    out->counts = counts_of(asked.gpu, found);
    out->memorySizeMB = asked.gpu->memory_bytes * found->eighths / 8 / MIB;
    snprintf(out->name, sizeof out->name, "MIG %s", name);
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t handle, unsigned profile_id, unsigned *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    const profile *found = profile_of(asked.gpu, profile_id);
    if (!asked.gpu->mig_enabled) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (!found) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned taken = 0;
    for (int i = 0; i < asked.gpu->slice_count; i++) {
        taken += slices_taken(&asked.gpu->slices[i]);
    }
    unsigned left = taken < slices_of(asked.gpu) ? slices_of(asked.gpu) - taken : 0;
    *out = least(left / found->slices, instances_most(asked.gpu, found));
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
        *out = 0;
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
                                    .gpuInstanceSliceCount = slices_taken(asked.slice),
                                    .computeInstanceSliceCount = slices_taken(asked.slice),
                                    .memorySizeMB = asked.slice->memory_bytes / MIB};
    return NVML_SUCCESS;
}
