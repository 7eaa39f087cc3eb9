/*
 * The encoders behind the simulated NVENC: libavcodec's libx264, libx265 and libaom, with one thread each, so that the
 * same input gives the same bitstream. No encoder looks ahead by itself: nvenc_session.c holds back the pictures that
 * the configuration delays.
 *
 * Only H.264 codes B pictures, which delay the output. With B pictures, libx265 holds back more pictures (2 b + 4) than
 * a client of NVENC has buffers for (b + 4), and libsvtav1 returns packets whenever its threads are ready. So HEVC and
 * AV1 code P pictures if B pictures are allowed, as an encoder may, and AV1 uses libaom.
 */
#include "nvenc.h"

#include <libavutil/opt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_BYTES 512
#define GOP_MOST 100000
#define QP_DOUBLING 6.0
#define AV1_QUANTIZER_MOST 63

struct nvenc_encoder {
    AVCodecContext *context;
    nvenc_settings settings;
    nvenc_bytes sequence; /* AV1: its sequence header */
};

static const layout_rc_params *rate_of(const nvenc_settings *settings) {
    return &settings->config.rcParams;
}

static const layout_vui *vui_of(const nvenc_settings *settings) {
    return settings->codec == NVENC_H264 ? &settings->config.encodeCodecConfig.h264Config.h264VUIParameters
                                         : &settings->config.encodeCodecConfig.hevcConfig.hevcVUIParameters;
}

static bool is_lossless(const nvenc_settings *settings) {
    const layout_rc_params *rate = rate_of(settings);
    return settings->tuning == NV_ENC_TUNING_INFO_LOSSLESS && rate->rateControlMode == NV_ENC_PARAMS_RC_CONSTQP &&
           rate->constQP.qpInterP == 0;
}

/* Constant quality: NVENC's target with its 8 bits of fraction. */
static double target_quality(const layout_rc_params *rate) {
    return rate->targetQuality + rate->targetQualityLSB / 256.0;
}

static bool is_quality(const layout_rc_params *rate) {
    return rate->rateControlMode == NV_ENC_PARAMS_RC_VBR && target_quality(rate) > 0;
}

static void set_text(AVCodecContext *context, const char *name, const char *value) {
    av_opt_set(context->priv_data, name, value, 0);
}

static void set_number(AVCodecContext *context, const char *name, double value) {
    char text[64];
    snprintf(text, sizeof text, "%g", value);
    set_text(context, name, text);
}

static uint32_t idr_period(const nvenc_settings *settings) {
    uint32_t period = settings->codec == NVENC_H264   ? settings->config.encodeCodecConfig.h264Config.idrPeriod
                      : settings->codec == NVENC_HEVC ? settings->config.encodeCodecConfig.hevcConfig.idrPeriod
                                                      : settings->config.encodeCodecConfig.av1Config.idrPeriod;
    return period == 0 ? NVENC_INFINITE_GOPLENGTH : period;
}

/* The pictures from one IDR picture to the next; an I picture between them is also coded as an IDR picture. */
static unsigned gop_length(const nvenc_settings *settings) {
    uint32_t length = settings->config.gopLength;
    length = idr_period(settings) < length ? idr_period(settings) : length;
    return length < GOP_MOST ? length : GOP_MOST;
}

static int b_pictures(const nvenc_settings *settings) {
    int count = settings->config.frameIntervalP - 1;
    return settings->codec != NVENC_H264 || count < 0 || gop_length(settings) == 1 ? 0 : count;
}

/* The ratio for x264 and x265 that puts one kind of picture `difference` QP below another. */
static double ratio_of(uint32_t above, uint32_t below) {
    return pow(2.0, ((double)above - (double)below) / QP_DOUBLING);
}

static void set_bit_rates(AVCodecContext *context, const nvenc_settings *settings) {
    const layout_rc_params *rate = rate_of(settings);
    bool constant = rate->rateControlMode == NV_ENC_PARAMS_RC_CBR;
    int64_t most = constant || rate->maxBitRate == 0 ? (constant ? rate->averageBitRate : 0) : rate->maxBitRate;
    context->bit_rate = is_quality(rate) ? 0 : rate->averageBitRate;
    context->rc_max_rate = most;
    context->rc_buffer_size = (int)(rate->vbvBufferSize != 0 ? rate->vbvBufferSize : most);
    if (rate->vbvBufferSize != 0 && rate->vbvInitialDelay != 0) {
        context->rc_initial_buffer_occupancy = (int)rate->vbvInitialDelay;
    }
    if (most == 0) {
        context->rc_buffer_size = 0;
    }
}

static void set_rate_control(AVCodecContext *context, const nvenc_settings *settings) {
    const layout_rc_params *rate = rate_of(settings);
    if (rate->rateControlMode == NV_ENC_PARAMS_RC_CONSTQP) {
        set_number(context, "qp", rate->constQP.qpInterP);
        context->i_quant_factor = (float)ratio_of(rate->constQP.qpIntra, rate->constQP.qpInterP);
        context->b_quant_factor = (float)ratio_of(rate->constQP.qpInterB, rate->constQP.qpInterP);
        return;
    }
    set_bit_rates(context, settings);
    if (is_quality(rate)) {
        set_number(context, "crf", target_quality(rate));
    }
    if (rate->enableMinQP) {
        context->qmin = (int)rate->minQP.qpInterP;
    }
    if (rate->enableMaxQP) {
        context->qmax = (int)rate->maxQP.qpInterP;
    }
}

static void set_colours(AVCodecContext *context, const nvenc_settings *settings) {
    if (settings->codec == NVENC_AV1) {
        const layout_av1 *av1 = &settings->config.encodeCodecConfig.av1Config;
        context->color_primaries = av1->colorPrimaries;
        context->color_trc = av1->transferCharacteristics;
        context->colorspace = av1->matrixCoefficients;
        context->color_range = av1->colorRange ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
        return;
    }
    const layout_vui *vui = vui_of(settings);
    if (vui->videoSignalTypePresentFlag) {
        context->color_range = vui->videoFullRangeFlag ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    }
    if (vui->colourDescriptionPresentFlag) {
        context->color_primaries = vui->colourPrimaries;
        context->color_trc = vui->transferCharacteristics;
        context->colorspace = vui->colourMatrix;
    }
    if (vui->chromaSampleLocationFlag) {
        context->chroma_sample_location = (enum AVChromaLocation)(vui->chromaSampleLocationTop + 1);
    }
}

static enum AVPixelFormat pixel_format(const nvenc_settings *settings) {
    bool deep = settings->bit_depth > 8;
    switch (settings->chroma) {
    case 420:
        return deep ? AV_PIX_FMT_YUV420P10LE : AV_PIX_FMT_YUV420P;
    case 422:
        return deep ? AV_PIX_FMT_YUV422P10LE : AV_PIX_FMT_YUV422P;
    default:
        return deep ? AV_PIX_FMT_YUV444P10LE : AV_PIX_FMT_YUV444P;
    }
}

/* NVENC's presets are far faster than these encoders' of the same name: P1 to P7 are ultrafast to medium here. */
static const char *software_preset(unsigned preset) {
    static const char *const names[] = {"ultrafast", "superfast", "veryfast", "veryfast", "faster", "fast", "medium"};
    return names[preset - 1];
}

static void set_x264(AVCodecContext *context, const nvenc_settings *settings) {
    const layout_h264 *h264 = &settings->config.encodeCodecConfig.h264Config;
    char options[OPTION_BYTES];
    snprintf(options, sizeof options, "rc-lookahead=0:sync-lookahead=0:mbtree=0:b-adapt=0:scenecut=0:b-pyramid=%s:%s%s",
             h264->useBFramesAsRef != 0 ? "strict" : "none", "force-cfr=1",
             settings->config.rcParams.rateControlMode == NV_ENC_PARAMS_RC_CBR && h264->enableFillerDataInsertion
                 ? ":nal-hrd=cbr"
                 : "");
    set_text(context, "preset", software_preset(settings->preset));
    set_text(context, "x264-params", options);
    set_text(context, "forced-idr", "1");
    if (h264->level != NV_ENC_LEVEL_AUTOSELECT) {
        context->level = (int)h264->level;
    }
    if (settings->config.rcParams.enableAQ == 0) {
        set_text(context, "aq-mode", "none");
    }
}

static void set_x265(AVCodecContext *context, const nvenc_settings *settings) {
    const layout_rc_params *rate = rate_of(settings);
    char options[OPTION_BYTES];
    int length = snprintf(options, sizeof options,
                          "log-level=none:info=0:pools=none:frame-threads=1:wpp=0:pmode=0:pme=0:b-adapt=0:scenecut=0:"
                          "rc-lookahead=0:lookahead-slices=1:bframes=0:open-gop=0:cutree=0:keyint=%u:min-keyint=1:"
                          "lossless=%d",
                          gop_length(settings), is_lossless(settings));
    const layout_hevc *hevc = &settings->config.encodeCodecConfig.hevcConfig;
    if (hevc->level != NV_ENC_LEVEL_AUTOSELECT) {
        length += snprintf(options + length, sizeof options - (size_t)length, ":level-idc=%u:high-tier=%u",
                           hevc->level / 3, hevc->tier);
    }
    if (rate->rateControlMode == NV_ENC_PARAMS_RC_CONSTQP) {
        snprintf(options + length, sizeof options - (size_t)length, ":qp=%u:ipratio=%.4f", rate->constQP.qpInterP,
                 ratio_of(rate->constQP.qpInterP, rate->constQP.qpIntra));
    }
    set_text(context, "preset", software_preset(settings->preset));
    set_text(context, "x265-params", options);
    set_text(context, "forced-idr", "1");
}

static void set_aom(AVCodecContext *context, const nvenc_settings *settings) {
    const layout_rc_params *rate = rate_of(settings);
    set_text(context, "usage", "realtime");
    set_number(context, "cpu-used", 11 - settings->preset > 8 ? 8 : 11 - settings->preset);
    set_number(context, "lag-in-frames", 0);
    set_text(context, "error-resilience", "0");
    set_text(context, "row-mt", "0");
    context->keyint_min = (int)gop_length(settings);
    if (rate->rateControlMode == NV_ENC_PARAMS_RC_CONSTQP) {
        set_number(context, "crf", rate->constQP.qpInterP / 4);
        context->qmin = context->qmax = (int)(rate->constQP.qpInterP / 4);
    } else if (is_quality(rate)) {
        set_number(context, "crf", target_quality(rate));
    } else {
        /* Real-time libaom keeps to a rate only if the rate is constant. */
        context->bit_rate = context->rc_min_rate = context->rc_max_rate = rate->averageBitRate;
        context->rc_buffer_size = (int)(rate->vbvBufferSize != 0 ? rate->vbvBufferSize : rate->averageBitRate);
        context->qmax = AV1_QUANTIZER_MOST;
    }
    if (is_lossless(settings)) {
        set_text(context, "aom-params", "lossless=1");
    }
}

static void set_up(AVCodecContext *context, const nvenc_settings *settings) {
    context->width = (int)settings->width;
    context->height = (int)settings->height;
    context->pix_fmt = pixel_format(settings);
    context->time_base = (AVRational){(int)settings->rate_den, (int)settings->rate_num};
    context->framerate = (AVRational){(int)settings->rate_num, (int)settings->rate_den};
    context->gop_size = (int)gop_length(settings);
    context->max_b_frames = b_pictures(settings);
    context->thread_count = 1;
    context->flags |= AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_CLOSED_GOP;
    set_colours(context, settings);
    if (settings->codec == NVENC_AV1) {
        set_aom(context, settings);
        return;
    }
    set_rate_control(context, settings);
    if (settings->codec == NVENC_H264) {
        set_x264(context, settings);
    } else {
        set_x265(context, settings);
    }
}

static AVCodecContext *open_context(const nvenc_settings *settings) {
    static const char *const names[] = {"libx264", "libx265", "libaom-av1"};
    const AVCodec *codec = avcodec_find_encoder_by_name(names[settings->codec]);
    AVCodecContext *context = codec == NULL ? NULL : avcodec_alloc_context3(codec);
    if (context != NULL) {
        set_up(context, settings);
        if (avcodec_open2(context, codec, NULL) != 0) {
            avcodec_free_context(&context);
        }
    }
    return context;
}

static AVFrame *black_picture(const nvenc_settings *settings) {
    AVFrame *frame = av_frame_alloc();
    if (frame == NULL) {
        return NULL;
    }
    frame->format = pixel_format(settings);
    frame->width = (int)settings->width;
    frame->height = (int)settings->height;
    if (av_frame_get_buffer(frame, 0) != 0) {
        av_frame_free(&frame);
        return NULL;
    }
    for (int plane = 0; plane < 3; plane++) {
        size_t rows = (size_t)(plane != 0 && settings->chroma == 420 ? (frame->height + 1) / 2 : frame->height);
        memset(frame->data[plane], 0, rows * (size_t)frame->linesize[plane]);
    }
    frame->pts = 0;
    return frame;
}

/* libaom gives its sequence header only with the first packet, so a second such encoder codes one picture. */
static bool find_sequence(nvenc_encoder *encoder) {
    AVCodecContext *context = open_context(&encoder->settings);
    AVFrame *frame = black_picture(&encoder->settings);
    AVPacket *packet = av_packet_alloc();
    bool done = context != NULL && frame != NULL && packet != NULL && avcodec_send_frame(context, frame) == 0 &&
                avcodec_receive_packet(context, packet) == 0 &&
                nvenc_append_sequence_header(&encoder->sequence, packet);
    av_packet_free(&packet);
    av_frame_free(&frame);
    avcodec_free_context(&context);
    return done;
}

nvenc_encoder *nvenc_encoder_open(const nvenc_settings *settings) {
    nvenc_encoder *encoder = calloc(1, sizeof *encoder);
    if (encoder == NULL) {
        return NULL;
    }
    av_log_set_level(AV_LOG_QUIET);
    encoder->settings = *settings;
    encoder->context = open_context(settings);
    if (encoder->context == NULL || (settings->codec == NVENC_AV1 && !find_sequence(encoder))) {
        nvenc_encoder_close(encoder);
        return NULL;
    }
    return encoder;
}

void nvenc_encoder_close(nvenc_encoder *encoder) {
    if (encoder != NULL) {
        avcodec_free_context(&encoder->context);
        free(encoder->sequence.data);
        free(encoder);
    }
}

bool nvenc_encoder_send(nvenc_encoder *encoder, const AVFrame *frame) {
    return avcodec_send_frame(encoder->context, frame) == 0;
}

bool nvenc_encoder_receive(nvenc_encoder *encoder, AVPacket *packet) {
    return avcodec_receive_packet(encoder->context, packet) == 0;
}

/* Only libx264 accepts new rates while it runs, and only in the mode in which it began. */
bool nvenc_encoder_adjust(nvenc_encoder *encoder, const nvenc_settings *settings) {
    nvenc_settings allowed = encoder->settings;
    layout_rc_params *old = &allowed.config.rcParams;
    const layout_rc_params *new = rate_of(settings);
    bool same_mode = old->rateControlMode == new->rateControlMode && is_quality(old) == is_quality(new) &&
                     (old->maxBitRate == 0) == (new->maxBitRate == 0);
    if (settings->codec != NVENC_H264 || !same_mode || old->rateControlMode == NV_ENC_PARAMS_RC_CONSTQP) {
        return false;
    }
    *old = *new;
    if (memcmp(&allowed, settings, sizeof allowed) != 0) {
        return false;
    }
    encoder->settings = *settings;
    set_bit_rates(encoder->context, settings);
    if (is_quality(new)) {
        set_number(encoder->context, "crf", target_quality(new));
    }
    return true;
}

const uint8_t *nvenc_encoder_headers(const nvenc_encoder *encoder, size_t *size) {
    bool av1 = encoder->settings.codec == NVENC_AV1;
    *size = av1 ? encoder->sequence.size : (size_t)encoder->context->extradata_size;
    return av1 ? encoder->sequence.data : encoder->context->extradata;
}

NV_ENC_PIC_TYPE nvenc_packet_type(const AVPacket *packet) {
    if ((packet->flags & AV_PKT_FLAG_KEY) != 0) {
        return NV_ENC_PIC_TYPE_IDR;
    }
    size_t size = 0;
    const uint8_t *told = av_packet_get_side_data(packet, AV_PKT_DATA_QUALITY_STATS, &size);
    if (told == NULL || size < 5) {
        return NV_ENC_PIC_TYPE_P;
    }
    return told[4] == AV_PICTURE_TYPE_B   ? NV_ENC_PIC_TYPE_B
           : told[4] == AV_PICTURE_TYPE_I ? NV_ENC_PIC_TYPE_I
                                          : NV_ENC_PIC_TYPE_P;
}

uint32_t nvenc_packet_qp(const AVPacket *packet) {
    size_t size = 0;
    const uint8_t *told = av_packet_get_side_data(packet, AV_PKT_DATA_QUALITY_STATS, &size);
    if (told == NULL || size < 4) {
        return 0;
    }
    uint32_t lambda = (uint32_t)told[0] | (uint32_t)told[1] << 8 | (uint32_t)told[2] << 16 | (uint32_t)told[3] << 24;
    return lambda / FF_QP2LAMBDA;
}
