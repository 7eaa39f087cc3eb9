/*
 * The simulated NVML: hosts of vGPUs, and running vGPUs (vGPU Management SDK guide, 2).
 */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

/*
 * Hosts of vGPUs
 */

static unsigned scheduler_of(const sim_device *gpu) {
    static const char *const names[] = {"best effort", "equal share", "fixed share"};
    for (unsigned i = 0; i < 3; i++) {
        if (!strcmp(gpu->vgpu_scheduler, names[i])) {
            return i + 1;
        }
    }
    return strcmp(gpu->vgpu_scheduler, "fixed") ? 0 : 3;
}

SIM_EXPORT int nvmlDeviceGetVgpuSchedulerState(nvmlDevice_t handle, nvmlVgpuSchedulerGetState_t *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = (nvmlVgpuSchedulerGetState_t){.schedulerPolicy = scheduler_of(asked.gpu)};
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetVgpuSchedulerCapabilities(nvmlDevice_t handle, nvmlVgpuSchedulerCapabilities_t *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = (nvmlVgpuSchedulerCapabilities_t){.supportedSchedulers = {1, 2, 3}};
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetHostVgpuMode(nvmlDevice_t handle, unsigned *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = NVML_HOST_VGPU_MODE_SRIOV;
    }
    return status;
}

static nvmlLicenseExpiry_t expiry_of(const sim_moment *when) {
    return (nvmlLicenseExpiry_t){.year = when->year,
                                 .month = (uint16_t)when->month,
                                 .day = (uint16_t)when->day,
                                 .hour = (uint16_t)when->hour,
                                 .min = (uint16_t)when->minute,
                                 .sec = (uint16_t)when->second,
                                 .status = when->year ? NVML_GRID_LICENSE_EXPIRY_VALID : 0};
}

/* Licensing does not apply to a GPU that is no vGPU and hosts none, unless the scenario says otherwise. */
SIM_EXPORT int nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t handle, nvmlGridLicensableFeatures_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    memset(out, 0, sizeof *out);
    if (is_geforce(asked.gpu) || !(asked.gpu->licence_applies || is_host(asked.gpu))) {
        return NVML_SUCCESS;
    }
    bool licensed = asked.gpu->licence_applies ? asked.gpu->licensed : is_host(asked.gpu);
    out->isGridLicenseSupported = 1;
    out->licensableFeaturesCount = 1;
    out->gridLicensableFeatures[0] =
        (nvmlGridLicensableFeature_t){.featureCode = NVML_GRID_LICENSE_FEATURE_CODE_VWORKSTATION,
                                      .featureState = (unsigned)sim_answer(licensed),
                                      .featureEnabled = (unsigned)sim_answer(licensed),
                                      .productName = "NVIDIA RTX Virtual Workstation",
                                      .licenseInfo = "Quadro-Virtual-DWS,5.0",
                                      .licenseExpiry = expiry_of(&asked.gpu->licence_expires)};
    return NVML_SUCCESS;
}

/* NVML's way to return metadata: if there is no room, it returns the size that it needs. */
static int put_metadata(const void *metadata, unsigned needed, unsigned *bytes, void *out) {
    unsigned had = *bytes;
    *bytes = needed;
    if (had < needed) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(out, metadata, needed);
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetVgpuMetadata(nvmlDevice_t handle, nvmlVgpuPgpuMetadata_t *out, unsigned *bytes) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    nvmlVgpuPgpuMetadata_t metadata = {.version = 2, .rangeMinVersion = 0x10001, .rangeMaxVersion = 0x160001};
    snprintf(metadata.hostDriverVersion, sizeof metadata.hostDriverVersion, "%.79s", sim_machine()->driver);
    return put_metadata(&metadata, sizeof metadata, bytes, out);
}

SIM_EXPORT int nvmlGetVgpuCompatibility(const nvmlVgpuMetadata_t *vgpu, const nvmlVgpuPgpuMetadata_t *gpu,
                                        nvmlVgpuPgpuCompatibility_t *out) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    (void)vgpu;
    (void)gpu;
    if (status == NVML_SUCCESS) {
        *out = (nvmlVgpuPgpuCompatibility_t){.vgpuVmCompatibility = 0xf}; /* whatever the state of the machine */
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetVgpuUtilization(nvmlDevice_t handle, uint64_t since_us, unsigned *value_type,
                                            unsigned *room, nvmlVgpuInstanceUtilizationSample_t *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    (void)since_us;
    if (status != NVML_SUCCESS) {
        return status;
    }
    nvmlVgpuInstanceUtilizationSample_t told[SIM_VGPUS_MOST];
    for (int i = 0; i < asked.gpu->vgpu_count; i++) {
        told[i] = (nvmlVgpuInstanceUtilizationSample_t){.vgpuInstance = asked.gpu->vgpus[i].instance,
                                                        .timeStamp = SAMPLED_AT_US};
    }
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    return put_list(told, sizeof *told, (unsigned)asked.gpu->vgpu_count, room, out);
}

/* Nothing runs in the simulated machines. */
SIM_EXPORT int nvmlDeviceGetVgpuProcessUtilization(nvmlDevice_t handle, uint64_t since_us, unsigned *room, void *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    (void)since_us;
    return status == NVML_SUCCESS ? put_list(NULL, 1, 0, room, out) : status;
}

/*
 * Running vGPUs
 */

/* Begins a query of a running vGPU by its number. */
static int ask_vgpu(const char *function, unsigned instance, const sim_vgpu **found) {
    int status = enter_open(function, SIM_NO_DEVICE);
    for (int gpu = 0; status == NVML_SUCCESS && gpu < sim_machine()->device_count; gpu++) {
        for (int i = 0; i < sim_gpu_at(gpu)->vgpu_count; i++) {
            if (sim_gpu_at(gpu)->vgpus[i].instance == instance) {
                *found = &sim_gpu_at(gpu)->vgpus[i];
                return NVML_SUCCESS;
            }
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : status;
}

#define ANSWER_OF_VGPU(function, type, value)                                                                          \
    SIM_EXPORT int function(unsigned instance, type *out) {                                                            \
        const sim_vgpu *found;                                                                                         \
        int status = ask_vgpu(#function, instance, &found);                                                            \
        if (status == NVML_SUCCESS)                                                                                    \
            *out = (value);                                                                                            \
        return status;                                                                                                 \
    }

#define ANSWER_TEXT_OF_VGPU(function, text)                                                                            \
    SIM_EXPORT int function(unsigned instance, char *out, unsigned bytes) {                                            \
        const sim_vgpu *found;                                                                                         \
        int status = ask_vgpu(#function, instance, &found);                                                            \
        return status == NVML_SUCCESS ? put_text(out, bytes, (text)) : status;                                         \
    }

static unsigned frame_rate_limit_of(const sim_vgpu *vgpu) {
    return vgpu->frame_rate_limit == SIM_UNKNOWN ? 60 : (unsigned)vgpu->frame_rate_limit;
}

static nvmlVgpuLicenseInfo_t license_of(const sim_vgpu *vgpu) {
    unsigned state = vgpu->licensed ? NVML_GRID_LICENSE_STATE_LICENSED : NVML_GRID_LICENSE_STATE_UNLICENSED;
    return (nvmlVgpuLicenseInfo_t){
        .isLicensed = vgpu->licensed, .licenseExpiry = expiry_of(&vgpu->licence_expires), .currentState = state};
}

ANSWER_TEXT_OF_VGPU(nvmlVgpuInstanceGetUUID, found->uuid)
ANSWER_TEXT_OF_VGPU(nvmlVgpuInstanceGetMdevUUID, found->uuid)
ANSWER_TEXT_OF_VGPU(nvmlVgpuInstanceGetVmDriverVersion, sim_machine()->driver)
ANSWER_OF_VGPU(nvmlVgpuInstanceGetFbUsage, uint64_t, 0)
ANSWER_OF_VGPU(nvmlVgpuInstanceGetFBCStats, nvmlFBCStats_t, (nvmlFBCStats_t){0})
ANSWER_OF_VGPU(nvmlVgpuInstanceGetLicenseStatus, unsigned, found->licensed)
ANSWER_OF_VGPU(nvmlVgpuInstanceGetLicenseInfo_v2, nvmlVgpuLicenseInfo_t, license_of(found))
ANSWER_OF_VGPU(nvmlVgpuInstanceGetType, unsigned, found->type_id)
ANSWER_OF_VGPU(nvmlVgpuInstanceGetFrameRateLimit, unsigned, frame_rate_limit_of(found))
ANSWER_OF_VGPU(nvmlVgpuInstanceGetEncoderCapacity, unsigned, 100)
ANSWER_OF_VGPU(nvmlVgpuInstanceGetGpuInstanceId, unsigned, found->gpu_instance)
ANSWER_OF_VGPU(nvmlVgpuInstanceGetAccountingMode, unsigned, 0)

SIM_EXPORT int nvmlVgpuInstanceGetVmID(unsigned instance, char *out, unsigned bytes, unsigned *kind) {
    const sim_vgpu *found;
    int status = ask_vgpu(__func__, instance, &found), dashes = 0;
    if (status != NVML_SUCCESS) {
        return status;
    }
    for (const char *letter = found->vm; *letter; letter++) {
        dashes += *letter == '-';
    }
    *kind = dashes == 4 ? NVML_VGPU_VM_ID_UUID : NVML_VGPU_VM_ID_DOMAIN_ID;
    return put_text(out, bytes, found->vm);
}

/* Nothing runs in the simulated machines: no sessions, no captures, no accounts. */
static int no_sessions(const char *function, unsigned instance, unsigned *room) {
    const sim_vgpu *found;
    int status = ask_vgpu(function, instance, &found);
    if (status == NVML_SUCCESS) {
        *room = 0;
    }
    return status;
}

SIM_EXPORT int nvmlVgpuInstanceGetFBCSessions(unsigned instance, unsigned *room, void *out) {
    (void)out;
    return no_sessions(__func__, instance, room);
}

SIM_EXPORT int nvmlVgpuInstanceGetEncoderSessions(unsigned instance, unsigned *room, void *out) {
    (void)out;
    return no_sessions(__func__, instance, room);
}

SIM_EXPORT int nvmlVgpuInstanceGetEncoderStats(unsigned instance, unsigned *count, unsigned *fps,
                                               unsigned *latency_us) {
    const sim_vgpu *found;
    int status = ask_vgpu(__func__, instance, &found);
    if (status == NVML_SUCCESS) {
        *count = *fps = *latency_us = 0;
    }
    return status;
}

/* If there is no room, returns the capacity, even for an empty list: otherwise nvidia-ml-py 13.615 makes no array. */
enum { ACCOUNTED_MAX = 4000 };

SIM_EXPORT int nvmlVgpuInstanceGetAccountingPids(unsigned instance, unsigned *room, unsigned *out) {
    const sim_vgpu *found;
    int status = ask_vgpu(__func__, instance, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *room = out ? 0 : ACCOUNTED_MAX;
    return out ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

SIM_EXPORT int nvmlVgpuInstanceGetAccountingStats(unsigned instance, unsigned pid, void *out) {
    const sim_vgpu *found;
    int status = ask_vgpu(__func__, instance, &found);
    (void)pid;
    (void)out;
    return status == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : status;
}

SIM_EXPORT int nvmlVgpuInstanceGetMetadata(unsigned instance, nvmlVgpuMetadata_t *out, unsigned *bytes) {
    const sim_vgpu *found;
    int status = ask_vgpu(__func__, instance, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    nvmlVgpuMetadata_t metadata = {.version = 2, .guestInfoState = 1};
    snprintf(metadata.guestDriverVersion, sizeof metadata.guestDriverVersion, "%.79s", sim_machine()->driver);
    snprintf(metadata.hostDriverVersion, sizeof metadata.hostDriverVersion, "%.79s", sim_machine()->driver);
    return put_metadata(&metadata, sizeof metadata, bytes, out);
}
