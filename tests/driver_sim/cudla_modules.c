/*
 * The simulated cuDLA: loadables, and the descriptions of their tensors.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <stdlib.h>
#include <string.h>

static dla_module *module_of(cudlaModule handle) {
    for (const dla_device *device = devices; device; device = device->next) {
        if (handle && device->module == handle) {
            return device->module;
        }
    }
    return NULL;
}

static int read_module(const uint8_t *bytes, size_t size, uint32_t flags, dla_module *module) {
    module->diagnostics = flags & CUDLA_MODULE_ENABLE_FAULT_DIAGNOSTICS;
    if (flags > (CUDLA_MODULE_ENABLE_FAULT_DIAGNOSTICS | CUDLA_SCRATCH_MEMORY_SHARED_STATIC) ||
        module->diagnostics != (!bytes && !size)) {
        return cudlaErrorInvalidParam;
    }
    if (module->diagnostics) {
        dla_make_diagnostics(&module->loadable);
    } else if (!dla_parse(bytes, size, &module->loadable)) {
        return cudlaErrorUmd;
    }
    return cudlaSuccess;
}

/* "A loadable can only be loaded once in cuDLA device handle lifecycle." The caller holds the lock. */
static int add_module(cudlaDevHandle handle, dla_module *module) {
    dla_device *device = device_of(handle);
    if (!device) {
        return cudlaErrorInvalidDevice;
    }
    if (device->error != cudlaSuccess) {
        return device->error;
    }
    if (device->loaded_once) {
        return cudlaErrorUnsupportedOperation;
    }
    device->loaded_once = true;
    device->module = module;
    module->device = device;
    return cudlaSuccess;
}

SIM_EXPORT int cudlaModuleLoadFromMemory(cudlaDevHandle handle, const uint8_t *bytes, size_t size, cudlaModule *out,
                                         uint32_t flags) {
    int status;
    sim_trace("cudlaModuleLoadFromMemory", "bytes=%zu flags=%u", size, flags);
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    dla_module *module = calloc(1, sizeof *module);
    if (!module) {
        return cudlaErrorOutOfResources;
    }
    take_lock();
    status = device_of(handle) ? cudlaSuccess : cudlaErrorInvalidDevice;
    give_lock();
    if (status == cudlaSuccess) {
        status = out ? read_module(bytes, size, flags, module) : cudlaErrorInvalidParam;
    }
    if (status == cudlaSuccess) {
        take_lock();
        status = add_module(handle, module);
        give_lock();
    }
    if (status == cudlaSuccess) {
        *out = module;
    } else {
        free(module);
    }
    return status;
}

/* The tensors, and their number, for a pair of attributes; false if there are no such attributes. */
static bool find_tensors(const dla_loadable *loadable, int attribute, const dla_tensor **tensors, uint32_t *count) {
    const dla_header *header = &loadable->header;
    switch (attribute) {
    case CUDLA_NUM_INPUT_TENSORS:
    case CUDLA_INPUT_TENSOR_DESCRIPTORS:
        *tensors = loadable->tensors;
        *count = header->input_count;
        return true;
    case CUDLA_NUM_OUTPUT_TENSORS:
    case CUDLA_OUTPUT_TENSOR_DESCRIPTORS:
        *tensors = dla_output(loadable, 0);
        *count = header->output_count;
        return true;
    case CUDLA_NUM_OUTPUT_TASK_STATISTICS:
    case CUDLA_OUTPUT_TASK_STATISTICS_DESCRIPTORS:
        *tensors = dla_output(loadable, header->output_count);
        *count = header->statistics_count;
        return true;
    default:
        return false;
    }
}

static bool asks_for_number(int attribute) {
    return attribute == CUDLA_NUM_INPUT_TENSORS || attribute == CUDLA_NUM_OUTPUT_TENSORS ||
           attribute == CUDLA_NUM_OUTPUT_TASK_STATISTICS;
}

static int read_attribute(const dla_module *module, int attribute, cudlaModuleAttribute *value) {
    const dla_tensor *tensors;
    uint32_t count;
    if (!value) {
        return cudlaErrorInvalidParam;
    }
    if (!find_tensors(&module->loadable, attribute, &tensors, &count)) {
        return cudlaErrorInvalidAttribute;
    }
    if (asks_for_number(attribute)) {
        value->numOutputTensors = count;
        return cudlaSuccess;
    }
    if (count && !value->outputTensorDesc) {
        return cudlaErrorInvalidParam;
    }
    memcpy(value->outputTensorDesc, tensors, count * sizeof *tensors);
    return cudlaSuccess;
}

SIM_EXPORT int cudlaModuleGetAttributes(cudlaModule handle, int attribute, cudlaModuleAttribute *value) {
    int status;
    if (is_refused(__func__, SIM_NO_DEVICE, &status)) {
        return status;
    }
    take_lock();
    const dla_module *module = module_of(handle);
    status = module ? module->device->error : cudlaErrorInvalidModule;
    if (status == cudlaSuccess) {
        status = read_attribute(module, attribute, value);
    }
    give_lock();
    return status;
}

static int unload(cudlaModule handle, uint32_t flags) {
    dla_module *module = module_of(handle);
    if (!module) {
        return cudlaErrorInvalidModule;
    }
    if (flags) {
        return cudlaErrorInvalidParam;
    }
    dla_device *device = module->device;
    if (device->unfinished) {
        return cudlaErrorUmd; /* tasks still use it */
    }
    device->module = NULL;
    free(module);
    return device->error;
}

SIM_EXPORT int cudlaModuleUnload(cudlaModule handle, uint32_t flags) {
    int status;
    if (is_refused(__func__, SIM_NO_DEVICE, &status)) {
        return status;
    }
    take_lock();
    status = unload(handle, flags);
    give_lock();
    return status;
}
