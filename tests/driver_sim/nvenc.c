/*
 * The simulated libnvidia-encode.so.1: the entry points of the NVENC interface, versions 11.1 to 13.1.
 *
 * This is a DRIVER SIMULATOR for tests: libavcodec's software encoders encode pictures, so that bitstreams are real,
 * and the scenario states the hardware's capabilities. Functions that are not simulated return
 * NV_ENC_ERR_UNIMPLEMENTED: asynchronous events, motion vectors, reference invalidation, state restoration, outer
 * look-ahead, statistics.
 *
 * Entry points are counted, traced and disturbed by the scenario under the header's names ("NvEncEncodePicture").
 */
#include "nvenc.h"

#include <string.h>

#define PITCH_ALIGNMENT 256
#define INITIALIZE_BYTES_121 1808 /* until interface 12.1; layout_initialize_params is of later versions */
#define INITIALIZE_VERSION_121 6

NVENCSTATUS nvenc_enter(const char *function, void *encoder, nvenc_call *out) {
    int status = NV_ENC_SUCCESS;
    out->session = nvenc_session_of(encoder);
    int device = out->session == NULL ? SIM_NO_DEVICE : out->session->device->index;
    sim_verdict verdict = sim_enter(function, device, &status);
    out->cut = verdict == SIM_SHORT;
    if (verdict == SIM_STATUS) {
        return (NVENCSTATUS)status;
    }
    if (out->session == NULL) {
        return encoder == NULL ? NV_ENC_ERR_INVALID_PTR : NV_ENC_ERR_INVALID_ENCODERDEVICE;
    }
    pthread_mutex_lock(&out->session->lock);
    return NV_ENC_SUCCESS;
}

NVENCSTATUS nvenc_leave(const nvenc_call *made, NVENCSTATUS status) {
    pthread_mutex_unlock(&made->session->lock);
    return status;
}

/* The same for calls that need an initialized encoder and a structure of the caller. */
static NVENCSTATUS enter_initialized(const char *function, void *encoder, const uint32_t *version, nvenc_call *out) {
    NVENCSTATUS status = nvenc_enter(function, encoder, out);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    if (version == NULL) {
        return nvenc_leave(out, NV_ENC_ERR_INVALID_PTR);
    }
    if (!nvenc_knows_version(*version)) {
        return nvenc_leave(out, NV_ENC_ERR_INVALID_VERSION);
    }
    return out->session->initialized ? NV_ENC_SUCCESS : nvenc_leave(out, NV_ENC_ERR_ENCODER_NOT_INITIALIZED);
}

static NVENCSTATUS unimplemented(const char *function, void *encoder) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter(function, encoder, &made);
    return status == NV_ENC_SUCCESS ? nvenc_leave(&made, NV_ENC_ERR_UNIMPLEMENTED) : status;
}

/*
 * Sessions
 */

static NVENCSTATUS open_session(void *device, uint32_t type, void **encoder) {
    (void)device;
    (void)type;
    (void)encoder;
    int status = NV_ENC_SUCCESS;
    sim_verdict verdict = sim_enter("NvEncOpenEncodeSession", SIM_NO_DEVICE, &status);
    return verdict == SIM_STATUS ? (NVENCSTATUS)status : NV_ENC_ERR_INVALID_CALL;
}

static NVENCSTATUS check_open(const NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *params) {
    uint32_t asked = (params->apiVersion & 0xff) << 4 | (params->apiVersion >> 24 & 0xf);
    if (!nvenc_knows_version(params->version) || asked > nvenc_max_version()) {
        return NV_ENC_ERR_INVALID_VERSION;
    }
    if (params->reserved != NULL) {
        return NV_ENC_ERR_INCOMPATIBLE_CLIENT_KEY;
    }
    if (params->deviceType != NV_ENC_DEVICE_TYPE_CUDA) {
        return NV_ENC_ERR_UNSUPPORTED_DEVICE;
    }
    return params->device == NULL ? NV_ENC_ERR_INVALID_DEVICE : NV_ENC_SUCCESS;
}

static NVENCSTATUS open_session_ex(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *params, void **encoder) {
    const sim_device *device = params == NULL ? NULL : sim_cuda_device(params->device);
    int fault = NV_ENC_SUCCESS;
    sim_verdict verdict = sim_enter("NvEncOpenEncodeSessionEx", device == NULL ? SIM_NO_DEVICE : device->index, &fault);
    if (verdict == SIM_STATUS) {
        return (NVENCSTATUS)fault;
    }
    if (params == NULL || encoder == NULL) {
        return NV_ENC_ERR_INVALID_PTR;
    }
    NVENCSTATUS status = check_open(params);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    if (device == NULL) {
        return NV_ENC_ERR_INVALID_DEVICE;
    }
    nvenc_session *made = nvenc_session_open(device, &status);
    if (made != NULL) {
        made->context = params->device;
    }
    *encoder = made;
    return status;
}

/* A session of a lost device is freed as well, whatever the call returns. */
static NVENCSTATUS destroy_encoder(void *encoder) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncDestroyEncoder", encoder, &made);
    if (status == NV_ENC_SUCCESS) {
        nvenc_leave(&made, status);
    }
    if (made.session != NULL) {
        nvenc_session_close(made.session);
    }
    return status;
}

static const char *last_error(void *encoder) {
    const nvenc_session *session = nvenc_session_of(encoder);
    return session == NULL ? "" : session->error;
}

static NVENCSTATUS set_streams(void *encoder, NV_ENC_CUSTREAM_PTR input, NV_ENC_CUSTREAM_PTR output) {
    (void)output;
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncSetIOCudaStreams", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    made.session->input_stream = input == NULL ? NULL : *(void **)input;
    return nvenc_leave(&made, status);
}

/*
 * Configuration
 */

static NVENCSTATUS initialize(void *encoder, NV_ENC_INITIALIZE_PARAMS *raw) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncInitializeEncoder", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    const layout_initialize_params *params = (const void *)raw;
    if (params == NULL) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PTR);
    }
    nvenc_trace_settings("NvEncInitializeEncoder", params, params->encodeConfig);
    return nvenc_leave(&made, nvenc_session_initialize(made.session, params));
}

static uint32_t reconfigure_flags(const layout_reconfigure_params *params) {
    bool old = nvenc_struct_version(params->reInitEncodeParams.version) <= INITIALIZE_VERSION_121;
    size_t place = offsetof(layout_reconfigure_params, reInitEncodeParams) +
                   (old ? INITIALIZE_BYTES_121 : sizeof params->reInitEncodeParams);
    uint32_t flags;
    memcpy(&flags, (const uint8_t *)params + place, sizeof flags);
    return flags;
}

static NVENCSTATUS reconfigure(void *encoder, NV_ENC_RECONFIGURE_PARAMS *raw) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncReconfigureEncoder", encoder, raw == NULL ? NULL : &raw->version,
                                           &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    const layout_reconfigure_params *params = (const void *)raw;
    uint32_t flags = reconfigure_flags(params);
    nvenc_trace_settings("NvEncReconfigureEncoder", &params->reInitEncodeParams,
                         params->reInitEncodeParams.encodeConfig);
    sim_trace("NvEncReconfigureEncoder", "resetEncoder=%u forceIDR=%u", flags & 1, flags >> 1 & 1);
    return nvenc_leave(&made, nvenc_session_reconfigure(made.session, &params->reInitEncodeParams, (flags & 3) != 0));
}

static NVENCSTATUS get_sequence_params(void *encoder, NV_ENC_SEQUENCE_PARAM_PAYLOAD *payload) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncGetSequenceParams", encoder,
                                           payload == NULL ? NULL : &payload->version, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    if (payload->spsppsBuffer == NULL || payload->outSPSPPSPayloadSize == NULL) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PTR);
    }
    status = nvenc_session_prepare(made.session);
    if (status != NV_ENC_SUCCESS) {
        return nvenc_leave(&made, status);
    }
    size_t size = 0;
    const uint8_t *headers = nvenc_encoder_headers(made.session->encoder, &size);
    *payload->outSPSPPSPayloadSize = (uint32_t)size;
    if (size > payload->inBufferSize) {
        return nvenc_leave(&made, NV_ENC_ERR_NOT_ENOUGH_BUFFER);
    }
    memcpy(payload->spsppsBuffer, headers, size);
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

/*
 * Buffers
 */

static NVENCSTATUS create_input_buffer(void *encoder, NV_ENC_CREATE_INPUT_BUFFER *params) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncCreateInputBuffer", encoder,
                                           params == NULL ? NULL : &params->version, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    uint32_t format = params->bufferFmt;
    if (!nvenc_format_known(format) || params->width == 0 || params->height == 0) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    unsigned row = nvenc_row_bytes(format, params->width);
    nvenc_surface surface = {NULL, params->width, params->height,
                             (row + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT, format};
    surface.data = sim_memory_alloc(made.session->device, nvenc_surface_bytes(&surface), SIM_DEVICE_MEMORY,
                                    (uintptr_t)made.session);
    params->inputBuffer = surface.data == NULL ? NULL : nvenc_session_add_input(made.session, &surface, true);
    return nvenc_leave(&made, params->inputBuffer == NULL ? NV_ENC_ERR_OUT_OF_MEMORY : NV_ENC_SUCCESS);
}

static NVENCSTATUS destroy_input_buffer(void *encoder, NV_ENC_INPUT_PTR buffer) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncDestroyInputBuffer", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    bool removed = nvenc_session_remove_input(made.session, buffer);
    return nvenc_leave(&made, removed ? NV_ENC_SUCCESS : NV_ENC_ERR_INVALID_PARAM);
}

static NVENCSTATUS lock_input_buffer(void *encoder, NV_ENC_LOCK_INPUT_BUFFER *params) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncLockInputBuffer", encoder, params == NULL ? NULL : &params->version,
                                           &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    nvenc_input *input = nvenc_session_input(made.session, params->inputBuffer);
    if (input == NULL || !input->own || !input->usable) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    input->usable = false;
    params->bufferDataPtr = input->surface.data;
    params->pitch = input->surface.pitch;
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

static NVENCSTATUS unlock_input_buffer(void *encoder, NV_ENC_INPUT_PTR buffer) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncUnlockInputBuffer", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    nvenc_input *input = nvenc_session_input(made.session, buffer);
    if (input == NULL || !input->own || input->usable) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    input->usable = true;
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

static NVENCSTATUS create_bitstream_buffer(void *encoder, NV_ENC_CREATE_BITSTREAM_BUFFER *params) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncCreateBitstreamBuffer", encoder,
                                           params == NULL ? NULL : &params->version, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    params->bitstreamBuffer = nvenc_session_add_output(made.session);
    return nvenc_leave(&made, params->bitstreamBuffer == NULL ? NV_ENC_ERR_OUT_OF_MEMORY : NV_ENC_SUCCESS);
}

static NVENCSTATUS destroy_bitstream_buffer(void *encoder, NV_ENC_OUTPUT_PTR buffer) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncDestroyBitstreamBuffer", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    bool removed = nvenc_session_remove_output(made.session, buffer);
    return nvenc_leave(&made, removed ? NV_ENC_SUCCESS : NV_ENC_ERR_INVALID_PARAM);
}

static NVENCSTATUS register_resource(void *encoder, NV_ENC_REGISTER_RESOURCE *params) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncRegisterResource", encoder, params == NULL ? NULL : &params->version,
                                           &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    uint32_t format = params->bufferFormat;
    if (params->resourceType != NV_ENC_INPUT_RESOURCE_TYPE_CUDADEVICEPTR || params->bufferUsage != NV_ENC_INPUT_IMAGE) {
        return nvenc_leave(&made, NV_ENC_ERR_UNIMPLEMENTED);
    }
    if (!nvenc_format_known(format) || params->pitch < nvenc_row_bytes(format, params->width)) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    nvenc_surface surface = {params->resourceToRegister, params->width, params->height, params->pitch, format};
    sim_trace("NvEncRegisterResource", "width=%u height=%u pitch=%u bufferFormat=%u", params->width, params->height,
              params->pitch, format);
    if (!sim_memory_holds(surface.data, nvenc_surface_bytes(&surface))) {
        return nvenc_leave(&made, NV_ENC_ERR_RESOURCE_REGISTER_FAILED);
    }
    params->registeredResource = nvenc_session_add_input(made.session, &surface, false);
    return nvenc_leave(&made, params->registeredResource == NULL ? NV_ENC_ERR_OUT_OF_MEMORY : NV_ENC_SUCCESS);
}

static NVENCSTATUS unregister_resource(void *encoder, NV_ENC_REGISTERED_PTR resource) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncUnregisterResource", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    bool removed = nvenc_session_remove_input(made.session, resource);
    return nvenc_leave(&made, removed ? NV_ENC_SUCCESS : NV_ENC_ERR_RESOURCE_NOT_REGISTERED);
}

static NVENCSTATUS map_resource(void *encoder, NV_ENC_MAP_INPUT_RESOURCE *params) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncMapInputResource", encoder, params == NULL ? NULL : &params->version,
                                           &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    nvenc_input *input = nvenc_session_input(made.session, params->registeredResource);
    if (input == NULL || input->own) {
        return nvenc_leave(&made, NV_ENC_ERR_RESOURCE_NOT_REGISTERED);
    }
    if (input->usable) {
        return nvenc_leave(&made, NV_ENC_ERR_MAP_FAILED);
    }
    input->usable = true;
    params->mappedResource = input;
    params->mappedBufferFmt = (NV_ENC_BUFFER_FORMAT)input->surface.format;
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

static NVENCSTATUS unmap_resource(void *encoder, NV_ENC_INPUT_PTR mapped) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncUnmapInputResource", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    nvenc_input *input = nvenc_session_input(made.session, mapped);
    if (input == NULL || input->own || !input->usable) {
        return nvenc_leave(&made, NV_ENC_ERR_RESOURCE_NOT_MAPPED);
    }
    input->usable = false;
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

/*
 * Pictures
 */

static NVENCSTATUS encode_picture(void *encoder, NV_ENC_PIC_PARAMS *params) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncEncodePicture", encoder, params == NULL ? NULL : &params->version,
                                           &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    bool ends = (params->encodePicFlags & NV_ENC_PIC_FLAG_EOS) != 0;
    status = ends ? nvenc_session_finish(made.session) : nvenc_session_encode(made.session, params, made.cut);
    sim_trace("NvEncEncodePicture",
              "frameIdx=%u inputTimeStamp=%llu encodePicFlags=%u pictureType=%u bufferFmt=%u answer=%d",
              params->frameIdx, (unsigned long long)params->inputTimeStamp, params->encodePicFlags, params->pictureType,
              params->bufferFmt, (int)status);
    return nvenc_leave(&made, status);
}

static void tell(layout_lock_bitstream *out, const nvenc_output *output) {
    out->frameIdx = output->coded;
    out->hwEncodeStatus = 0;
    out->numSlices = 1;
    out->bitstreamSizeInBytes = (uint32_t)output->bytes.size;
    out->outputTimeStamp = output->timestamp;
    out->outputDuration = output->duration;
    out->bitstreamBufferPtr = output->bytes.data;
    out->pictureType = output->type;
    out->pictureStruct = NV_ENC_PIC_STRUCT_FRAME;
    out->frameAvgQP = output->qp;
    if (nvenc_struct_version(out->version) >= 2) {
        out->frameIdxDisplay = output->display;
    }
}

static NVENCSTATUS lock_bitstream(void *encoder, NV_ENC_LOCK_BITSTREAM *raw) {
    nvenc_call made;
    NVENCSTATUS status = enter_initialized("NvEncLockBitstream", encoder, raw == NULL ? NULL : &raw->version, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    layout_lock_bitstream *params = (void *)raw;
    nvenc_output *output = nvenc_session_output(made.session, params->outputBitstream);
    if (output == NULL || output->state == NVENC_IDLE || output->state == NVENC_LOCKED) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    if (output->state == NVENC_PENDING) {
        return nvenc_leave(&made, params->doNotWait ? NV_ENC_ERR_LOCK_BUSY : NV_ENC_ERR_INVALID_CALL);
    }
    output->bytes.size = made.cut ? output->bytes.size / 2 : output->bytes.size;
    output->state = NVENC_LOCKED;
    tell(params, output);
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

static NVENCSTATUS unlock_bitstream(void *encoder, NV_ENC_OUTPUT_PTR buffer) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncUnlockBitstream", encoder, &made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    nvenc_output *output = nvenc_session_output(made.session, buffer);
    if (output == NULL || output->state != NVENC_LOCKED) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    output->state = NVENC_IDLE;
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

/*
 * Functions that are not simulated
 */

static NVENCSTATUS get_stats(void *encoder, NV_ENC_STAT *stats) {
    (void)stats;
    return unimplemented("NvEncGetEncodeStats", encoder);
}

static NVENCSTATUS register_event(void *encoder, NV_ENC_EVENT_PARAMS *params) {
    (void)params;
    return unimplemented("NvEncRegisterAsyncEvent", encoder);
}

static NVENCSTATUS unregister_event(void *encoder, NV_ENC_EVENT_PARAMS *params) {
    (void)params;
    return unimplemented("NvEncUnregisterAsyncEvent", encoder);
}

static NVENCSTATUS invalidate(void *encoder, uint64_t timestamp) {
    (void)timestamp;
    return unimplemented("NvEncInvalidateRefFrames", encoder);
}

static NVENCSTATUS create_vectors(void *encoder, NV_ENC_CREATE_MV_BUFFER *params) {
    (void)params;
    return unimplemented("NvEncCreateMVBuffer", encoder);
}

static NVENCSTATUS destroy_vectors(void *encoder, NV_ENC_OUTPUT_PTR buffer) {
    (void)buffer;
    return unimplemented("NvEncDestroyMVBuffer", encoder);
}

static NVENCSTATUS estimate_motion(void *encoder, NV_ENC_MEONLY_PARAMS *params) {
    (void)params;
    return unimplemented("NvEncRunMotionEstimationOnly", encoder);
}

static NVENCSTATUS sequence_param_ex(void *encoder, NV_ENC_INITIALIZE_PARAMS *params,
                                     NV_ENC_SEQUENCE_PARAM_PAYLOAD *payload) {
    (void)params;
    (void)payload;
    return unimplemented("NvEncGetSequenceParamEx", encoder);
}

static NVENCSTATUS restore_state(void *encoder, void *params) {
    (void)params;
    return unimplemented("NvEncRestoreEncoderState", encoder);
}

static NVENCSTATUS lookahead_picture(void *encoder, void *params) {
    (void)params;
    return unimplemented("NvEncLookaheadPicture", encoder);
}

/*
 * The library's two exported functions
 */

SIM_EXPORT NVENCSTATUS NvEncodeAPIGetMaxSupportedVersion(uint32_t *version) {
    int status = NV_ENC_SUCCESS;
    if (sim_enter("NvEncodeAPIGetMaxSupportedVersion", SIM_NO_DEVICE, &status) == SIM_STATUS) {
        return (NVENCSTATUS)status;
    }
    if (version == NULL) {
        return NV_ENC_ERR_INVALID_PTR;
    }
    *version = nvenc_max_version();
    return NV_ENC_SUCCESS;
}

static void fill_buffers(NV_ENCODE_API_FUNCTION_LIST *list) {
    list->nvEncCreateInputBuffer = create_input_buffer;
    list->nvEncDestroyInputBuffer = destroy_input_buffer;
    list->nvEncLockInputBuffer = lock_input_buffer;
    list->nvEncUnlockInputBuffer = unlock_input_buffer;
    list->nvEncCreateBitstreamBuffer = create_bitstream_buffer;
    list->nvEncDestroyBitstreamBuffer = destroy_bitstream_buffer;
    list->nvEncLockBitstream = lock_bitstream;
    list->nvEncUnlockBitstream = unlock_bitstream;
    list->nvEncRegisterResource = register_resource;
    list->nvEncUnregisterResource = unregister_resource;
    list->nvEncMapInputResource = map_resource;
    list->nvEncUnmapInputResource = unmap_resource;
    list->nvEncCreateMVBuffer = create_vectors;
    list->nvEncDestroyMVBuffer = destroy_vectors;
}

static void fill_sessions(NV_ENCODE_API_FUNCTION_LIST *list) {
    list->nvEncOpenEncodeSession = open_session;
    list->nvEncOpenEncodeSessionEx = open_session_ex;
    list->nvEncInitializeEncoder = initialize;
    list->nvEncReconfigureEncoder = reconfigure;
    list->nvEncDestroyEncoder = destroy_encoder;
    list->nvEncEncodePicture = encode_picture;
    list->nvEncSetIOCudaStreams = set_streams;
    list->nvEncGetSequenceParams = get_sequence_params;
    list->nvEncGetSequenceParamEx = sequence_param_ex;
    list->nvEncGetEncodeStats = get_stats;
    list->nvEncGetLastErrorString = last_error;
    list->nvEncRegisterAsyncEvent = register_event;
    list->nvEncUnregisterAsyncEvent = unregister_event;
    list->nvEncInvalidateRefFrames = invalidate;
    list->nvEncRunMotionEstimationOnly = estimate_motion;
    /* Interfaces 12.1 and later: the first two functions that version 11.1 has reserved. */
    NVENCSTATUS (*later[])(void *, void *) = {restore_state, lookahead_picture};
    memcpy(list->reserved2, later, sizeof later);
}

SIM_EXPORT NVENCSTATUS NvEncodeAPICreateInstance(NV_ENCODE_API_FUNCTION_LIST *list) {
    int status = NV_ENC_SUCCESS;
    if (sim_enter("NvEncodeAPICreateInstance", SIM_NO_DEVICE, &status) == SIM_STATUS) {
        return (NVENCSTATUS)status;
    }
    if (list == NULL) {
        return NV_ENC_ERR_INVALID_PTR;
    }
    if (!nvenc_knows_version(list->version)) {
        return NV_ENC_ERR_INVALID_VERSION;
    }
    nvenc_fill_queries(list);
    fill_buffers(list);
    fill_sessions(list);
    return NV_ENC_SUCCESS;
}
