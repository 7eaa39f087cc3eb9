/*
 * The parser of the simulated libnvcuvid: splits a stream into access units, lets libavcodec decode each, and makes
 * callbacks in decode order and in display order.
 *
 * libavcodec reorders, so pictures come in the order and with the delay that the stream's own parameters state. The
 * simulated parser also imitates the observed differences between a real parser and software: see README.md, "As on an
 * H200".
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <libavcodec/avcodec.h>
#include <libavutil/pixdesc.h>
#include <stdlib.h>
#include <string.h>

#include "nvcuvid.h"

#define PICTURES_MOST 128
#define SURFACES_MOST 64
#define CALLBACK_FAILED 1 /* CUDA_ERROR_INVALID_VALUE */
#define NO_TIMESTAMP AV_NOPTS_VALUE

/* An ordered list of pictures; the parser's lists are short. */
typedef struct picture_list {
    picture *entries[PICTURES_MOST];
    int count;
} picture_list;

typedef struct parser {
    CUVIDPARSERPARAMS about;
    const sim_device *device;
    AVCodecContext *codec;
    AVCodecContext *splitter_codec;
    AVCodecParserContext *splitter; /* NULL if packets are whole pictures */
    bool has_pending;               /* the splitter has not seen the end of an access unit */
    CUVIDEOFORMAT format;
    bool has_format;
    int surfaces;
    picture_list known;    /* pictures that libavcodec, the display or a surface still needs, in decode order */
    picture_list captured; /* pictures that libavcodec began in the current access unit */
    picture_list waiting;  /* pictures that wait to be displayed, in display order */
    picture_list leading;  /* pictures made for RASL pictures after a start at a CRA picture */
    int64_t unit_timestamp;
    int64_t last_timestamp; /* of the last access unit */
    int64_t shown_timestamp; /* of the last access unit with a shown picture */
    bool is_starting; /* nothing was decoded since the start or the last end of stream */
    picture *begun;   /* the last picture of the current access unit */
    picture *start;   /* the CRA picture at which decoding began */
    int status;
} parser;

/*
 * Lists
 */

static bool append(picture_list *list, picture *each) {
    if (list->count == PICTURES_MOST) {
        return false;
    }
    list->entries[list->count++] = each;
    return true;
}

static picture *take_first(picture_list *list) {
    picture *first = list->entries[0];
    list->count--;
    memmove(&list->entries[0], &list->entries[1], (size_t)list->count * sizeof first);
    return first;
}

/*
 * The contents of an access unit
 */

/* Finds the next NAL unit of Annex B; NULL at the end. */
const uint8_t *nal_next(const uint8_t *place, const uint8_t *end) {
    for (; place + 3 < end; place++) {
        if (place[0] == 0 && place[1] == 0 && place[2] == 1) {
            return place + 3;
        }
    }
    return NULL;
}

int nal_type(cudaVideoCodec codec, const uint8_t *nal) {
    return codec == cudaVideoCodec_H264 ? nal[0] & 0x1F : nal[0] >> 1 & 0x3F;
}

static bool holds_nal(cudaVideoCodec codec, const uint8_t *data, int bytes, int type) {
    const uint8_t *end = data + bytes;
    for (const uint8_t *nal = nal_next(data, end); nal != NULL; nal = nal_next(nal, end)) {
        if (nal_type(codec, nal) == type) {
            return true;
        }
    }
    return false;
}

enum { H264_SPS = 7, HEVC_RADL_N = 6, HEVC_RADL_R = 7, HEVC_RASL_N = 8, HEVC_RASL_R = 9, HEVC_CRA = 21, HEVC_LAST_SLICE = 31 };

/* The type of the first slice of an HEVC access unit; -1 if there is no slice. */
static int hevc_slice_type(const uint8_t *data, int bytes) {
    const uint8_t *end = data + bytes;
    for (const uint8_t *nal = nal_next(data, end); nal != NULL; nal = nal_next(nal, end)) {
        int type = nal_type(cudaVideoCodec_HEVC, nal);
        if (type <= HEVC_LAST_SLICE) {
            return type;
        }
    }
    return -1;
}

/*
 * Pictures that libavcodec begins
 */

static picture *known_with(const parser *each, const AVFrame *frame) {
    for (int number = 0; number < each->known.count; number++) {
        if (each->known.entries[number]->frame->buf[0]->data == frame->buf[0]->data) {
            return each->known.entries[number];
        }
    }
    return NULL;
}

static picture *add_picture(parser *each, AVFrame *frame, int64_t timestamp) {
    picture *made = picture_new(frame, timestamp);
    if (made == NULL || !append(&each->known, made)) {
        picture_drop(made);
        return NULL;
    }
    made->is_listed = true;
    made->surface = -1;
    return made;
}

/* libavcodec takes a buffer for each picture that it begins, in decode order; it is filled when the call returns. */
static int capture_buffer(AVCodecContext *codec, AVFrame *frame, int flags) {
    parser *each = codec->opaque;
    int said = avcodec_default_get_buffer2(codec, frame, flags);
    if (said >= 0) {
        picture *made = add_picture(each, av_frame_clone(frame), each->unit_timestamp);
        if (made != NULL && append(&each->captured, made)) {
            made->is_waiting = true; /* keeps the picture for its decode callback */
        }
    }
    return said;
}

/*
 * libavcodec also takes buffers for missing references: for H.264 before the picture itself, for HEVC and MPEG-2 after
 * it. VP8 and VP9 have several pictures in a packet, and no buffers for missing references.
 */
static void keep_own_pictures(parser *each) {
    picture_list *captured = &each->captured;
    bool has_several = each->about.CodecType == cudaVideoCodec_VP9 || each->about.CodecType == cudaVideoCodec_VP8;
    if (captured->count > 1 && !has_several) {
        bool is_last = each->about.CodecType == cudaVideoCodec_H264;
        picture *own = captured->entries[is_last ? captured->count - 1 : 0];
        for (int number = 0; number < captured->count; number++) {
            captured->entries[number]->is_waiting = captured->entries[number] == own;
        }
        captured->entries[0] = own;
        captured->count = 1;
    }
}

static bool is_needed(const picture *each) {
    return each->is_waiting || av_buffer_get_ref_count(each->frame->buf[0]) > 1;
}

/* Forgets pictures that are no longer references and need not be shown. */
static void forget_unneeded(parser *each) {
    int kept = 0;
    for (int number = 0; number < each->known.count; number++) {
        picture *one = each->known.entries[number];
        if (is_needed(one)) {
            each->known.entries[kept++] = one;
        } else {
            one->is_listed = false;
            picture_drop(one);
        }
    }
    each->known.count = kept;
}

/*
 * Format
 */

static unsigned aligned(int value, int step) {
    return (unsigned)((value + step - 1) / step * step);
}

static int dpb_surfaces(const parser *each) {
    switch (each->about.CodecType) {
    case cudaVideoCodec_H264: {
        int pictures = each->codec->refs > each->codec->has_b_frames ? each->codec->refs : each->codec->has_b_frames;
        return pictures + 4 < 20 ? pictures + 4 : 20;
    }
    case cudaVideoCodec_HEVC:
    case cudaVideoCodec_VP9:
    case cudaVideoCodec_AV1:
        return 10;
    case cudaVideoCodec_JPEG:
        return 1;
    default:
        return 4;
    }
}

static cudaVideoChromaFormat chroma_of(const AVPixFmtDescriptor *about) {
    if (about->nb_components < 3) {
        return cudaVideoChromaFormat_Monochrome;
    }
    if (about->log2_chroma_w == 0) {
        return cudaVideoChromaFormat_444;
    }
    return about->log2_chroma_h == 0 ? cudaVideoChromaFormat_422 : cudaVideoChromaFormat_420;
}

static void describe_signal(const AVCodecContext *codec, CUVIDEOFORMAT *format) {
    format->frame_rate.numerator = (unsigned)codec->framerate.num;
    format->frame_rate.denominator = (unsigned)codec->framerate.den;
    format->bitrate = (unsigned)codec->bit_rate;
    AVRational sample = codec->sample_aspect_ratio.num > 0 ? codec->sample_aspect_ratio : (AVRational){1, 1};
    av_reduce(&format->display_aspect_ratio.x, &format->display_aspect_ratio.y,
              (int64_t)format->display_area.right * sample.num, (int64_t)format->display_area.bottom * sample.den,
              INT32_MAX);
    format->video_signal_description.video_format = 5;
    format->video_signal_description.video_full_range_flag = codec->color_range == AVCOL_RANGE_JPEG;
    format->video_signal_description.color_primaries = (unsigned char)codec->color_primaries;
    format->video_signal_description.transfer_characteristics = (unsigned char)codec->color_trc;
    format->video_signal_description.matrix_coefficients = (unsigned char)codec->colorspace;
}

static CUVIDEOFORMAT format_of(const parser *each, const picture *shown) {
    const AVFrame *frame = shown->frame;
    const AVPixFmtDescriptor *about = av_pix_fmt_desc_get(frame->format);
    bool has_blocks = each->about.CodecType == cudaVideoCodec_MPEG2 || each->about.CodecType == cudaVideoCodec_H264;
    int step = has_blocks ? 16 : 8;
    CUVIDEOFORMAT format = {.codec = each->about.CodecType,
                            .progressive_sequence = each->codec->field_order <= AV_FIELD_PROGRESSIVE,
                            .bit_depth_luma_minus8 = (unsigned char)(about->comp[0].depth - 8),
                            .bit_depth_chroma_minus8 = (unsigned char)(about->comp[0].depth - 8),
                            .min_num_decode_surfaces = (unsigned char)dpb_surfaces(each),
                            .coded_width = aligned(frame->width, step),
                            .coded_height = aligned(frame->height, step),
                            .chroma_format = chroma_of(about)};
    format.display_area.right = each->codec->width;
    format.display_area.bottom = each->codec->height;
    describe_signal(each->codec, &format);
    return format;
}

static bool is_same_sequence(const CUVIDEOFORMAT *one, const CUVIDEOFORMAT *other) {
    return one->coded_width == other->coded_width && one->coded_height == other->coded_height &&
           one->display_area.right == other->display_area.right &&
           one->display_area.bottom == other->display_area.bottom && one->chroma_format == other->chroma_format &&
           one->bit_depth_luma_minus8 == other->bit_depth_luma_minus8 &&
           one->min_num_decode_surfaces == other->min_num_decode_surfaces;
}

/*
 * Callbacks. A callback may throw a C++ exception through these functions, so nothing is locked or half changed
 * meanwhile.
 */

static void show_first(parser *each) {
    picture *shown = take_first(&each->waiting);
    shown->is_waiting = false;
    if (shown->is_left_out || each->status != SUCCESS) {
        return;
    }
    CUVIDPARSERDISPINFO about = {.picture_index = shown->surface,
                                 .progressive_frame = shown->is_progressive,
                                 .top_field_first = shown->is_top_field_first,
                                 .repeat_first_field = shown->repeated_fields,
                                 .timestamp = shown->timestamp};
    if (each->about.pfnDisplayPicture != NULL && each->about.pfnDisplayPicture(each->about.pUserData, &about) == 0) {
        each->status = CALLBACK_FAILED;
    }
}

static void show_down_to(parser *each, int left) {
    while (each->waiting.count > left) {
        show_first(each);
    }
}

static void tell_sequence(parser *each, const CUVIDEOFORMAT *format) {
    if (each->has_format && is_same_sequence(&each->format, format)) {
        return;
    }
    show_down_to(each, 0);
    each->format = *format;
    each->has_format = true;
    sim_trace("cuvidParseVideoData", "sequence=%ux%u display=%dx%d chroma=%d depth=%d surfaces=%d",
              format->coded_width, format->coded_height, format->display_area.right, format->display_area.bottom,
              (int)format->chroma_format, format->bit_depth_luma_minus8 + 8, format->min_num_decode_surfaces);
    CUVIDEOFORMAT given = *format;
    int said = each->about.pfnSequenceCallback == NULL
                   ? 1
                   : each->about.pfnSequenceCallback(each->about.pUserData, &given);
    if (said == 0) {
        each->status = CALLBACK_FAILED;
        each->has_format = false;
    }
    int surfaces = said > 1 ? said : (int)each->about.ulMaxNumDecodeSurfaces;
    each->surfaces = surfaces < 1 ? 1 : surfaces > SURFACES_MOST ? SURFACES_MOST : surfaces;
}

/* A surface without a picture that is still needed; -1 if there is none. */
static int vacant_surface(const parser *each) {
    for (int surface = 0; surface < each->surfaces; surface++) {
        bool is_taken = false;
        for (int number = 0; number < each->known.count; number++) {
            is_taken = is_taken || each->known.entries[number]->surface == surface;
        }
        if (!is_taken) {
            return surface;
        }
    }
    return -1;
}

/* The surface of the oldest picture that need not be displayed: the samples stay in libavcodec's memory. */
static int oldest_surface(const parser *each) {
    for (int number = 0; number < each->known.count; number++) {
        picture *one = each->known.entries[number];
        if (one->surface >= 0 && one->surface < each->surfaces && !one->is_waiting) {
            int surface = one->surface;
            one->surface = -1;
            return surface;
        }
    }
    return 0;
}

static int take_surface(parser *each) {
    forget_unneeded(each);
    int surface = vacant_surface(each);
    while (surface < 0 && each->waiting.count > 0) {
        show_first(each);
        forget_unneeded(each);
        surface = vacant_surface(each);
    }
    return surface < 0 ? oldest_surface(each) : surface;
}

/* Reports the messages of a picture's access unit, before the picture's decode callback. */
static void tell_sei(parser *each, int surface, const uint8_t *data, int bytes) {
    sei_callback callback = NULL;
    memcpy(&callback, &each->about.pvReserved2[0], sizeof callback);
    sei_messages all;
    if (callback == NULL || bytes == 0) {
        return;
    }
    if (sei_read(each->about.CodecType, data, (size_t)bytes, &all)) {
        sei_message_info about = {
            .data = all.data, .messages = all.messages, .count = all.count, .picture_index = (unsigned)surface};
        callback(each->about.pUserData, &about);
    }
    free(all.data);
}

static void decode_picture(parser *each, picture *shown, const uint8_t *data, int bytes) {
    static const unsigned no_offset = 0;
    CUVIDEOFORMAT format = format_of(each, shown);
    shown->is_waiting = true; /* keeps it while room is made */
    tell_sequence(each, &format);
    shown->surface = each->status == SUCCESS ? take_surface(each) : 0;
    shown->is_waiting = false;
    if (each->status != SUCCESS || each->about.pfnDecodePicture == NULL) {
        return;
    }
    CUVIDPICPARAMS parameters = {.PicWidthInMbs = (int)(format.coded_width + 15) / 16,
                                 .FrameHeightInMbs = (int)(format.coded_height + 15) / 16,
                                 .CurrPicIdx = shown->surface,
                                 .nBitstreamDataLen = (unsigned)bytes,
                                 .pBitstreamData = data,
                                 .nNumSlices = 1,
                                 .pSliceDataOffsets = &no_offset,
                                 .ref_pic_flag = 1,
                                 .intra_pic_flag = shown->frame->key_frame};
    tell_sei(each, shown->surface, data, bytes);
    picture_hide(&parameters, shown);
    if (each->about.pfnDecodePicture(each->about.pUserData, &parameters) == 0) {
        each->status = CALLBACK_FAILED;
    }
}

/*
 * Decoding
 */

/* A picture that libavcodec shows: one begun earlier, or a new one (dav1d has its own buffers). */
static void queue_output(parser *each, AVFrame *frame, const uint8_t *data, int bytes) {
    picture *shown = known_with(each, frame);
    if (shown == NULL) {
        shown = add_picture(each, av_frame_clone(frame), frame->pts);
    }
    if (shown == NULL) {
        return;
    }
    if (shown->surface < 0) {
        decode_picture(each, shown, data, bytes);
    }
    shown->is_progressive = !frame->interlaced_frame;
    shown->is_top_field_first = frame->top_field_first;
    shown->repeated_fields = frame->repeat_pict;
    shown->is_corrupt = shown->is_corrupt || frame->decode_error_flags != 0;
    if (!shown->is_left_out && append(&each->waiting, shown)) {
        shown->is_waiting = true;
    }
}

static void tell_captured(parser *each, const uint8_t *data, int bytes) {
    keep_own_pictures(each);
    while (each->captured.count > 0 && each->status == SUCCESS) {
        each->begun = take_first(&each->captured);
        decode_picture(each, each->begun, data, bytes);
    }
    each->captured.count = 0;
}

/* VP9: an H200 gave each picture the time of the preceding shown picture, and the first picture its own time. */
static void set_vp9_time(parser *each, const AVFrame *frame) {
    picture *shown = known_with(each, frame);
    if (shown != NULL && each->about.CodecType == cudaVideoCodec_VP9) {
        shown->timestamp = each->shown_timestamp == NO_TIMESTAMP ? each->unit_timestamp : each->shown_timestamp;
        each->shown_timestamp = each->unit_timestamp;
    }
}

/* Takes the frames that libavcodec has ready. All frames of a packet are taken before any callback. */
static void take_outputs(parser *each, const uint8_t *data, int bytes) {
    AVFrame *ready[PICTURES_MOST];
    int count = 0;
    AVFrame *frame = av_frame_alloc();
    while (frame != NULL && count < PICTURES_MOST && avcodec_receive_frame(each->codec, frame) >= 0) {
        set_vp9_time(each, frame);
        ready[count++] = frame;
        frame = av_frame_alloc();
    }
    av_frame_free(&frame);
    tell_captured(each, data, bytes);
    for (int number = 0; number < count; number++) {
        if (each->status == SUCCESS) {
            queue_output(each, ready[number], data, bytes);
        }
        av_frame_free(&ready[number]);
    }
}

static void send_unit(parser *each, const uint8_t *data, int bytes) {
    AVPacket *packet = av_packet_alloc();
    if (packet == NULL || av_new_packet(packet, bytes) < 0) {
        av_packet_free(&packet);
        each->status = OUT_OF_MEMORY;
        return;
    }
    memcpy(packet->data, data, (size_t)bytes);
    packet->pts = each->unit_timestamp;
    int said = avcodec_send_packet(each->codec, packet);
    av_packet_free(&packet);
    if (said < 0) {
        sim_trace("cuvidParseVideoData", "damaged=%d", bytes);
    }
    take_outputs(each, data, bytes);
}

/* Makes libavcodec return all frames that it holds back, and prepares it for another sequence. */
static void drain(parser *each) {
    avcodec_send_packet(each->codec, NULL);
    take_outputs(each, NULL, 0);
    avcodec_flush_buffers(each->codec);
}

/*
 * Starts at a CRA picture: an H200 showed the RASL pictures, which lack their references, and did not show the CRA
 * picture.
 */

static void make_leading(parser *each, const uint8_t *data, int bytes) {
    AVFrame *grey = av_frame_alloc();
    grey->format = each->start->frame->format;
    grey->width = each->start->frame->width;
    grey->height = each->start->frame->height;
    int depth = av_pix_fmt_desc_get(grey->format)->comp[0].depth;
    if (av_frame_get_buffer(grey, 0) < 0) {
        av_frame_free(&grey);
        return;
    }
    for (int plane = 0; plane < 3 && grey->buf[plane] != NULL; plane++) {
        for (size_t place = 0; place + 1 < grey->buf[plane]->size; place += 2) {
            uint16_t value = depth > 8 ? (uint16_t)(1u << (depth - 1)) : 0x8080;
            memcpy(grey->buf[plane]->data + place, &value, sizeof value);
        }
    }
    picture *made = add_picture(each, grey, each->unit_timestamp);
    if (made != NULL && append(&each->leading, made)) {
        decode_picture(each, made, data, bytes);
        made->is_waiting = true;
        each->start->is_left_out = true;
    }
}

/* They are ordered by their times: nothing else is known of them. */
static void queue_leading(parser *each) {
    while (each->leading.count > 0) {
        int first = 0;
        for (int number = 1; number < each->leading.count; number++) {
            first = each->leading.entries[number]->timestamp < each->leading.entries[first]->timestamp ? number : first;
        }
        append(&each->waiting, each->leading.entries[first]);
        each->leading.entries[first] = each->leading.entries[--each->leading.count];
    }
}

static bool is_rasl(int type) {
    return type == HEVC_RASL_N || type == HEVC_RASL_R;
}

static bool is_radl(int type) {
    return type == HEVC_RADL_N || type == HEVC_RADL_R;
}

static void forget_start(parser *each) {
    queue_leading(each);
    picture_drop(each->start);
    each->start = NULL;
}

/* After the first access unit: remembers the CRA picture at which decoding began. */
static void note_start(parser *each, const uint8_t *data, int bytes) {
    bool is_cra = each->about.CodecType == cudaVideoCodec_HEVC && hevc_slice_type(data, bytes) == HEVC_CRA;
    if (each->is_starting && is_cra && each->begun != NULL) {
        each->start = picture_hold(each->begun);
    }
    each->is_starting = false;
}

/*
 * Access units
 */

/* After a start or an end of stream, H.264 slices wait for a sequence parameter set. */
static bool lacks_parameters(const parser *each, const uint8_t *data, int bytes) {
    return each->is_starting && each->about.CodecType == cudaVideoCodec_H264 &&
           !holds_nal(cudaVideoCodec_H264, data, bytes, H264_SPS);
}

/* If the splitter, which reads ahead of libavcodec, sees a new size, the sequence before it ends. */
static bool begins_other_size(const parser *each) {
    const AVCodecParserContext *splitter = each->splitter;
    return each->has_format && splitter != NULL && splitter->key_frame == 1 && splitter->width > 0 &&
           (splitter->width != each->format.display_area.right || splitter->height != each->format.display_area.bottom);
}

static void take_unit(parser *each, const uint8_t *data, int bytes, int64_t timestamp) {
    if (bytes == 0 || each->status != SUCCESS) {
        return;
    }
    if (lacks_parameters(each, data, bytes)) {
        sim_trace("cuvidParseVideoData", "without-parameters=%d", bytes);
        return;
    }
    each->unit_timestamp = timestamp;
    int type = each->start == NULL ? -1 : hevc_slice_type(data, bytes);
    if (is_rasl(type)) {
        make_leading(each, data, bytes);
        return;
    }
    if (!is_radl(type)) {
        forget_start(each); /* the leading pictures have ended: those of a later CRA picture have their references */
    }
    if (begins_other_size(each)) {
        drain(each);
    }
    each->unit_timestamp = timestamp;
    each->begun = NULL;
    send_unit(each, data, bytes);
    note_start(each, data, bytes);
    each->last_timestamp = timestamp;
    show_down_to(each, (int)each->about.ulMaxDisplayDelay);
    forget_unneeded(each);
}

static void open_splitter(parser *each) {
    if (each->splitter != NULL) {
        av_parser_close(each->splitter);
    }
    cudaVideoCodec codec = each->about.CodecType;
    bool is_split = codec == cudaVideoCodec_H264 || codec == cudaVideoCodec_HEVC || codec == cudaVideoCodec_MPEG2;
    each->splitter = is_split ? av_parser_init((int)each->codec->codec_id) : NULL;
    each->has_pending = false;
}

static void split(parser *each, const uint8_t *data, int bytes, int64_t timestamp) {
    uint8_t *unit = NULL;
    int unit_bytes = 0;
    do {
        int used = av_parser_parse2(each->splitter, each->splitter_codec, &unit, &unit_bytes, data, bytes, timestamp,
                                    NO_TIMESTAMP, 0);
        data += used;
        bytes -= used;
        timestamp = NO_TIMESTAMP;
        if (unit_bytes > 0) {
            int64_t own = each->splitter->pts;
            take_unit(each, unit, unit_bytes, own == NO_TIMESTAMP ? each->last_timestamp : own);
        }
    } while (bytes > 0);
    each->has_pending = true;
}

static void end_pending(parser *each) {
    if (!each->has_pending) {
        return;
    }
    uint8_t *unit = NULL;
    int unit_bytes = 0;
    av_parser_parse2(each->splitter, each->splitter_codec, &unit, &unit_bytes, NULL, 0, NO_TIMESTAMP, NO_TIMESTAMP, 0);
    if (unit_bytes > 0) {
        int64_t own = each->splitter->pts;
        take_unit(each, unit, unit_bytes, own == NO_TIMESTAMP ? each->last_timestamp : own);
    }
    open_splitter(each);
}

/* A copy with padding, because libavcodec's parsers read past the end. */
static uint8_t *padded(const uint8_t *data, size_t bytes) {
    uint8_t *copy = av_malloc(bytes + AV_INPUT_BUFFER_PADDING_SIZE);
    if (copy != NULL) {
        memcpy(copy, data, bytes);
        memset(copy + bytes, 0, AV_INPUT_BUFFER_PADDING_SIZE);
    }
    return copy;
}

static void take_payload(parser *each, const CUVIDSOURCEDATAPACKET *packet) {
    uint8_t *data = padded(packet->payload, packet->payload_size);
    if (data == NULL) {
        each->status = OUT_OF_MEMORY;
        return;
    }
    int64_t timestamp = packet->flags & CUVID_PKT_TIMESTAMP ? packet->timestamp : NO_TIMESTAMP;
    bool is_whole = each->splitter == NULL || (packet->flags & CUVID_PKT_ENDOFPICTURE) != 0;
    if (is_whole) {
        end_pending(each);
        take_unit(each, data, (int)packet->payload_size, timestamp);
    } else {
        split(each, data, (int)packet->payload_size, timestamp);
    }
    av_free(data);
}

/* Shows all pictures that were begun; later input is handled as by a new parser. */
static void end_stream(parser *each) {
    end_pending(each);
    forget_start(each);
    drain(each);
    show_down_to(each, 0);
    forget_unneeded(each);
    each->is_starting = true;
    each->last_timestamp = NO_TIMESTAMP;
    each->shown_timestamp = NO_TIMESTAMP;
}

SIM_EXPORT int cuvidParseVideoData(CUvideoparser handle, CUVIDSOURCEDATAPACKET *packet) {
    parser *each = (parser *)handle;
    int said = SUCCESS;
    int device = each == NULL || each->device == NULL ? SIM_NO_DEVICE : each->device->index;
    if (sim_enter("cuvidParseVideoData", device, &said) == SIM_STATUS) {
        return said;
    }
    if (each == NULL || packet == NULL) {
        return INVALID_VALUE;
    }
    sim_trace("cuvidParseVideoData", "bytes=%lu timestamp=%lld flags=%lu", packet->payload_size,
              (long long)packet->timestamp, packet->flags);
    each->status = SUCCESS;
    if ((packet->flags & CUVID_PKT_DISCONTINUITY) != 0) {
        end_stream(each);
    }
    if (packet->payload != NULL && packet->payload_size > 0) {
        take_payload(each, packet);
    }
    if ((packet->flags & CUVID_PKT_ENDOFSTREAM) != 0) {
        end_stream(each);
        if ((packet->flags & CUVID_PKT_NOTIFY_EOS) != 0 && each->about.pfnDisplayPicture != NULL) {
            each->about.pfnDisplayPicture(each->about.pUserData, NULL);
        }
    }
    return each->status;
}

/*
 * Making and ending
 */

static const AVCodec *decoder_for(cudaVideoCodec codec) {
    switch (codec) {
    case cudaVideoCodec_MPEG2:
        return avcodec_find_decoder(AV_CODEC_ID_MPEG2VIDEO);
    case cudaVideoCodec_H264:
        return avcodec_find_decoder(AV_CODEC_ID_H264);
    case cudaVideoCodec_HEVC:
        return avcodec_find_decoder(AV_CODEC_ID_HEVC);
    case cudaVideoCodec_VP8:
        return avcodec_find_decoder(AV_CODEC_ID_VP8);
    case cudaVideoCodec_VP9:
        return avcodec_find_decoder(AV_CODEC_ID_VP9);
    case cudaVideoCodec_AV1:
        return avcodec_find_decoder_by_name("libdav1d");
    case cudaVideoCodec_JPEG:
        return avcodec_find_decoder(AV_CODEC_ID_MJPEG);
    default:
        return NULL;
    }
}

static void free_parser(parser *each) {
    avcodec_free_context(&each->codec);
    avcodec_free_context(&each->splitter_codec);
    if (each->splitter != NULL) {
        av_parser_close(each->splitter);
    }
    picture_drop(each->start);
    while (each->known.count > 0) {
        picture_drop(take_first(&each->known));
    }
    free(each);
}

/* All pictures are shown, including damaged ones; the stream's own parameters give the reordering delay. */
static bool open_codec(parser *each, const AVCodec *codec) {
    each->codec = avcodec_alloc_context3(codec);
    each->splitter_codec = avcodec_alloc_context3(codec);
    if (each->codec == NULL || each->splitter_codec == NULL) {
        return false;
    }
    each->codec->opaque = each;
    each->codec->thread_count = 1;
    each->codec->strict_std_compliance = FF_COMPLIANCE_STRICT;
    each->codec->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
    each->codec->flags2 |= AV_CODEC_FLAG2_SHOW_ALL;
    if ((codec->capabilities & AV_CODEC_CAP_DR1) != 0 && each->about.CodecType != cudaVideoCodec_AV1) {
        each->codec->get_buffer2 = capture_buffer;
    }
    return avcodec_open2(each->codec, codec, NULL) >= 0;
}

SIM_EXPORT int cuvidCreateVideoParser(CUvideoparser *handle, CUVIDPARSERPARAMS *about) {
    const sim_device *device = sim_cuda_device(NULL);
    int said = SUCCESS;
    if (sim_enter("cuvidCreateVideoParser", device == NULL ? SIM_NO_DEVICE : device->index, &said) == SIM_STATUS) {
        return said;
    }
    const AVCodec *codec = about == NULL ? NULL : decoder_for(about->CodecType);
    if (codec == NULL) {
        return about == NULL ? INVALID_VALUE : NOT_SUPPORTED;
    }
    sim_trace("cuvidCreateVideoParser", "codec=%s surfaces=%u delay=%u", codec_name(about->CodecType),
              about->ulMaxNumDecodeSurfaces, about->ulMaxDisplayDelay);
    av_log_set_level(AV_LOG_QUIET);
    parser *each = calloc(1, sizeof *each);
    if (each == NULL) {
        return OUT_OF_MEMORY;
    }
    *each = (parser){.about = *about, .device = device, .is_starting = true,
                      .last_timestamp = NO_TIMESTAMP, .shown_timestamp = NO_TIMESTAMP};
    if (!open_codec(each, codec)) {
        free_parser(each);
        return OUT_OF_MEMORY;
    }
    open_splitter(each);
    *handle = (CUvideoparser)each;
    return SUCCESS;
}

SIM_EXPORT int cuvidDestroyVideoParser(CUvideoparser handle) {
    parser *each = (parser *)handle;
    int said = SUCCESS;
    int device = each == NULL || each->device == NULL ? SIM_NO_DEVICE : each->device->index;
    if (sim_enter("cuvidDestroyVideoParser", device, &said) == SIM_STATUS) {
        return said;
    }
    if (each == NULL) {
        return INVALID_VALUE;
    }
    free_parser(each);
    return SUCCESS;
}
