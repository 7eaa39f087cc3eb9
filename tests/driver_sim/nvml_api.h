/*
 * The binary interface of NVML that nvidia-ml-py 13 uses, restated: structures in the layout of the package's ctypes
 * classes, and the numbers that are needed here. NVIDIA's own header comes only with the CUDA toolkit.
 *
 * This is part of a DRIVER SIMULATOR for tests.
 */
#ifndef CODECFLEET_DRIVER_SIM_NVML_API_H
#define CODECFLEET_DRIVER_SIM_NVML_API_H

#include <stdint.h>

typedef enum nvmlReturn_t {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

enum {
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
    NVML_COMPUTEMODE_DEFAULT = 0,
    NVML_COMPUTEMODE_PROHIBITED = 2,
    NVML_BRAND_GEFORCE = 5,
    NVML_BRAND_NVIDIA_VWS = 10,
    NVML_BRAND_NVIDIA = 14,
    NVML_BUS_TYPE_PCIE = 2,
    NVML_BUS_TYPE_FPCI = 3,
    NVML_CLOCK_VIDEO = 3,
    NVML_ENCODER_QUERY_AV1 = 2,
    NVML_INFOROM_ECC = 1,
    NVML_INFOROM_POWER = 2,
    NVML_MEMORY_LOCATION_DRAM = 2,
    NVML_MEMORY_LOCATION_SRAM = 7,
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230,
    NVML_GPU_INSTANCE_PROFILE_COUNT = 18,
    NVML_GRID_LICENSE_EXPIRY_VALID = 2,
    NVML_EVENT_XID_CRITICAL_ERROR = 8,
    NVML_EVENT_TYPES_ALL = 65439,
    NVML_REASONS_ALL_THROTTLE = 2047,
    NVML_REASONS_ALL_EVENT = 511,
    NVML_REASON_GPU_IDLE = 1,
    NVML_HOST_VGPU_MODE_SRIOV = 1,
    NVML_VGPU_CAP_GPUDIRECT = 1,
    NVML_GRID_LICENSE_STATE_UNLICENSED = 4,
    NVML_GRID_LICENSE_STATE_LICENSED = 5,
    NVML_GRID_LICENSE_FEATURE_CODE_VWORKSTATION = 2,
    NVML_VGPU_VM_ID_DOMAIN_ID = 0,
    NVML_VGPU_VM_ID_UUID = 1
};
#define NVML_DEVICE_ARCH_UNKNOWN 0xffffffffu
#define NVML_NO_INSTANCE 0xffffffffu
#define NVML_GSP_FIRMWARE_VERSION_BYTES 64

typedef struct nvml_device_handle *nvmlDevice_t;
typedef struct nvml_event_set *nvmlEventSet_t;
typedef struct nvml_gpm_sample *nvmlGpmSample_t;
typedef struct nvml_gpu_instance *nvmlGpuInstance_t;

typedef struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct nvmlMemory_t {
    uint64_t total, free, used;
} nvmlMemory_t;

typedef struct nvmlMemory_v2_t {
    unsigned version;
    uint64_t total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct nvmlUtilization_t {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct nvmlEncoderSessionInfo_t {
    unsigned sessionId, pid, vgpuInstance, codecType, hResolution, vResolution, averageFps, averageLatency;
} nvmlEncoderSessionInfo_t;

typedef struct nvmlProcessInfo_t {
    unsigned pid;
    uint64_t usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct nvmlProcessUtilizationSample_t {
    unsigned pid;
    uint64_t timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef union nvmlValue_t {
    double dVal;
    unsigned uiVal;
    uint64_t ullVal;
} nvmlValue_t;

typedef struct nvmlFieldValue_t {
    unsigned fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    unsigned valueType;
    int nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct nvmlTemperature_v1_t {
    unsigned version, sensorType;
    int temperature;
} nvmlTemperature_v1_t;

/* The part that is common to both versions of a GPU instance profile. */
typedef struct nvmlProfileCounts {
    unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount;
    unsigned decoderCount, encoderCount, jpegCount, ofaCount;
} nvmlProfileCounts;

typedef struct nvmlGpuInstanceProfileInfo_t {
    nvmlProfileCounts counts;
    uint64_t memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct nvmlGpuInstanceProfileInfo_v2_t {
    unsigned version;
    nvmlProfileCounts counts;
    uint64_t memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct nvmlPlacement_t {
    unsigned start, size;
} nvmlPlacement_t;

typedef struct nvmlGpuInstanceInfo_t {
    nvmlDevice_t device;
    unsigned id, profileId;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct nvmlDeviceAttributes_t {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount;
    unsigned sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    uint64_t memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct nvmlGpmSupport_t {
    unsigned version, isSupportedDevice;
} nvmlGpmSupport_t;

typedef struct nvmlGpmMetric_t {
    unsigned metricId;
    int nvmlReturn;
    double value;
    const char *shortName, *longName, *unit;
} nvmlGpmMetric_t;

typedef struct nvmlGpmMetricsGet_t {
    unsigned version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[]; /* the caller's version determines how many */
} nvmlGpmMetricsGet_t;

typedef struct nvmlEventData_t {
    nvmlDevice_t device;
    uint64_t eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

typedef struct nvmlVgpuInstanceUtilizationSample_t {
    unsigned vgpuInstance;
    uint64_t timeStamp;
    nvmlValue_t smUtil, memUtil, encUtil, decUtil;
} nvmlVgpuInstanceUtilizationSample_t;

typedef struct nvmlLicenseExpiry_t {
    unsigned year;
    uint16_t month, day, hour, min, sec;
    uint8_t status;
} nvmlLicenseExpiry_t;

typedef struct nvmlGridLicensableFeature_t {
    unsigned featureCode, featureState;
    char licenseInfo[128], productName[128];
    unsigned featureEnabled;
    nvmlLicenseExpiry_t licenseExpiry;
} nvmlGridLicensableFeature_t;

typedef struct nvmlGridLicensableFeatures_t {
    int isGridLicenseSupported;
    unsigned licensableFeaturesCount;
    nvmlGridLicensableFeature_t gridLicensableFeatures[3];
} nvmlGridLicensableFeatures_t;

typedef struct nvmlVgpuPgpuMetadata_t {
    unsigned version, revision;
    char hostDriverVersion[80];
    unsigned pgpuVirtualizationCaps, reserved[5];
    unsigned rangeMinVersion, rangeMaxVersion;
    unsigned opaqueDataSize;
    char opaqueData[256];
} nvmlVgpuPgpuMetadata_t;

typedef struct nvmlVgpuMetadata_t {
    unsigned version, revision, guestInfoState;
    char guestDriverVersion[80], hostDriverVersion[80];
    unsigned reserved[6], vgpuVirtualizationCaps, guestVgpuVersion, opaqueDataSize;
    char opaqueData[260];
} nvmlVgpuMetadata_t;

typedef struct nvmlVgpuSchedulerGetState_t {
    unsigned schedulerPolicy, arrMode, schedulerParams[2];
} nvmlVgpuSchedulerGetState_t;

typedef struct nvmlVgpuSchedulerCapabilities_t {
    unsigned supportedSchedulers[3], maxTimeslice, minTimeslice, isArrModeSupported;
    unsigned maxFrequencyForARR, minFrequencyForARR, maxAvgFactorForARR, minAvgFactorForARR;
} nvmlVgpuSchedulerCapabilities_t;

typedef struct nvmlFBCStats_t {
    unsigned sessionsCount, averageFPS, averageLatency;
} nvmlFBCStats_t;

typedef struct nvmlVgpuLicenseInfo_t {
    uint8_t isLicensed;
    nvmlLicenseExpiry_t licenseExpiry;
    unsigned currentState;
} nvmlVgpuLicenseInfo_t;

typedef struct nvmlVgpuPgpuCompatibility_t {
    unsigned vgpuVmCompatibility, compatibilityLimitCode;
} nvmlVgpuPgpuCompatibility_t;

_Static_assert(sizeof(nvmlPciInfo_t) == 68, "as in pynvml");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "as in pynvml");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "as in pynvml");
_Static_assert(sizeof(nvmlGpuInstanceProfileInfo_t) == 48, "as in pynvml");
_Static_assert(sizeof(nvmlGpuInstanceProfileInfo_v2_t) == 152, "as in pynvml");
_Static_assert(sizeof(nvmlGpuInstanceInfo_t) == 24, "as in pynvml");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "as in pynvml");
_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "as in pynvml");
_Static_assert(sizeof(nvmlEventData_t) == 32, "as in pynvml");
_Static_assert(sizeof(nvmlGridLicensableFeatures_t) == 860, "as in pynvml");
_Static_assert(sizeof(nvmlVgpuPgpuMetadata_t) == 380, "as in pynvml");
_Static_assert(sizeof(nvmlVgpuMetadata_t) == 468, "as in pynvml");
_Static_assert(sizeof(nvmlVgpuSchedulerCapabilities_t) == 40, "as in pynvml");
_Static_assert(sizeof(nvmlVgpuLicenseInfo_t) == 24, "as in pynvml");
_Static_assert(sizeof(nvmlVgpuInstanceUtilizationSample_t) == 48, "as in pynvml");

#endif
