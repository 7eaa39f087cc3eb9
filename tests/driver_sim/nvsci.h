/*
 * The binary interface of NvSciBuf and NvSciSync, restated as far as cuDLA's standalone mode uses it (CUDA for Tegra,
 * 5.1.3 and 5.1.4), and what the simulated libraries give each other. NVIDIA's own headers come with DRIVE OS and
 * Jetson Linux alone.
 *
 * This is part of a DRIVER SIMULATOR for tests. It is strict where NVIDIA's libraries leave a rule to the caller.
 *
 * Faults (scenario.h): every function that returns an NvSciError is an entry point by its own name, without a device.
 */
#ifndef CODECFLEET_DRIVER_SIM_NVSCI_H
#define CODECFLEET_DRIVER_SIM_NVSCI_H

#include "scenario.h"

#define SCI_LISTS_MOST 8
#define SCI_VALUE_BYTES 64

typedef enum NvSciError {
    NvSciError_Success = 0,
    NvSciError_NotPermitted = 0x21,
    NvSciError_InvalidState = 0x22,
    NvSciError_InsufficientMemory = 0x30,
    NvSciError_BadParameter = 0x100,
    NvSciError_Timeout = 0x200,
    NvSciError_ReconciliationFailed = 0x10100,
    NvSciError_UnsupportedConfig = 0x2000001,
    NvSciError_ClearedFence = 0x2000002
} NvSciError;

/* Keys count from the start of their type: 65536 times its number. */
enum {
    NvSciBufGeneralAttrKey_Types = 1,
    NvSciBufGeneralAttrKey_NeedCpuAccess = 2,
    NvSciBufGeneralAttrKey_RequiredPerm = 3,
    NvSciBufRawBufferAttrKey_Size = 0x10000,
    NvSciBufRawBufferAttrKey_Align = 0x10001,
    NvSciBufTensorAttrKey_DataType = 0x30000,
    NvSciBufTensorAttrKey_NumDims = 0x30001,
    NvSciBufTensorAttrKey_SizePerDim = 0x30002,
    NvSciBufTensorAttrKey_AlignmentPerDim = 0x30003,
    NvSciBufTensorAttrKey_BaseAddrAlign = 0x30006,
    NvSciBufTensorAttrKey_Size = 0x30007 /* output */
};
enum { NvSciBufType_RawBuffer = 1, NvSciBufType_Tensor = 3 };
enum { NvSciBufAccessPerm_Readonly = 1, NvSciBufAccessPerm_ReadWrite = 3 };
enum { NvSciDataType_Int8 = 2, NvSciDataType_Uint8 = 3 };

enum { NvSciSyncAttrKey_NeedCpuAccess = 1, NvSciSyncAttrKey_RequiredPerm = 2 };
enum { NvSciSyncAccessPerm_WaitOnly = 1, NvSciSyncAccessPerm_SignalOnly = 2 };

typedef struct sci_pair {
    uint32_t key;
    const void *value;
    size_t len;
} NvSciBufAttrKeyValuePair, NvSciSyncAttrKeyValuePair;

typedef struct NvSciBufObjRefRec *NvSciBufObj;
typedef struct NvSciSyncObjRec *NvSciSyncObj;
typedef struct NvSciSyncAttrListRec *NvSciSyncAttrList;

typedef struct NvSciSyncFence {
    uint64_t payload[6]; /* here: the object, and the point of its timeline; all 0: cleared */
} NvSciSyncFence;

_Static_assert(sizeof(NvSciSyncFence) == 48, "as in nvscisync.h");

/*
 * Given by the simulated libnvscibuf to libcudla: what an object holds; false where there is no such object.
 */
typedef struct sci_memory {
    void *address;
    size_t bytes;
    uint64_t alignment; /* that was asked for */
} sci_memory;

SIM_EXPORT bool sim_sci_memory(NvSciBufObj object, sci_memory *found);

/*
 * Given by the simulated libnvscisync to libcudla. An engine counts as the party whose attributes libcudla fills in.
 */
SIM_EXPORT bool sim_sci_fill(NvSciSyncAttrList list, uint64_t permission);     /* false: not a list to write to */
SIM_EXPORT bool sim_sci_allows(NvSciSyncObj object, uint64_t permission);      /* what an engine may do with it */
SIM_EXPORT void sim_sci_promise(NvSciSyncObj object, NvSciSyncFence *fence);   /* the fence of a signal to come */
SIM_EXPORT void sim_sci_signal(NvSciSyncObj object);                           /* keeps the oldest promise */
SIM_EXPORT void sim_sci_copy(const NvSciSyncFence *fence, NvSciSyncFence *copy); /* holds the object, too */
SIM_EXPORT void sim_sci_clear(NvSciSyncFence *fence);
SIM_EXPORT bool sim_sci_is_fence(const NvSciSyncFence *fence);
SIM_EXPORT bool sim_sci_is_reached(const NvSciSyncFence *fence);
SIM_EXPORT void sim_sci_tell(void (*changed)(void)); /* to be called after each signal, with no lock held */

#endif
