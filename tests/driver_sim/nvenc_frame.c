/*
 * Surfaces as libavcodec's planar pictures: every NV_ENC_BUFFER_FORMAT of the interface.
 *
 * Samples of 10-bit formats are in the upper bits of 16, so they are shifted down; 8-bit surfaces of a 10-bit stream
 * are shifted up. RGB becomes limited-range YUV of BT.601, or of BT.709 if the stream's description says so.
 */
#include "nvenc.h"

#define DEEP_SHIFT 6

/* A row of the table of formats. Planes follow each other without gaps; if `interleaved`, U and V are in one plane. */
typedef struct format {
    uint32_t format;
    int chroma;
    int bit_depth;
    bool interleaved;
    bool reversed; /* V before U, or blue in the lowest bits of packed RGB */
    bool packed;   /* 32 bits a pixel */
} format;

static const format formats[] = {
    {NV_ENC_BUFFER_FORMAT_NV12, 420, 8, true, false, false},
    {NV_ENC_BUFFER_FORMAT_YV12, 420, 8, false, true, false},
    {NV_ENC_BUFFER_FORMAT_IYUV, 420, 8, false, false, false},
    {NV_ENC_BUFFER_FORMAT_YUV444, 444, 8, false, false, false},
    {LAYOUT_FORMAT_NV16, 422, 8, true, false, false},
    {NV_ENC_BUFFER_FORMAT_YUV420_10BIT, 420, 10, true, false, false},
    {NV_ENC_BUFFER_FORMAT_YUV444_10BIT, 444, 10, false, false, false},
    {LAYOUT_FORMAT_P210, 422, 10, true, false, false},
    {NV_ENC_BUFFER_FORMAT_ARGB, 420, 8, false, true, true},
    {NV_ENC_BUFFER_FORMAT_ABGR, 420, 8, false, false, true},
    {NV_ENC_BUFFER_FORMAT_ARGB10, 420, 10, false, true, true},
    {NV_ENC_BUFFER_FORMAT_ABGR10, 420, 10, false, false, true},
    {NV_ENC_BUFFER_FORMAT_AYUV, 444, 8, false, false, true},
};

static const format *find(uint32_t wanted) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].format == wanted) {
            return &formats[i];
        }
    }
    return NULL;
}

bool nvenc_format_known(uint32_t wanted) {
    return find(wanted) != NULL;
}

int nvenc_format_chroma(uint32_t wanted) {
    const format *found = find(wanted);
    return found == NULL ? 0 : found->chroma;
}

int nvenc_format_bit_depth(uint32_t wanted) {
    const format *found = find(wanted);
    return found == NULL ? 0 : found->bit_depth;
}

bool nvenc_format_is_rgb(uint32_t wanted) {
    const format *found = find(wanted);
    return found != NULL && found->packed && wanted != NV_ENC_BUFFER_FORMAT_AYUV;
}

unsigned nvenc_row_bytes(uint32_t wanted, unsigned width) {
    const format *found = find(wanted);
    unsigned sample = found->packed ? 4 : found->bit_depth > 8 ? 2 : 1;
    return width * sample;
}

/* The bytes of a chroma row, of both planes if they are interleaved. */
static unsigned chroma_pitch(const format *kind, unsigned pitch) {
    return kind->interleaved || kind->chroma == 444 ? pitch : (pitch + 1) / 2;
}

static unsigned chroma_rows(const format *kind, unsigned height) {
    return kind->chroma == 420 ? (height + 1) / 2 : height;
}

size_t nvenc_surface_bytes(const nvenc_surface *surface) {
    const format *kind = find(surface->format);
    size_t luma = (size_t)surface->pitch * surface->height;
    if (kind->packed) {
        return luma;
    }
    size_t chroma = (size_t)chroma_pitch(kind, surface->pitch) * chroma_rows(kind, surface->height);
    return luma + chroma * (kind->interleaved ? 1 : 2);
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

static void put_sample(AVFrame *frame, int plane, unsigned x, unsigned y, unsigned value, bool deep) {
    uint8_t *row = frame->data[plane] + (size_t)y * (size_t)frame->linesize[plane];
    if (deep) {
        ((uint16_t *)(void *)row)[x] = (uint16_t)value;
    } else {
        row[x] = (uint8_t)value;
    }
}

/* A sample, converted to the depth of the stream. */
static unsigned convert_depth(unsigned sample, int from, int to) {
    if (from == to) {
        return from > 8 ? sample >> DEEP_SHIFT : sample;
    }
    return from < to ? sample << 2 : sample >> 8;
}

/* Copies a plane of `width` x `height` samples that are `step` apart in the source. */
static void copy_plane(AVFrame *frame, int plane, const uint8_t *source, unsigned pitch, unsigned step, unsigned width,
                       unsigned height, int from, int to) {
    for (unsigned y = 0; y < height; y++) {
        const uint8_t *row = source + (size_t)y * pitch;
        const uint16_t *deep_row = (const uint16_t *)(const void *)row;
        for (unsigned x = 0; x < width; x++) {
            unsigned sample = from > 8 ? deep_row[(size_t)x * step] : row[(size_t)x * step];
            put_sample(frame, plane, x, y, convert_depth(sample, from, to), to > 8);
        }
    }
}

static bool copy_planes(const nvenc_surface *surface, const format *kind, const nvenc_settings *settings,
                        AVFrame *frame) {
    if (kind->chroma != settings->chroma) {
        return false;
    }
    int from = kind->bit_depth;
    int to = settings->bit_depth;
    unsigned width = settings->width;
    unsigned height = settings->height;
    copy_plane(frame, 0, surface->data, surface->pitch, 1, width, height, from, to);
    unsigned chroma_width = kind->chroma == 444 ? width : (width + 1) / 2;
    unsigned rows = chroma_rows(kind, height);
    unsigned pitch = chroma_pitch(kind, surface->pitch);
    const uint8_t *first = surface->data + (size_t)surface->pitch * surface->height;
    if (kind->interleaved) {
        unsigned sample = from > 8 ? 2 : 1;
        copy_plane(frame, 1, first, pitch, 2, chroma_width, rows, from, to);
        copy_plane(frame, 2, first + sample, pitch, 2, chroma_width, rows, from, to);
        return true;
    }
    const uint8_t *second = first + (size_t)pitch * chroma_rows(kind, surface->height);
    copy_plane(frame, kind->reversed ? 2 : 1, first, pitch, 1, chroma_width, rows, from, to);
    copy_plane(frame, kind->reversed ? 1 : 2, second, pitch, 1, chroma_width, rows, from, to);
    return true;
}

/* Red, green and blue of a packed pixel, from 0 to 1. */
static void unpack_rgb(uint32_t word, const format *kind, double rgb[3]) {
    unsigned bits = (unsigned)kind->bit_depth;
    uint32_t mask = (1u << bits) - 1;
    for (unsigned i = 0; i < 3; i++) {
        unsigned place = kind->reversed ? 2 - i : i;
        rgb[i] = (double)(word >> (bits * place) & mask) / mask;
    }
}

static bool is_bt709(const nvenc_settings *settings) {
    const layout_config *config = &settings->config;
    uint32_t matrix = settings->codec == NVENC_H264
                          ? config->encodeCodecConfig.h264Config.h264VUIParameters.colourMatrix
                      : settings->codec == NVENC_HEVC
                          ? config->encodeCodecConfig.hevcConfig.hevcVUIParameters.colourMatrix
                          : config->encodeCodecConfig.av1Config.matrixCoefficients;
    return matrix == AVCOL_SPC_BT709;
}

static void to_yuv(const double rgb[3], bool bt709, double yuv[3]) {
    double red = bt709 ? 0.2126 : 0.299;
    double blue = bt709 ? 0.0722 : 0.114;
    double luma = red * rgb[0] + (1 - red - blue) * rgb[1] + blue * rgb[2];
    yuv[0] = luma * 219 + 16;
    yuv[1] = (rgb[2] - luma) / (2 * (1 - blue)) * 224 + 128;
    yuv[2] = (rgb[0] - luma) / (2 * (1 - red)) * 224 + 128;
}

/* The Y, U and V of a packed pixel, in units of 8 bits. */
static void packed_yuv(const nvenc_surface *surface, const format *kind, bool bt709, unsigned x, unsigned y,
                       double yuv[3]) {
    const uint8_t *row = surface->data + (size_t)y * surface->pitch;
    uint32_t word = ((const uint32_t *)(const void *)row)[x];
    if (kind->format == NV_ENC_BUFFER_FORMAT_AYUV) {
        for (unsigned i = 0; i < 3; i++) {
            yuv[i] = word >> (16 - 8 * i) & 0xff;
        }
        return;
    }
    double rgb[3];
    unpack_rgb(word, kind, rgb);
    to_yuv(rgb, bt709, yuv);
}

/* Each chroma sample is the mean of the pixels that it covers. */
static void put_packed_chroma(const nvenc_surface *surface, const format *kind, const nvenc_settings *settings,
                              AVFrame *frame, unsigned x, unsigned y) {
    unsigned across = settings->chroma == 444 ? 1 : 2;
    unsigned down = settings->chroma == 420 ? 2 : 1;
    double sums[3] = {0, 0, 0};
    for (unsigned i = 0; i < across * down; i++) {
        double yuv[3];
        packed_yuv(surface, kind, is_bt709(settings), x * across + i % across, y * down + i / across, yuv);
        sums[1] += yuv[1];
        sums[2] += yuv[2];
    }
    double scale = (settings->bit_depth > 8 ? 4.0 : 1.0) / (across * down);
    put_sample(frame, 1, x, y, (unsigned)(sums[1] * scale + 0.5), settings->bit_depth > 8);
    put_sample(frame, 2, x, y, (unsigned)(sums[2] * scale + 0.5), settings->bit_depth > 8);
}

static void copy_packed(const nvenc_surface *surface, const format *kind, const nvenc_settings *settings,
                        AVFrame *frame) {
    double scale = settings->bit_depth > 8 ? 4.0 : 1.0;
    for (unsigned y = 0; y < settings->height; y++) {
        for (unsigned x = 0; x < settings->width; x++) {
            double yuv[3];
            packed_yuv(surface, kind, is_bt709(settings), x, y, yuv);
            put_sample(frame, 0, x, y, (unsigned)(yuv[0] * scale + 0.5), settings->bit_depth > 8);
        }
    }
    unsigned across = settings->chroma == 444 ? 1 : 2;
    unsigned down = settings->chroma == 420 ? 2 : 1;
    for (unsigned y = 0; y < settings->height / down; y++) {
        for (unsigned x = 0; x < settings->width / across; x++) {
            put_packed_chroma(surface, kind, settings, frame, x, y);
        }
    }
}

AVFrame *nvenc_frame_of(const nvenc_surface *surface, const nvenc_settings *settings) {
    const format *kind = find(surface->format);
    AVFrame *frame = av_frame_alloc();
    if (frame == NULL || kind == NULL || surface->width < settings->width || surface->height < settings->height) {
        av_frame_free(&frame);
        return NULL;
    }
    frame->format = pixel_format(settings);
    frame->width = (int)settings->width;
    frame->height = (int)settings->height;
    bool done = av_frame_get_buffer(frame, 0) == 0;
    if (done && kind->packed) {
        copy_packed(surface, kind, settings, frame);
    } else if (done) {
        done = copy_planes(surface, kind, settings, frame);
    }
    if (!done) {
        av_frame_free(&frame);
    }
    return frame;
}
