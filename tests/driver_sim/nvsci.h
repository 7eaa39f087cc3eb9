/*
 * The binary interface of NvSciBuf and NvSciSync, restated as far as cuDLA's standalone mode uses it (CUDA for Tegra,
 * 5.1.3 and 5.1.4), and the functions that the simulated libraries offer each other. NVIDIA's own headers come only
 * with DRIVE OS and Jetson Linux.
 *
 * This is part of a DRIVER SIMULATOR for tests. It is strict about rules that NVIDIA's libraries leave to the caller.
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

/* Keys count from the start of their type: 65536 times the type's number. */
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
 * A function of the simulated libnvscibuf for libcudla: the contents of an object; false if there is no such object.
 */
typedef struct sci_memory {
    void *address;
    size_t bytes;
    uint64_t alignment; /* the requested alignment */
} sci_memory;

SIM_EXPORT bool sim_sci_memory(NvSciBufObj object, sci_memory *found);

/*
 * Functions of the simulated libnvscisync for libcudla. An engine counts as the party whose attributes libcudla fills
 * in.
 */
SIM_EXPORT bool sim_sci_fill(NvSciSyncAttrList list, uint64_t permission);     /* false: not a writable list */
SIM_EXPORT bool sim_sci_allows(NvSciSyncObj object, uint64_t permission);      /* the rights of an engine */
SIM_EXPORT void sim_sci_promise(NvSciSyncObj object, NvSciSyncFence *fence);   /* the fence of a future signal */
SIM_EXPORT void sim_sci_signal(NvSciSyncObj object);                           /* signals the oldest such fence */
SIM_EXPORT void sim_sci_copy(const NvSciSyncFence *fence, NvSciSyncFence *copy); /* also holds the object */
SIM_EXPORT void sim_sci_clear(NvSciSyncFence *fence);
SIM_EXPORT bool sim_sci_is_fence(const NvSciSyncFence *fence);
SIM_EXPORT bool sim_sci_is_reached(const NvSciSyncFence *fence);
SIM_EXPORT void sim_sci_tell(void (*changed)(void)); /* called after each signal, without a lock */

#endif
