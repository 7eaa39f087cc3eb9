/*
 * libnvscibuf.so.1 of the driver simulator: attribute lists, their reconciliation, and objects. See nvsci.h.
 *
 * An object is aligned exactly as its attributes request, so that an object without the DLA's alignment is noticed. Not
 * simulated: images, arrays, pyramids, other processes (NvSciIpc).
 */
#define _GNU_SOURCE
#include "nvsci.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ATTRIBUTES_MOST 16
#define PAGE_BYTES 4096

typedef struct NvSciBufModuleRec {
    uint32_t users; /* lists and objects that were not freed */
    bool closed;
} *NvSciBufModule;

typedef struct attribute {
    uint32_t key;
    size_t len;
    uint8_t value[SCI_VALUE_BYTES];
} attribute;

typedef struct NvSciBufAttrListRec {
    NvSciBufModule module;
    bool reconciled;
    int count;
    attribute attributes[ATTRIBUTES_MOST];
} *NvSciBufAttrList;

struct NvSciBufObjRefRec {
    struct NvSciBufObjRefRec *next;
    NvSciBufAttrList list; /* the object's own copy */
    void *block;
    sci_memory memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static NvSciBufObj objects;

/* The maximum lengths of values, by key; 0: the key is not known here. */
static size_t length_of(uint32_t key) {
    switch (key) {
    case NvSciBufGeneralAttrKey_NeedCpuAccess:
        return 1;
    case NvSciBufGeneralAttrKey_Types:
    case NvSciBufGeneralAttrKey_RequiredPerm:
    case NvSciBufTensorAttrKey_DataType:
    case NvSciBufTensorAttrKey_NumDims:
        return 4;
    case NvSciBufRawBufferAttrKey_Size:
    case NvSciBufRawBufferAttrKey_Align:
    case NvSciBufTensorAttrKey_BaseAddrAlign:
    case NvSciBufTensorAttrKey_Size:
        return 8;
    case NvSciBufTensorAttrKey_AlignmentPerDim:
        return 8 * 4;
    case NvSciBufTensorAttrKey_SizePerDim:
        return 8 * 8;
    default:
        return 0;
    }
}

static attribute *find(NvSciBufAttrList list, uint32_t key) {
    for (int i = 0; i < list->count; i++) {
        if (list->attributes[i].key == key) {
            return &list->attributes[i];
        }
    }
    return NULL;
}

static uint64_t number(NvSciBufAttrList list, uint32_t key) {
    const attribute *found = find(list, key);
    uint64_t value = 0;
    if (found) {
        memcpy(&value, found->value, found->len < 8 ? found->len : 8);
    }
    return value;
}

static bool refused(const char *function, int *status) {
    return sim_enter(function, SIM_NO_DEVICE, status) == SIM_STATUS;
}

SIM_EXPORT int NvSciBufModuleOpen(NvSciBufModule *module) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!module) {
        return NvSciError_BadParameter;
    }
    *module = calloc(1, sizeof **module);
    return *module ? NvSciError_Success : NvSciError_InsufficientMemory;
}

static void leave(NvSciBufModule module) {
    pthread_mutex_lock(&lock);
    bool last = module->closed && !module->users;
    pthread_mutex_unlock(&lock);
    if (last) {
        free(module);
    }
}

SIM_EXPORT void NvSciBufModuleClose(NvSciBufModule module) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    if (module) {
        sim_trace("NvSciBufModuleClose", "left=%u", module->users);
        module->closed = true;
        leave(module);
    }
}

static NvSciBufAttrList new_list(NvSciBufModule module) {
    NvSciBufAttrList list = calloc(1, sizeof *list);
    if (list) {
        list->module = module;
        module->users++;
    }
    return list;
}

static void free_list(NvSciBufAttrList list) {
    if (list) {
        NvSciBufModule module = list->module;
        module->users--;
        free(list);
        leave(module);
    }
}

SIM_EXPORT int NvSciBufAttrListCreate(NvSciBufModule module, NvSciBufAttrList *list) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!module || !list) {
        return NvSciError_BadParameter;
    }
    *list = new_list(module);
    return *list ? NvSciError_Success : NvSciError_InsufficientMemory;
}

SIM_EXPORT void NvSciBufAttrListFree(NvSciBufAttrList list) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    free_list(list);
}

static bool may_set(NvSciBufAttrList list, const struct sci_pair *pair) {
    size_t most = length_of(pair->key);
    return most && pair->value && pair->len && pair->len <= most && pair->key != NvSciBufTensorAttrKey_Size &&
           !find(list, pair->key) && (pair->key == NvSciBufGeneralAttrKey_Types || number(list, 1));
}

static void put(NvSciBufAttrList list, uint32_t key, const void *value, size_t len) {
    attribute *new = &list->attributes[list->count++];
    new->key = key;
    new->len = len;
    memcpy(new->value, value, len);
}

/* The buffer's type must be set before attributes of that type, and each attribute may be written once. */
SIM_EXPORT int NvSciBufAttrListSetAttrs(NvSciBufAttrList list, struct sci_pair *pairs, size_t count) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!list || list->reconciled || !pairs || !count) {
        return NvSciError_BadParameter;
    }
    for (size_t i = 0; i < count; i++) {
        if (list->count == ATTRIBUTES_MOST || !may_set(list, &pairs[i])) {
            return NvSciError_BadParameter;
        }
        put(list, pairs[i].key, pairs[i].value, pairs[i].len);
    }
    return NvSciError_Success;
}

SIM_EXPORT int NvSciBufAttrListGetAttrs(NvSciBufAttrList list, struct sci_pair *pairs, size_t count) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!list || !pairs || !count) {
        return NvSciError_BadParameter;
    }
    for (size_t i = 0; i < count; i++) {
        const attribute *found = find(list, pairs[i].key);
        pairs[i].value = found ? found->value : NULL;
        pairs[i].len = found ? found->len : 0;
    }
    return NvSciError_Success;
}

static bool is_largest_wins(uint32_t key) {
    return key == NvSciBufGeneralAttrKey_NeedCpuAccess || key == NvSciBufGeneralAttrKey_RequiredPerm ||
           key == NvSciBufTensorAttrKey_BaseAddrAlign || key == NvSciBufRawBufferAttrKey_Align;
}

/* Adds the requests of another list; false if the two contradict each other. */
static bool merge(NvSciBufAttrList into, NvSciBufAttrList from) {
    for (int i = 0; i < from->count; i++) {
        const attribute *other = &from->attributes[i];
        attribute *own = find(into, other->key);
        if (!own) {
            put(into, other->key, other->value, other->len);
        } else if (own->len != other->len) {
            return false;
        } else if (is_largest_wins(other->key)) {
            if (number(from, other->key) > number(into, other->key)) {
                memcpy(own->value, other->value, own->len);
            }
        } else if (memcmp(own->value, other->value, own->len)) {
            return false;
        }
    }
    return true;
}

static uint64_t size_of_tensor(NvSciBufAttrList list) {
    const attribute *sizes = find(list, NvSciBufTensorAttrKey_SizePerDim);
    uint64_t dims = number(list, NvSciBufTensorAttrKey_NumDims), bytes = 1, each, type;
    type = number(list, NvSciBufTensorAttrKey_DataType);
    if (!sizes || !dims || dims > 8 || sizes->len != 8 * dims ||
        (type != NvSciDataType_Int8 && type != NvSciDataType_Uint8)) {
        return 0;
    }
    for (uint64_t i = 0; i < dims; i++) {
        memcpy(&each, sizes->value + 8 * i, 8);
        bytes *= each;
    }
    return bytes;
}

static uint64_t size_of(NvSciBufAttrList list) {
    return number(list, NvSciBufGeneralAttrKey_Types) == NvSciBufType_Tensor
               ? size_of_tensor(list)
               : number(list, NvSciBufRawBufferAttrKey_Size);
}

static uint64_t alignment_of(NvSciBufAttrList list) {
    bool tensor = number(list, NvSciBufGeneralAttrKey_Types) == NvSciBufType_Tensor;
    uint64_t asked = number(list, tensor ? NvSciBufTensorAttrKey_BaseAddrAlign : NvSciBufRawBufferAttrKey_Align);
    return asked ? asked : 1;
}

static bool is_power_of_two(uint64_t value) {
    return value && !(value & (value - 1)) && value <= PAGE_BYTES;
}

SIM_EXPORT int NvSciBufAttrListReconcile(const NvSciBufAttrList lists[], size_t count, NvSciBufAttrList *reconciled,
                                         NvSciBufAttrList *conflicts) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!lists || !count || !reconciled || !conflicts) {
        return NvSciError_BadParameter;
    }
    bool fit = true;
    for (size_t i = 0; i < count; i++) {
        if (!lists[i] || lists[i]->reconciled || lists[i]->module != lists[0]->module) {
            return NvSciError_BadParameter;
        }
    }
    NvSciBufAttrList made = new_list(lists[0]->module);
    for (size_t i = 0; i < count && made; i++) {
        fit = fit && merge(made, lists[i]);
    }
    if (!made) {
        return NvSciError_InsufficientMemory;
    }
    uint64_t bytes = fit ? size_of(made) : 0;
    if (!bytes || !is_power_of_two(alignment_of(made))) {
        *conflicts = made; /* the caller frees it */
        return NvSciError_ReconciliationFailed;
    }
    if (number(made, NvSciBufGeneralAttrKey_Types) == NvSciBufType_Tensor) {
        put(made, NvSciBufTensorAttrKey_Size, &bytes, 8);
    }
    made->reconciled = true;
    *reconciled = made;
    return NvSciError_Success;
}

static NvSciBufObj new_object(NvSciBufAttrList list) {
    NvSciBufObj object = calloc(1, sizeof *object);
    size_t bytes = size_of(list), alignment = alignment_of(list);
    void *block = NULL;
    NvSciBufAttrList own = new_list(list->module);
    if (!object || !own || posix_memalign(&block, PAGE_BYTES, bytes + 2 * alignment)) {
        free(object);
        free_list(own);
        return NULL;
    }
    NvSciBufModule module = own->module;
    *own = *list;
    own->module = module;
    memset(block, 0, bytes + 2 * alignment);
    object->list = own;
    object->block = block;
    /* Not at the beginning of the block, which has a larger alignment than requested. */
    size_t offset = alignment < PAGE_BYTES ? alignment : 0;
    object->memory = (sci_memory){(uint8_t *)block + offset, bytes, alignment};
    return object;
}

SIM_EXPORT int NvSciBufObjAlloc(NvSciBufAttrList list, NvSciBufObj *object) {
    int status;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!list || !list->reconciled || !object) {
        return NvSciError_BadParameter;
    }
    *object = new_object(list);
    if (!*object) {
        return NvSciError_InsufficientMemory;
    }
    pthread_mutex_lock(&lock);
    (*object)->next = objects;
    objects = *object;
    pthread_mutex_unlock(&lock);
    return NvSciError_Success;
}

/* The caller holds the lock. */
static NvSciBufObj *place_of(NvSciBufObj object) {
    NvSciBufObj *link = &objects;
    while (*link && *link != object) {
        link = &(*link)->next;
    }
    return *link ? link : NULL;
}

SIM_EXPORT void NvSciBufObjFree(NvSciBufObj object) {
    int status;
    sim_enter(__func__, SIM_NO_DEVICE, &status);
    pthread_mutex_lock(&lock);
    NvSciBufObj *link = place_of(object);
    if (link) {
        *link = object->next;
    }
    pthread_mutex_unlock(&lock);
    if (link) {
        free(object->block);
        free_list(object->list);
        free(object);
    }
}

bool sim_sci_memory(NvSciBufObj object, sci_memory *found) {
    pthread_mutex_lock(&lock);
    bool there = place_of(object) != NULL;
    if (there) {
        *found = object->memory;
    }
    pthread_mutex_unlock(&lock);
    return there;
}

SIM_EXPORT int NvSciBufObjGetAttrList(NvSciBufObj object, NvSciBufAttrList *list) {
    int status;
    sci_memory memory;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!list || !sim_sci_memory(object, &memory)) {
        return NvSciError_BadParameter;
    }
    *list = object->list;
    return NvSciError_Success;
}

SIM_EXPORT int NvSciBufObjGetCpuPtr(NvSciBufObj object, void **address) {
    int status;
    sci_memory memory;
    if (refused(__func__, &status)) {
        return status;
    }
    if (!address || !sim_sci_memory(object, &memory)) {
        return NvSciError_BadParameter;
    }
    if (!number(object->list, NvSciBufGeneralAttrKey_NeedCpuAccess) ||
        number(object->list, NvSciBufGeneralAttrKey_RequiredPerm) != NvSciBufAccessPerm_ReadWrite) {
        return NvSciError_NotPermitted;
    }
    *address = memory.address;
    return NvSciError_Success;
}
