/*
 * The simulated NVML: the identity and the state of a device, which is idle and healthy.
 */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

/*
 * Identity
 */

SIM_EXPORT int nvmlDeviceGetUUID(nvmlDevice_t handle, char *out, unsigned bytes) {
    subject asked;
    int status = ask(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    return put_text(out, bytes, asked.slice ? asked.slice->uuid : asked.gpu->uuid);
}

/* "NVIDIA A100 MIG 1g.5gb (simulated)": the same name as in libcuda. */
static void name_slice(const subject *asked, char *name, size_t bytes) {
    const char *suffix = strstr(asked->gpu->name, " (simulated)");
    int plain = suffix ? (int)(suffix - asked->gpu->name) : (int)strlen(asked->gpu->name);
    snprintf(name, bytes, "%.*s MIG %.24s (simulated)", plain < 48 ? plain : 48, asked->gpu->name,
             asked->slice->name);
}

SIM_EXPORT int nvmlDeviceGetName(nvmlDevice_t handle, char *out, unsigned bytes) {
    char name[SIM_TEXT_BYTES];
    subject asked;
    int status = ask(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (asked.slice) {
        name_slice(&asked, name, sizeof name);
    }
    return put_text(out, bytes, asked.slice ? name : asked.gpu->name);
}

SIM_EXPORT int nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    const char *bus_id = asked.gpu->pci_bus_id;
    size_t length = strlen(bus_id);
    memset(out, 0, sizeof *out);
    snprintf(out->busId, sizeof out->busId, "%.31s", bus_id);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%.15s", bus_id + (length > 12 ? length - 12 : 0));
    return NVML_SUCCESS;
}

static const char *vbios_of(const sim_device *gpu) {
    return is_guest(gpu) ? "00.00.00.00.00" : "96.00.AF.00.01";
}

static unsigned brand_of(const sim_device *gpu) {
    return is_guest(gpu) ? NVML_BRAND_NVIDIA_VWS : is_geforce(gpu) ? NVML_BRAND_GEFORCE : NVML_BRAND_NVIDIA;
}

ANSWER_NUMBER(nvmlDeviceGetBrand, unsigned, brand_of(asked.gpu))
ANSWER_NUMBER(nvmlDeviceGetIndex, unsigned, asked.gpu->index)
ANSWER_NUMBER(nvmlDeviceGetMinorNumber, unsigned, asked.gpu->index)
ANSWER_NUMBER(nvmlDeviceGetArchitecture, unsigned, architecture_of(asked.gpu))
ANSWER_PAIR(nvmlDeviceGetCudaComputeCapability, int, asked.gpu->compute_major, asked.gpu->compute_minor)
ANSWER_NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, asked.gpu->virtualization)
ANSWER_TEXT(nvmlDeviceGetSerial, "1650000000000")
ANSWER_TEXT(nvmlDeviceGetBoardPartNumber, "900-2G500-0000-000")
ANSWER_TEXT(nvmlDeviceGetVbiosVersion, vbios_of(asked.gpu))
ANSWER_TEXT(nvmlDeviceGetInforomImageVersion, "G520.0212.00.04")
ANSWER_NUMBER(nvmlDeviceGetBusType, unsigned, asked.gpu->integrated ? NVML_BUS_TYPE_FPCI : NVML_BUS_TYPE_PCIE)
ANSWER_NUMBER(nvmlDeviceGetNumGpuCores, unsigned, 16896)
ANSWER_NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, 6144)
ANSWER_NUMBER(nvmlDeviceGetComputeMode, unsigned,
              is_guest(asked.gpu) ? NVML_COMPUTEMODE_PROHIBITED : NVML_COMPUTEMODE_DEFAULT)
ANSWER_NUMBER(nvmlDeviceGetPersistenceMode, unsigned, 1)
ANSWER_NUMBER(nvmlDeviceGetAccountingMode, unsigned, 0)
ANSWER_NUMBER(nvmlDeviceGetDisplayActive, unsigned, 0)

SIM_EXPORT int nvmlDeviceGetInforomVersion(nvmlDevice_t handle, unsigned kind, char *out, unsigned bytes) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (kind == NVML_INFOROM_POWER || (is_geforce(asked.gpu) && kind == NVML_INFOROM_ECC)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    return put_text(out, bytes, "2.1");
}

SIM_EXPORT int nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t handle, char *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    return status == NVML_SUCCESS ? put_text(out, NVML_GSP_FIRMWARE_VERSION_BYTES, sim_machine()->driver) : status;
}

/*
 * Clocks, links, power and temperature of an idle device
 */

static int max_clock(const sim_device *gpu, unsigned clock) {
    return clock == NVML_CLOCK_VIDEO ? gpu->video_clock_max_mhz : 1980;
}

SIM_EXPORT int nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned clock, unsigned *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    int mhz = max_clock(asked.gpu, clock);
    *out = (unsigned)mhz;
    return mhz == SIM_UNKNOWN ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

ANSWER_NUMBER_OF(nvmlDeviceGetClockInfo, unsigned, 1200)
ANSWER_NUMBER_OF(nvmlDeviceGetApplicationsClock, unsigned, 1980)
ANSWER_NUMBER_OF(nvmlDeviceGetDefaultApplicationsClock, unsigned, 1980)
ANSWER_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
ANSWER_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 5)
ANSWER_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
ANSWER_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
ANSWER_NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
ANSWER_NUMBER_OF(nvmlDeviceGetPcieThroughput, unsigned, 1024)
ANSWER_NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, uint64_t, NVML_REASONS_ALL_THROTTLE)
ANSWER_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, uint64_t, NVML_REASON_GPU_IDLE)
ANSWER_NUMBER(nvmlDeviceGetSupportedClocksEventReasons, uint64_t, NVML_REASONS_ALL_EVENT)
ANSWER_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, uint64_t, NVML_REASON_GPU_IDLE)
ANSWER_NUMBER_OF(nvmlDeviceGetTemperature, unsigned, 31)
ANSWER_NUMBER_OF(nvmlDeviceGetTemperatureThreshold, unsigned, 90)
ANSWER_NUMBER(nvmlDeviceGetPerformanceState, unsigned, 0)
ANSWER_NUMBER(nvmlDeviceGetPowerManagementMode, unsigned, 1)
ANSWER_NUMBER(nvmlDeviceGetPowerUsage, unsigned, 75500)
ANSWER_NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, 700000)
ANSWER_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 700000)
ANSWER_NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000)
ANSWER_PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned, 200000, 700000)
ANSWER_NUMBER(nvmlDeviceGetTotalEnergyConsumption, uint64_t, 123456)

SIM_EXPORT int nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_v1_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        out->temperature = 31;
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetFanSpeed(nvmlDevice_t handle, unsigned *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *out = 30;
    return is_geforce(asked.gpu) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED; /* a server's fans cool its cards */
}

/* Every device refuses this: see BY_ALL. */
ANSWER_PAIR(nvmlDeviceGetGpuOperationMode, unsigned, 0, 0)
ANSWER_PAIR(nvmlDeviceGetAutoBoostedClocksEnabled, unsigned, 0, 0)
ANSWER_PAIR(nvmlDeviceGetDriverModel_v2, unsigned, 0, 0)
ANSWER_NUMBER(nvmlDeviceGetBridgeChipInfo, unsigned char, 0)

/*
 * Health
 */

ANSWER_PAIR(nvmlDeviceGetEccMode, unsigned, 1, 1)

SIM_EXPORT int nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned error, unsigned counter, uint64_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    (void)counter;
    if (status == NVML_SUCCESS) {
        *out = error == 1 ? sim_answer(0) : 0;
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned error, unsigned counter, unsigned location,
                                               uint64_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    (void)error;
    (void)counter;
    if (status != NVML_SUCCESS) {
        return status;
    }
    *out = 0;
    bool known = location == NVML_MEMORY_LOCATION_DRAM || location == NVML_MEMORY_LOCATION_SRAM;
    return known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* From Ampere on, rows are remapped instead of pages being retired. */
static int as_of_age(const subject *asked, int status, bool of_new) {
    if (status != NVML_SUCCESS) {
        return status;
    }
    int architecture = architecture_of(asked->gpu);
    bool is_new = architecture < 0 || architecture >= AMPERE;
    return is_new == of_new ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

SIM_EXPORT int nvmlDeviceGetRetiredPages(nvmlDevice_t handle, unsigned cause, unsigned *count, uint64_t *pages) {
    subject asked;
    int status = as_of_age(&asked, ask_gpu(__func__, handle, &asked), false);
    (void)cause;
    return status == NVML_SUCCESS ? put_list(NULL, sizeof *pages, 0, count, pages) : status;
}

SIM_EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t handle, unsigned *out) {
    subject asked;
    int status = as_of_age(&asked, ask_gpu(__func__, handle, &asked), false);
    if (status == NVML_SUCCESS) {
        *out = 0;
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *correctable, unsigned *uncorrectable,
                                         unsigned *pending, unsigned *failed) {
    subject asked;
    int status = as_of_age(&asked, ask_gpu(__func__, handle, &asked), true);
    if (status == NVML_SUCCESS) {
        *correctable = *uncorrectable = *failed = 0;
        *pending = (unsigned)sim_answer(0);
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *values) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    for (int i = 0; status == NVML_SUCCESS && i < count; i++) {
        bool told =
            values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION && (unsigned)architecture_of(asked.gpu) >= HOPPER;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.ullVal = sim_answer(0); /* no action is needed */
        values[i].nvmlReturn = told ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    }
    return status;
}
