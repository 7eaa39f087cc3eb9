/* Decoded pictures of the simulated libnvcuvid, and the writing of pictures into surfaces. */
#include <libavutil/pixdesc.h>
#include <stdlib.h>
#include <string.h>

#include "nvcuvid.h"

#define HIDDEN_MARK 0x51D0C0DEu
#define MARK_PLACE 27
#define POINTER_PLACE 28
#define CORRUPT_BYTE 0x55

picture *picture_new(AVFrame *frame, int64_t timestamp) {
    picture *made = calloc(1, sizeof *made);
    if (made == NULL || frame == NULL) {
        av_frame_free(&frame);
        free(made);
        return NULL;
    }
    made->holders = 1;
    made->frame = frame;
    made->timestamp = timestamp;
    made->is_progressive = true;
    return made;
}

picture *picture_hold(picture *each) {
    each->holders++;
    return each;
}

void picture_drop(picture *each) {
    if (each != NULL && --each->holders == 0) {
        av_frame_free(&each->frame);
        free(each);
    }
}

void picture_hide(CUVIDPICPARAMS *parameters, picture *each) {
    parameters->Reserved[MARK_PLACE] = HIDDEN_MARK;
    memcpy(&parameters->Reserved[POINTER_PLACE], &each, sizeof each);
}

picture *picture_hidden(const CUVIDPICPARAMS *parameters) {
    picture *each = NULL;
    if (parameters->Reserved[MARK_PLACE] == HIDDEN_MARK) {
        memcpy(&each, &parameters->Reserved[POINTER_PLACE], sizeof each);
    }
    return each;
}

size_t surface_sample_bytes(int format) {
    return format == cudaVideoSurfaceFormat_P016 || format == cudaVideoSurfaceFormat_YUV444_16Bit ||
                   format == SURFACE_P216
               ? 2
               : 1;
}

static bool is_planar(int format) {
    return format == cudaVideoSurfaceFormat_YUV444 || format == cudaVideoSurfaceFormat_YUV444_16Bit;
}

/* The number of rows between the starts of two planes, which is even (NVDEC's own rule). */
static size_t plane_rows(const surface_layout *layout) {
    return (layout->height + 1u) & ~(size_t)1;
}

static size_t chroma_rows(const surface_layout *layout) {
    bool is_420 = layout->format == cudaVideoSurfaceFormat_NV12 || layout->format == cudaVideoSurfaceFormat_P016;
    return is_420 ? (layout->height + 1u) / 2 : layout->height;
}

size_t surface_bytes(const surface_layout *layout) {
    size_t planes = is_planar(layout->format) ? 2 * plane_rows(layout) : (chroma_rows(layout) + 1) & ~(size_t)1;
    return layout->pitch * (plane_rows(layout) + planes);
}

/* One plane of libavcodec, and the conversion of its samples to those of a surface. */
typedef struct source_plane {
    const unsigned char *data; /* NULL: the picture has no such plane, and mid-grey is written */
    ptrdiff_t pitch;
    unsigned rows;
    unsigned columns;
    int depth;
} source_plane;

static source_plane plane_of(const AVFrame *frame, int number) {
    const AVPixFmtDescriptor *about = av_pix_fmt_desc_get(frame->format);
    bool is_chroma = number > 0;
    unsigned shift_x = is_chroma ? about->log2_chroma_w : 0;
    unsigned shift_y = is_chroma ? about->log2_chroma_h : 0;
    return (source_plane){
        .data = number < about->nb_components ? frame->data[number] : NULL,
        .pitch = frame->linesize[number],
        .rows = ((unsigned)frame->height + (1u << shift_y) - 1) >> shift_y,
        .columns = ((unsigned)frame->width + (1u << shift_x) - 1) >> shift_x,
        .depth = about->comp[0].depth,
    };
}

/* Beyond the edge of a picture, the samples of the edge repeat, as in a coded frame. */
static unsigned sample_at(const source_plane *plane, size_t row, size_t column) {
    if (plane->data == NULL) {
        return 1u << (plane->depth - 1);
    }
    size_t y = row < plane->rows ? row : plane->rows - 1;
    size_t x = column < plane->columns ? column : plane->columns - 1;
    const unsigned char *line = plane->data + (ptrdiff_t)y * plane->pitch;
    return plane->depth > 8 ? ((const uint16_t *)(const void *)line)[x] : line[x];
}

static void put_sample(unsigned char *line, size_t place, size_t bytes, unsigned sample, int depth) {
    if (bytes == 2) {
        ((uint16_t *)(void *)line)[place] = (uint16_t)(sample << (16 - depth)); /* significant bits are at the top */
    } else {
        line[place] = (unsigned char)(sample >> (depth - 8));
    }
}

/* Where samples of a plane go in a surface: `step` apart, from the `first` on. */
typedef struct target_plane {
    unsigned char *start;
    size_t pitch;
    size_t rows;
    size_t columns;
    size_t left;
    size_t top;
    size_t shown_columns; /* in the source, for each column */
    size_t shown_rows;
    size_t step;
    size_t first;
    size_t sample_bytes;
} target_plane;

/* If sizes differ, the nearest sample is taken: NVDEC has a better filter, which is not documented. */
static void write_plane(const source_plane *from, const target_plane *to) {
    bool is_copy = to->step == 1 && to->sample_bytes == 1 && from->depth == 8 && from->data != NULL &&
                   to->shown_columns == to->columns && to->left + to->columns <= from->columns &&
                   to->top + to->shown_rows <= from->rows;
    for (size_t row = 0; row < to->rows; row++) {
        unsigned char *line = to->start + row * to->pitch;
        size_t shown_row = to->top + row * to->shown_rows / to->rows;
        if (is_copy) {
            memcpy(line, from->data + (ptrdiff_t)shown_row * from->pitch + to->left, to->columns);
            continue;
        }
        for (size_t column = 0; column < to->columns; column++) {
            unsigned sample = sample_at(from, shown_row, to->left + column * to->shown_columns / to->columns);
            put_sample(line, column * to->step + to->first, to->sample_bytes, sample, from->depth);
        }
    }
}

static bool has_chroma_of(const AVFrame *frame, int format) {
    const AVPixFmtDescriptor *about = av_pix_fmt_desc_get(frame->format);
    int halved = about->log2_chroma_w * 2 + about->log2_chroma_h;
    if (about->nb_components < 3) {
        return true;
    }
    if (is_planar(format)) {
        return halved == 0;
    }
    return halved == (format == SURFACE_NV16 || format == SURFACE_P216 ? 2 : 3);
}

static void write_chroma(const picture *each, const surface_layout *layout, const target_plane *luma, int number) {
    target_plane to = *luma;
    unsigned char *second = luma->start + plane_rows(layout) * layout->pitch;
    if (is_planar(layout->format)) {
        to.start = second + (size_t)(number - 1) * plane_rows(layout) * layout->pitch;
    } else {
        to.start = second;
        to.rows = chroma_rows(layout);
        to.columns = (layout->width + 1u) / 2;
        to.left = layout->left / 2;
        to.shown_columns = (layout->shown_width + 1u) / 2;
        bool is_halved = to.rows != layout->height;
        to.top = is_halved ? layout->top / 2 : layout->top;
        to.shown_rows = is_halved ? (layout->shown_height + 1u) / 2 : layout->shown_height;
        to.step = 2;
        to.first = (size_t)number - 1;
    }
    source_plane from = plane_of(each->frame, number);
    write_plane(&from, &to);
}

/* A corrupt picture has a stripe that was not coded. */
static void damage(const target_plane *luma) {
    for (size_t row = luma->rows / 4; row < luma->rows / 2; row++) {
        memset(luma->start + row * luma->pitch, CORRUPT_BYTE, luma->columns * luma->sample_bytes);
    }
}

bool surface_write(const picture *each, const surface_layout *layout, unsigned char *to) {
    if (!has_chroma_of(each->frame, layout->format)) {
        return false;
    }
    target_plane luma = {.start = to,
                         .pitch = layout->pitch,
                         .rows = layout->height,
                         .columns = layout->width,
                         .left = layout->left,
                         .top = layout->top,
                         .shown_columns = layout->shown_width,
                         .shown_rows = layout->shown_height,
                         .step = 1,
                         .sample_bytes = surface_sample_bytes(layout->format)};
    source_plane from = plane_of(each->frame, 0);
    write_plane(&from, &luma);
    write_chroma(each, layout, &luma, 1);
    write_chroma(each, layout, &luma, 2);
    if (each->is_corrupt) {
        damage(&luma);
    }
    return true;
}
