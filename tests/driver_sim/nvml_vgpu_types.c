/*
 * The simulated NVML: the types of vGPUs that a host supports (vGPU Management SDK guide, 2).
 */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#define NVIDIA_VENDOR 0x10deu

/* Tells whether a GPU instance of a profile has no vGPU on it. */
static bool has_free_instance(const sim_device *gpu, const sim_profile *profile) {
    for (int i = 0; i < gpu->slice_count; i++) {
        bool is_free = is_gpu_instance(gpu, i) && !strcmp(gpu->slices[i].profile, profile->name);
        for (int vgpu = 0; vgpu < gpu->vgpu_count; vgpu++) {
            is_free &= gpu->vgpus[vgpu].gpu_instance != (unsigned)gpu->slices[i].gpu_instance;
        }
        if (is_free) {
            return true;
        }
    }
    return false;
}

/* The rules of 2.2. With MIG: types of free GPU instances; without: types of the running size, if there is room. */
static bool is_creatable(const sim_device *gpu, const sim_vgpu_type *type) {
    const sim_profile *profile = profile_with_id(gpu, type->profile_id);
    if (gpu->mig_enabled || !gpu->vgpu_count) {
        return !gpu->mig_enabled || (profile && has_free_instance(gpu, profile));
    }
    uint64_t size = gpu->vgpus[0].framebuffer_bytes;
    unsigned most = 0;
    for (int i = 0; i < gpu->vgpu_type_count; i++) {
        const sim_vgpu_type *each = &gpu->vgpu_types[i];
        most = each->framebuffer_bytes == size && each->most > most ? each->most : most;
    }
    return type->framebuffer_bytes == size && (unsigned)gpu->vgpu_count < most;
}

int ask_host(const char *function, nvmlDevice_t handle, subject *asked) {
    int status = ask_gpu(function, handle, asked);
    return status == NVML_SUCCESS && !is_host(asked->gpu) ? NVML_ERROR_NOT_SUPPORTED : status;
}

static int list_types(const char *function, nvmlDevice_t handle, bool creatable, unsigned *room, unsigned *out) {
    subject asked;
    int status = ask_host(function, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    unsigned ids[SIM_VGPU_TYPES_MOST], count = 0;
    for (int i = 0; i < asked.gpu->vgpu_type_count; i++) {
        if (!creatable || is_creatable(asked.gpu, &asked.gpu->vgpu_types[i])) {
            ids[count++] = asked.gpu->vgpu_types[i].id;
        }
    }
    return put_list(ids, sizeof *ids, count, room, out);
}

SIM_EXPORT int nvmlDeviceGetSupportedVgpus(nvmlDevice_t handle, unsigned *room, unsigned *out) {
    return list_types(__func__, handle, false, room, out);
}

SIM_EXPORT int nvmlDeviceGetCreatableVgpus(nvmlDevice_t handle, unsigned *room, unsigned *out) {
    return list_types(__func__, handle, true, room, out);
}

SIM_EXPORT int nvmlDeviceGetActiveVgpus(nvmlDevice_t handle, unsigned *room, unsigned *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    unsigned instances[SIM_VGPUS_MOST];
    for (int i = 0; i < asked.gpu->vgpu_count; i++) {
        instances[i] = asked.gpu->vgpus[i].instance;
    }
    return put_list(instances, sizeof *instances, (unsigned)asked.gpu->vgpu_count, room, out);
}

SIM_EXPORT int nvmlVgpuTypeGetMaxInstances(nvmlDevice_t handle, unsigned id, unsigned *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    for (int i = 0; i < asked.gpu->vgpu_type_count; i++) {
        if (asked.gpu->vgpu_types[i].id == id) {
            *out = asked.gpu->vgpu_types[i].most;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

/* Begins a query of a type, which any host of the machine may support. */
static int ask_type(const char *function, unsigned id, const sim_vgpu_type **found) {
    int status = enter_open(function, SIM_NO_DEVICE);
    for (int gpu = 0; status == NVML_SUCCESS && gpu < sim_machine()->device_count; gpu++) {
        const sim_device *host = sim_gpu_at(gpu);
        for (int i = 0; i < host->vgpu_type_count; i++) {
            if (host->vgpu_types[i].id == id) {
                *found = &host->vgpu_types[i];
                return NVML_SUCCESS;
            }
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : status;
}

#define ANSWER_OF_TYPE(function, type, value)                                                                          \
    SIM_EXPORT int function(unsigned id, type *out) {                                                                  \
        const sim_vgpu_type *found;                                                                                               \
        int status = ask_type(#function, id, &found);                                                                  \
        if (status == NVML_SUCCESS)                                                                                    \
            *out = (value);                                                                                            \
        return status;                                                                                                 \
    }

ANSWER_OF_TYPE(nvmlVgpuTypeGetFramebufferSize, uint64_t, found->framebuffer_bytes)
ANSWER_OF_TYPE(nvmlVgpuTypeGetNumDisplayHeads, unsigned, found->displays)
ANSWER_OF_TYPE(nvmlVgpuTypeGetFrameRateLimit, unsigned, found->frame_rate_limit)
ANSWER_OF_TYPE(nvmlVgpuTypeGetGpuInstanceProfileId, unsigned, found->profile_id)

SIM_EXPORT int nvmlVgpuTypeGetClass(unsigned id, char *out, unsigned *bytes) {
    const sim_vgpu_type *found;
    int status = ask_type(__func__, id, &found);
    return status == NVML_SUCCESS ? put_text(out, *bytes, found->vgpu_class) : status;
}

SIM_EXPORT int nvmlVgpuTypeGetName(unsigned id, char *out, unsigned *bytes) {
    const sim_vgpu_type *found;
    int status = ask_type(__func__, id, &found);
    return status == NVML_SUCCESS ? put_text(out, *bytes, found->name) : status;
}

SIM_EXPORT int nvmlVgpuTypeGetLicense(unsigned id, char *out, unsigned bytes) {
    const sim_vgpu_type *found;
    int status = ask_type(__func__, id, &found);
    return status == NVML_SUCCESS ? put_text(out, bytes, found->licences) : status;
}

SIM_EXPORT int nvmlVgpuTypeGetDeviceID(unsigned id, uint64_t *device_id, uint64_t *subsystem_id) {
    const sim_vgpu_type *found;
    int status = ask_type(__func__, id, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *device_id = 0x2235u << 16 | NVIDIA_VENDOR;
    *subsystem_id = 0x14a0u << 16 | NVIDIA_VENDOR;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlVgpuTypeGetResolution(unsigned id, unsigned display, unsigned *width, unsigned *height) {
    const sim_vgpu_type *found;
    int status = ask_type(__func__, id, &found);
    (void)display;
    if (status != NVML_SUCCESS) {
        return status;
    }
    *width = found->width;
    *height = found->height;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlVgpuTypeGetCapabilities(unsigned id, unsigned capability, unsigned *out) {
    const sim_vgpu_type *found;
    int status = ask_type(__func__, id, &found);
    if (status == NVML_SUCCESS) {
        *out = capability == NVML_VGPU_CAP_GPUDIRECT;
    }
    return status;
}
