/*
 * Sessions of the simulated NVENC, and the way of a picture through them.
 *
 * A picture is copied when it comes, waits until as many pictures follow as the look-ahead is deep, and then goes to
 * the encoder. Each packet goes into the buffer that has waited longest, so that buffers hold packets in coding order,
 * as with the hardware. NvEncEncodePicture returns NEED_MORE_INPUT if a call brings no packet: with B pictures for the
 * first frameIntervalP - 1 pictures, with look-ahead for lookaheadDepth more. After that, each call brings one packet:
 * SUCCESS says that the buffer which has waited longest is ready, not that all are ready.
 */
#include "deferred_work.h"
#include "nvenc.h"

#include <stdlib.h>
#include <string.h>

#define REFERENCE_SURFACES 8

static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static nvenc_session *sessions; /* under sessions_lock */

nvenc_session *nvenc_session_of(const void *handle) {
    pthread_mutex_lock(&sessions_lock);
    nvenc_session *session = sessions;
    while (session != NULL && session != handle) {
        session = session->next;
    }
    pthread_mutex_unlock(&sessions_lock);
    return session;
}

nvenc_session *nvenc_session_open(const sim_device *device, NVENCSTATUS *status) {
    if (device->engines[SIM_NVENC] == 0) {
        *status = NV_ENC_ERR_UNSUPPORTED_DEVICE;
        return NULL;
    }
    int number = sim_session_open(device, SIM_NVENC, "h264", 0, 0);
    nvenc_session *session = number < 0 ? NULL : calloc(1, sizeof *session);
    if (session == NULL) {
        *status = NV_ENC_ERR_OUT_OF_MEMORY;
        return NULL;
    }
    session->device = device;
    session->number = number;
    session->error = "";
    pthread_mutex_init(&session->lock, NULL);
    pthread_mutex_lock(&sessions_lock);
    session->next = sessions;
    sessions = session;
    pthread_mutex_unlock(&sessions_lock);
    *status = NV_ENC_SUCCESS;
    return session;
}

static void forget_pictures(nvenc_session *session) {
    while (session->pictures != NULL) {
        nvenc_picture *picture = session->pictures;
        session->pictures = picture->next;
        free(picture->payloads.data);
        free(picture);
    }
    while (session->held_first != NULL) {
        nvenc_held *held = session->held_first;
        session->held_first = held->next;
        av_frame_free(&held->frame);
        free(held);
    }
    session->held_last = NULL;
    session->held_count = 0;
}

void nvenc_session_close(nvenc_session *session) {
    pthread_mutex_lock(&sessions_lock);
    nvenc_session **place = &sessions;
    while (*place != session) {
        place = &(*place)->next;
    }
    *place = session->next;
    pthread_mutex_unlock(&sessions_lock);
    nvenc_encoder_close(session->encoder);
    forget_pictures(session);
    while (session->outputs != NULL) {
        nvenc_session_remove_output(session, session->outputs);
    }
    while (session->inputs != NULL) {
        nvenc_session_remove_input(session, session->inputs);
    }
    sim_memory_free_of((uintptr_t)session);
    sim_session_close(session->number);
    pthread_mutex_destroy(&session->lock);
    free(session);
}

/* Only now the scenario's table of sessions gets the codec and size; another session may take the place meanwhile. */
static bool describe(nvenc_session *session) {
    sim_session_close(session->number);
    session->number = sim_session_open(session->device, SIM_NVENC, nvenc_codec_name(session->settings.codec),
                                       session->settings.width, session->settings.height);
    return session->number >= 0;
}

static NVENCSTATUS fail(nvenc_session *session, NVENCSTATUS status, const char *why) {
    session->error = why;
    return status;
}

NVENCSTATUS nvenc_session_prepare(nvenc_session *session) {
    if (session->encoder != NULL) {
        return NV_ENC_SUCCESS;
    }
    session->encoder = nvenc_encoder_open(&session->settings);
    session->begins = true;
    return session->encoder != NULL ? NV_ENC_SUCCESS
                                    : fail(session, NV_ENC_ERR_INVALID_PARAM, "the encoder refuses these settings");
}

NVENCSTATUS nvenc_session_initialize(nvenc_session *session, const layout_initialize_params *params) {
    if (session->initialized) {
        return fail(session, NV_ENC_ERR_INVALID_CALL, "the encoder is initialized already");
    }
    NVENCSTATUS status = nvenc_check(session->device, params, &session->settings, &session->error);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    session->width_max = params->maxEncodeWidth != 0 ? params->maxEncodeWidth : params->encodeWidth;
    session->height_max = params->maxEncodeHeight != 0 ? params->maxEncodeHeight : params->encodeHeight;
    size_t samples = (size_t)session->width_max * session->height_max * 3 / (session->settings.chroma == 444 ? 1 : 2);
    size_t bytes = samples * (session->settings.bit_depth > 8 ? 2 : 1) * REFERENCE_SURFACES;
    if (sim_memory_alloc(session->device, bytes, SIM_DEVICE_MEMORY, (uintptr_t)session) == NULL) {
        return fail(session, NV_ENC_ERR_OUT_OF_MEMORY, "the device has no memory left for reference pictures");
    }
    if (!describe(session)) {
        return fail(session, NV_ENC_ERR_OUT_OF_MEMORY, "another session took the place");
    }
    status = nvenc_session_prepare(session);
    session->initialized = status == NV_ENC_SUCCESS;
    return status;
}

/* Settings that may not change while an encoder runs (NvEncReconfigureEncoder's documentation: the GOP structure). */
static const char *reconfigure_fault(const nvenc_session *session, const nvenc_settings *new) {
    const nvenc_settings *old = &session->settings;
    if (new->codec != old->codec || new->chroma != old->chroma || new->bit_depth != old->bit_depth) {
        return "codec, chroma format and bit depth cannot change";
    }
    if (new->config.gopLength != old->config.gopLength || new->config.frameIntervalP != old->config.frameIntervalP) {
        return "the structure of the GOP cannot change";
    }
    if (new->config.rcParams.enableLookahead != old->config.rcParams.enableLookahead ||
        new->config.rcParams.lookaheadDepth != old->config.rcParams.lookaheadDepth) {
        return "the depth of the look-ahead cannot change";
    }
    return new->width > session->width_max || new->height > session->height_max
               ? "the picture is larger than maxEncodeWidth and maxEncodeHeight"
               : NULL;
}

NVENCSTATUS nvenc_session_reconfigure(nvenc_session *session, const layout_initialize_params *params, bool force_idr) {
    layout_initialize_params whole = *params;
    layout_config kept = session->settings.config;
    if (whole.encodeConfig == NULL) {
        whole.encodeConfig = &kept;
    }
    nvenc_settings new;
    NVENCSTATUS status = nvenc_check(session->device, &whole, &new, &session->error);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    const char *fault = reconfigure_fault(session, &new);
    if (fault != NULL) {
        return fail(session, NV_ENC_ERR_INVALID_PARAM, fault);
    }
    session->force_idr = session->force_idr || force_idr;
    bool running = session->encoder != NULL && nvenc_encoder_adjust(session->encoder, &new);
    if (!running && memcmp(&new, &session->settings, sizeof new) != 0) {
        status = nvenc_session_finish(session);
    }
    session->settings = new;
    return status == NV_ENC_SUCCESS ? nvenc_session_prepare(session) : status;
}

nvenc_output *nvenc_session_add_output(nvenc_session *session) {
    nvenc_output *output = calloc(1, sizeof *output);
    if (output != NULL) {
        output->next = session->outputs;
        session->outputs = output;
    }
    return output;
}

nvenc_output *nvenc_session_output(const nvenc_session *session, const void *handle) {
    nvenc_output *output = session->outputs;
    while (output != NULL && output != handle) {
        output = output->next;
    }
    return output;
}

static void leave_queue(nvenc_session *session, const nvenc_output *output) {
    nvenc_output *before = NULL;
    for (nvenc_output *each = session->queue_first; each != NULL; before = each, each = each->next_in_queue) {
        if (each == output) {
            *(before == NULL ? &session->queue_first : &before->next_in_queue) = each->next_in_queue;
            session->queue_last = session->queue_last == each ? before : session->queue_last;
            return;
        }
    }
}

bool nvenc_session_remove_output(nvenc_session *session, const void *handle) {
    for (nvenc_output **place = &session->outputs; *place != NULL; place = &(*place)->next) {
        if (*place == handle) {
            nvenc_output *output = *place;
            leave_queue(session, output);
            *place = output->next;
            free(output->bytes.data);
            free(output);
            return true;
        }
    }
    return false;
}

nvenc_input *nvenc_session_add_input(nvenc_session *session, const nvenc_surface *surface, bool own) {
    nvenc_input *input = calloc(1, sizeof *input);
    if (input != NULL) {
        input->surface = *surface;
        input->own = own;
        input->usable = own;
        input->next = session->inputs;
        session->inputs = input;
    }
    return input;
}

nvenc_input *nvenc_session_input(const nvenc_session *session, const void *handle) {
    nvenc_input *input = session->inputs;
    while (input != NULL && input != handle) {
        input = input->next;
    }
    return input;
}

bool nvenc_session_remove_input(nvenc_session *session, const void *handle) {
    for (nvenc_input **place = &session->inputs; *place != NULL; place = &(*place)->next) {
        if (*place == handle) {
            nvenc_input *input = *place;
            *place = input->next;
            if (input->own) {
                sim_memory_free(input->surface.data);
            }
            free(input);
            return true;
        }
    }
    return false;
}

static nvenc_picture *take_picture(nvenc_session *session, int64_t pts) {
    for (nvenc_picture **place = &session->pictures; *place != NULL; place = &(*place)->next) {
        if ((*place)->pts == pts) {
            nvenc_picture *picture = *place;
            *place = picture->next;
            return picture;
        }
    }
    return NULL;
}

static nvenc_output *take_output(nvenc_session *session) {
    nvenc_output *output = session->queue_first;
    if (output != NULL) {
        leave_queue(session, output);
    }
    return output;
}

static bool repeats_headers(const nvenc_settings *settings) {
    return settings->codec == NVENC_H264 ? settings->config.encodeCodecConfig.h264Config.repeatSPSPPS
                                         : settings->config.encodeCodecConfig.hevcConfig.repeatSPSPPS;
}

static bool disables_headers(const nvenc_settings *settings) {
    return settings->codec == NVENC_H264 ? settings->config.encodeCodecConfig.h264Config.disableSPSPPS
                                         : settings->config.encodeCodecConfig.hevcConfig.disableSPSPPS;
}

/* libaom itself writes the sequence header into each key picture. */
static bool wants_headers(const nvenc_session *session, const nvenc_picture *picture, NV_ENC_PIC_TYPE type) {
    const nvenc_settings *settings = &session->settings;
    return settings->codec != NVENC_AV1 && !disables_headers(settings) &&
           (picture->with_headers || session->begins ||
            (type == NV_ENC_PIC_TYPE_IDR && repeats_headers(settings)));
}

static bool wants_delimiter(const nvenc_settings *settings) {
    return (settings->codec == NVENC_H264 && settings->config.encodeCodecConfig.h264Config.outputAUD) ||
           (settings->codec == NVENC_HEVC && settings->config.encodeCodecConfig.hevcConfig.outputAUD);
}

/* Fills the buffer that has waited longest. */
static bool deliver(nvenc_session *session, const AVPacket *packet) {
    nvenc_output *output = take_output(session);
    nvenc_picture *picture = take_picture(session, packet->pts);
    bool done = output != NULL && picture != NULL;
    if (done) {
        size_t headers_size = 0;
        const uint8_t *headers = nvenc_encoder_headers(session->encoder, &headers_size);
        output->type = nvenc_packet_type(packet);
        if (!wants_headers(session, picture, output->type)) {
            headers_size = 0;
        }
        done = nvenc_assemble(&output->bytes, session->settings.codec, packet, wants_delimiter(&session->settings),
                              headers, headers_size, &picture->payloads);
        output->bytes.size = picture->cut ? output->bytes.size / 2 : output->bytes.size;
        output->qp = nvenc_packet_qp(packet);
        output->timestamp = picture->timestamp;
        output->duration = picture->duration;
        output->display = (uint32_t)picture->pts;
        output->coded = session->coded++;
        output->state = NVENC_READY;
        session->begins = false;
        sim_session_count_frame(session->number);
    }
    if (picture != NULL) {
        free(picture->payloads.data);
        free(picture);
    }
    return done;
}

/* Takes the packets that the encoder has; returns how many, or -1. */
static int receive_all(nvenc_session *session) {
    AVPacket *packet = av_packet_alloc();
    int count = packet == NULL ? -1 : 0;
    while (count >= 0 && nvenc_encoder_receive(session->encoder, packet)) {
        count = deliver(session, packet) ? count + 1 : -1;
        av_packet_unref(packet);
    }
    av_packet_free(&packet);
    return count;
}

static bool send_held(nvenc_session *session) {
    nvenc_held *held = session->held_first;
    session->held_first = held->next;
    session->held_last = held->next == NULL ? NULL : session->held_last;
    session->held_count--;
    bool sent = nvenc_encoder_send(session->encoder, held->frame);
    av_frame_free(&held->frame);
    free(held);
    return sent;
}

NVENCSTATUS nvenc_session_finish(nvenc_session *session) {
    if (session->encoder == NULL) {
        return NV_ENC_SUCCESS;
    }
    bool done = true;
    while (done && session->held_first != NULL) {
        done = send_held(session) && receive_all(session) >= 0;
    }
    done = done && nvenc_encoder_send(session->encoder, NULL) && receive_all(session) >= 0;
    nvenc_encoder_close(session->encoder);
    session->encoder = NULL;
    return done ? NV_ENC_SUCCESS : fail(session, NV_ENC_ERR_GENERIC, "the encoder failed at the end of the stream");
}

/* The payloads of a picture: SEI messages of H.264 and HEVC, metadata of AV1. */
static unsigned payloads_of(const NV_ENC_PIC_PARAMS *params, nvenc_codec codec, const NV_ENC_SEI_PAYLOAD **first) {
    if (codec == NVENC_H264) {
        *first = params->codecPicParams.h264PicParams.seiPayloadArray;
        return params->codecPicParams.h264PicParams.seiPayloadArrayCnt;
    }
    if (codec == NVENC_HEVC) {
        *first = params->codecPicParams.hevcPicParams.seiPayloadArray;
        return params->codecPicParams.hevcPicParams.seiPayloadArrayCnt;
    }
    const layout_pic_params_av1 *av1 = (const void *)&params->codecPicParams;
    *first = av1->obuPayloadArray;
    return av1->obuPayloadArrayCnt;
}

static nvenc_picture *new_picture(nvenc_session *session, const NV_ENC_PIC_PARAMS *params, bool cut) {
    nvenc_picture *picture = calloc(1, sizeof *picture);
    if (picture == NULL) {
        return NULL;
    }
    const NV_ENC_SEI_PAYLOAD *payloads = NULL;
    unsigned count = payloads_of(params, session->settings.codec, &payloads);
    for (unsigned i = 0; payloads != NULL && i < count; i++) {
        if (!nvenc_append_payload(&picture->payloads, session->settings.codec, &payloads[i])) {
            free(picture->payloads.data);
            free(picture);
            return NULL;
        }
    }
    picture->timestamp = params->inputTimeStamp;
    picture->duration = params->inputDuration;
    picture->with_headers = (params->encodePicFlags & NV_ENC_PIC_FLAG_OUTPUT_SPSPPS) != 0;
    picture->cut = cut;
    picture->pts = session->next_pts;
    return picture;
}

static bool hold(nvenc_session *session, AVFrame *frame) {
    nvenc_held *held = calloc(1, sizeof *held);
    if (held == NULL) {
        av_frame_free(&frame);
        return false;
    }
    held->frame = frame;
    *(session->held_last == NULL ? &session->held_first : &session->held_last->next) = held;
    session->held_last = held;
    session->held_count++;
    return true;
}

static void queue_output(nvenc_session *session, nvenc_output *output) {
    output->state = NVENC_PENDING;
    output->next_in_queue = NULL;
    *(session->queue_last == NULL ? &session->queue_first : &session->queue_last->next_in_queue) = output;
    session->queue_last = output;
}

static NVENCSTATUS take(nvenc_session *session, const NV_ENC_PIC_PARAMS *params, const nvenc_input *input, bool cut) {
    sim_cuda_finish_in(session->context, session->input_stream); /* the engine waits only for this stream */
    AVFrame *frame = nvenc_frame_of(&input->surface, &session->settings);
    nvenc_picture *picture = frame == NULL ? NULL : new_picture(session, params, cut);
    if (picture == NULL) {
        av_frame_free(&frame);
        return fail(session, NV_ENC_ERR_INVALID_PARAM, "the surface or its payloads do not fit the configuration");
    }
    frame->pts = session->next_pts++;
    bool forced = (params->encodePicFlags & (NV_ENC_PIC_FLAG_FORCEIDR | NV_ENC_PIC_FLAG_FORCEINTRA)) != 0;
    frame->pict_type = forced || session->force_idr ? AV_PICTURE_TYPE_I : AV_PICTURE_TYPE_NONE;
    session->force_idr = false;
    picture->next = session->pictures;
    session->pictures = picture;
    return hold(session, frame) ? NV_ENC_SUCCESS : fail(session, NV_ENC_ERR_OUT_OF_MEMORY, "no memory");
}

/* How many pictures to hold back: the look-ahead, and the delay of B pictures coded as P (nvenc_codec.c). */
static unsigned held_depth(const nvenc_settings *settings) {
    const layout_rc_params *rate = &settings->config.rcParams;
    unsigned depth = rate->enableLookahead ? rate->lookaheadDepth : 0;
    bool delays = settings->codec != NVENC_H264 && settings->config.frameIntervalP > 1;
    return depth + (delays ? (unsigned)settings->config.frameIntervalP - 1 : 0);
}

NVENCSTATUS nvenc_session_encode(nvenc_session *session, const NV_ENC_PIC_PARAMS *params, bool cut) {
    const nvenc_input *input = nvenc_session_input(session, params->inputBuffer);
    nvenc_output *output = nvenc_session_output(session, params->outputBitstream);
    if (input == NULL || output == NULL || output->state != NVENC_IDLE) {
        return fail(session, NV_ENC_ERR_INVALID_PARAM, "an input or output buffer is unknown or still in use");
    }
    if (!input->usable) {
        return fail(session, NV_ENC_ERR_RESOURCE_NOT_MAPPED, "the input is not mapped, or locked");
    }
    NVENCSTATUS status = nvenc_session_prepare(session);
    status = status == NV_ENC_SUCCESS ? take(session, params, input, cut) : status;
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    queue_output(session, output);
    int packets = 0;
    if (session->held_count > held_depth(&session->settings)) {
        packets = send_held(session) ? receive_all(session) : -1;
    }
    sim_sleep_us(session->device->encode_picture_us);
    if (packets < 0) {
        return fail(session, NV_ENC_ERR_GENERIC, "the encoder failed");
    }
    return packets > 0 ? NV_ENC_SUCCESS : NV_ENC_ERR_NEED_MORE_INPUT;
}
