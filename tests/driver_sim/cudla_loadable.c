/*
 * The simulated cuDLA's loadables, and their arithmetic. See cudla_loadable.h.
 */
#include "cudla_loadable.h"

#include <string.h>

static uint64_t dla_element_bytes(uint8_t type) {
    switch (type) {
    case DLA_FLOAT:
    case DLA_INT32:
        return 4;
    case DLA_HALF:
        return 2;
    default:
        return 0;
    }
}

static uint64_t dla_offset(const dla_tensor *tensor, uint64_t n, uint64_t c, uint64_t h, uint64_t w) {
    return n * tensor->stride[3] + c * tensor->stride[2] + h * tensor->stride[1] + w * tensor->stride[0];
}

/* Reading the format */

static bool dla_tensor_is_sound(const dla_tensor *tensor) {
    const uint64_t sizes[] = {tensor->n, tensor->c, tensor->h, tensor->w};
    uint64_t elements = 1;
    for (size_t i = 0; i < 4; i++) {
        if (sizes[i] == 0 || sizes[i] > DLA_ELEMENTS_MOST / elements) {
            return false;
        }
        elements *= sizes[i];
    }
    uint64_t bytes = dla_element_bytes(tensor->dataType);
    uint64_t last = dla_offset(tensor, tensor->n - 1, tensor->c - 1, tensor->h - 1, tensor->w - 1);
    return bytes && memchr(tensor->name, 0, sizeof tensor->name) && last + bytes <= tensor->size;
}

static bool dla_shapes_fit(uint32_t operation, const dla_tensor *input, const dla_tensor *output) {
    if (input->n != output->n || input->c != output->c) {
        return false;
    }
    if (operation == DLA_BOX_MEAN) {
        return input->h % output->h == 0 && input->w % output->w == 0;
    }
    return input->h == output->h && input->w == output->w;
}

static bool dla_is_sound(const dla_loadable *loadable) {
    const dla_header *header = &loadable->header;
    for (uint32_t i = 0; i < dla_tensor_count(loadable); i++) {
        if (!dla_tensor_is_sound(&loadable->tensors[i])) {
            return false;
        }
    }
    if (header->input_count != header->output_count) {
        return false;
    }
    for (uint32_t i = 0; i < header->input_count; i++) {
        if (!dla_shapes_fit(header->operation, &loadable->tensors[i], dla_output(loadable, i))) {
            return false;
        }
    }
    return true;
}

bool dla_parse(const uint8_t *bytes, size_t size, dla_loadable *loadable) {
    dla_header *header = &loadable->header;
    if (size < DLA_HEADER_BYTES) {
        return false;
    }
    memcpy(header, bytes, DLA_HEADER_BYTES);
    if (memcmp(header->magic, DLA_MAGIC, sizeof header->magic) || header->version != DLA_FORMAT_VERSION) {
        return false;
    }
    if (header->operation >= DLA_OPERATIONS || !header->input_count || header->input_count > DLA_TENSORS_MOST ||
        header->output_count > DLA_TENSORS_MOST || header->statistics_count > DLA_TENSORS_MOST ||
        dla_tensor_count(loadable) > DLA_TENSORS_MOST) {
        return false;
    }
    size_t tensors = dla_tensor_count(loadable) * sizeof(dla_tensor);
    if (size != DLA_HEADER_BYTES + tensors) {
        return false;
    }
    memcpy(loadable->tensors, bytes + DLA_HEADER_BYTES, tensors);
    return dla_is_sound(loadable);
}

void dla_make_diagnostics(dla_loadable *loadable) {
    *loadable = (dla_loadable){.header = {.version = DLA_FORMAT_VERSION, .operation = DLA_DIAGNOSTICS}};
    loadable->header.output_count = 1;
    loadable->tensors[0] = (dla_tensor){.name = "diagnostics",
                                        .size = 32,
                                        .n = 1,
                                        .c = 1,
                                        .h = 1,
                                        .w = 1,
                                        .dataType = DLA_INT32,
                                        .stride = {4, 32, 32, 32}};
}

/* Arithmetic */

static double dla_read(uint8_t type, const void *at) {
    union {
        float single;
        _Float16 half;
        int32_t integer;
    } value;
    memcpy(&value, at, dla_element_bytes(type));
    switch (type) {
    case DLA_FLOAT:
        return (double)value.single;
    case DLA_HALF:
        return (double)value.half;
    default:
        return value.integer;
    }
}

static void dla_write(uint8_t type, void *at, double value) {
    if (type == DLA_FLOAT) {
        float single = (float)value;
        memcpy(at, &single, sizeof single);
    } else if (type == DLA_HALF) {
        _Float16 half = (_Float16)value;
        memcpy(at, &half, sizeof half);
    } else {
        int32_t integer = (int32_t)value;
        memcpy(at, &integer, sizeof integer);
    }
}

static double dla_element(const dla_tensor *tensor, const uint8_t *memory, const uint64_t place[4]) {
    return dla_read(tensor->dataType, memory + dla_offset(tensor, place[0], place[1], place[2], place[3]));
}

static double dla_mean(const dla_tensor *input, const uint8_t *memory, const dla_tensor *output,
                       const uint64_t place[4]) {
    uint64_t height = input->h / output->h, width = input->w / output->w;
    double sum = 0;
    for (uint64_t h = 0; h < height; h++) {
        for (uint64_t w = 0; w < width; w++) {
            const uint64_t at[] = {place[0], place[1], place[2] * height + h, place[3] * width + w};
            sum += dla_element(input, memory, at);
        }
    }
    return sum / (double)(height * width);
}

/* Without fused multiply-add, so that all machines round in the same way. */
__attribute__((optimize("fp-contract=off"))) static double dla_value(const dla_loadable *loadable, void *const *memory,
                                                                     uint32_t number, const uint64_t place[4]) {
    const dla_header *header = &loadable->header;
    const dla_tensor *input = &loadable->tensors[number];
    switch (header->operation) {
    case DLA_AFFINE:
        return header->scale * dla_element(input, memory[number], place) + header->bias;
    case DLA_BOX_MEAN:
        return header->scale * dla_mean(input, memory[number], dla_output(loadable, number), place) + header->bias;
    default:
        return header->bias;
    }
}

static void dla_compute_output(const dla_loadable *loadable, void *const *memory, uint32_t number) {
    const dla_tensor *output = dla_output(loadable, number);
    uint8_t *base = memory[loadable->header.input_count + number];
    uint64_t at[4];
    for (at[0] = 0; at[0] < output->n; at[0]++) {
        for (at[1] = 0; at[1] < output->c; at[1]++) {
            for (at[2] = 0; at[2] < output->h; at[2]++) {
                for (at[3] = 0; at[3] < output->w; at[3]++) {
                    dla_write(output->dataType, base + dla_offset(output, at[0], at[1], at[2], at[3]),
                              dla_value(loadable, memory, number, at));
                }
            }
        }
    }
}

void dla_compute(const dla_loadable *loadable, void *const *memory) {
    for (uint32_t i = 0; i < loadable->header.output_count; i++) {
        dla_compute_output(loadable, memory, i);
    }
}
