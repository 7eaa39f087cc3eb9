/*
 * The loadable of the simulated DLA: the simulator's own format, and the arithmetic.
 *
 * This is part of a DRIVER SIMULATOR for tests. loadable.py writes the format. All numbers are little-endian:
 *
 *   offset  bytes
 *        0  8    "CFSIMDLA"
 *        8  4    version, 1
 *       12  4    operation (dla_operation)
 *       16  12   the numbers of input tensors, output tensors, and statistics buffers
 *       28  4    how long an engine is busy, in microseconds, in addition to the arithmetic
 *       32  16   scale and bias, two doubles
 *       48  168  a descriptor of each tensor (cudlaModuleTensorDescriptor): inputs, outputs, statistics
 *
 * Element (n, c, h, w) of a tensor is at n * stride[3] + c * stride[2] + h * stride[1] + w * stride[0] bytes,
 * whatever the name of the format. Arithmetic is in double precision.
 */
#ifndef CODECFLEET_DRIVER_SIM_CUDLA_LOADABLE_H
#define CODECFLEET_DRIVER_SIM_CUDLA_LOADABLE_H

#include "cudla_api.h"

#include <stdbool.h>

#define DLA_MAGIC "CFSIMDLA"
#define DLA_FORMAT_VERSION 1
#define DLA_HEADER_BYTES 48
#define DLA_TENSORS_MOST 16
#define DLA_ELEMENTS_MOST (UINT64_C(1) << 32)

typedef cudlaModuleTensorDescriptor dla_tensor;

typedef enum dla_operation {
    DLA_AFFINE,      /* output i = scale * input i + bias */
    DLA_BOX_MEAN,    /* output i = scale * (the mean of the block of input i that a cell covers) + bias */
    DLA_DIAGNOSTICS, /* output 0 = bias: made by the library itself, and in no file */
    DLA_OPERATIONS = DLA_DIAGNOSTICS
} dla_operation;

/* Data types of NVDLA's loadable schema, and one of the simulator's own types for the diagnostics. */
typedef enum dla_type { DLA_FLOAT = 1, DLA_HALF = 2, DLA_INT32 = 7 } dla_type;

typedef struct dla_header {
    char magic[8];
    uint32_t version;
    uint32_t operation;
    uint32_t input_count;
    uint32_t output_count;
    uint32_t statistics_count;
    uint32_t busy_us;
    double scale;
    double bias;
} dla_header;

_Static_assert(sizeof(dla_header) == DLA_HEADER_BYTES, "as in the format");

typedef struct dla_loadable {
    dla_header header;
    dla_tensor tensors[DLA_TENSORS_MOST]; /* inputs, outputs, statistics */
} dla_loadable;

static inline uint32_t dla_tensor_count(const dla_loadable *loadable) {
    return loadable->header.input_count + loadable->header.output_count + loadable->header.statistics_count;
}

static inline const dla_tensor *dla_output(const dla_loadable *loadable, uint32_t number) {
    return &loadable->tensors[loadable->header.input_count + number];
}

/* False if the bytes are not a loadable of this version, are cut short, or make no sense. */
bool dla_parse(const uint8_t *bytes, size_t size, dla_loadable *loadable);

/* The module of CUDLA_MODULE_ENABLE_FAULT_DIAGNOSTICS: no input, and one output that is 0 (no fault). */
void dla_make_diagnostics(dla_loadable *loadable);

/* Computes all outputs; `memory` holds the tensors' addresses: inputs, outputs. */
void dla_compute(const dla_loadable *loadable, void *const *memory);

#endif
