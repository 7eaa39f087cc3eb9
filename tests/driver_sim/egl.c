/*
 * The simulated libEGL.so.1: displays of the machine's devices, streams, images and syncs, and the part of OpenGL ES 2
 * that makes, fills and reads a texture. Nothing is rendered: commands are done when they return.
 *
 * Faults are named by EGL's function names. A status is EGL's error number (999, of a lost device, is
 * EGL_CONTEXT_LOST). DRIVER_SIM_EGL_WITHOUT names an extension that the display lacks.
 */
#define _GNU_SOURCE
#include "eglobjects.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BAD_ALLOC 0x3003
#define BAD_ATTRIBUTE 0x3004
#define BAD_DISPLAY 0x3008
#define BAD_PARAMETER 0x300C
#define CONTEXT_LOST 0x300E
#define BAD_STREAM 0x321B
#define BAD_STATE 0x321C
#define EXTENSIONS 0x3055
#define NONE 0x3038
#define FIFO_LENGTH 0x31FC
#define SUPPORT_REUSE 0x3335
#define IMAGE_OF_TEXTURE 0x30B1
#define IMAGE_OF_MEMORY 0x3270
#define SYNC_CUDA_EVENT 0x323C
#define CUDA_EVENT_HANDLE 0x323B
#define LOST_STATUS 999

static const char *const CLIENT = "EGL_EXT_client_extensions EGL_EXT_device_base EGL_EXT_platform_base "
                                  "EGL_EXT_platform_device";
static const char *const DISPLAY[] = {
    "EGL_KHR_stream",        "EGL_KHR_stream_fifo",         "EGL_KHR_stream_cross_process_fd",
    "EGL_NV_stream_reset",   "EGL_KHR_image_base",          "EGL_KHR_gl_texture_2D_image",
    "EGL_KHR_fence_sync",    "EGL_KHR_surfaceless_context", "EGL_EXT_image_dma_buf_import",
    "EGL_KHR_get_all_proc_addresses",
};

typedef struct display {
    int ordinal;
    char extensions[1024];
} display;

typedef struct texture {
    int width, height;
    char *pixels;
} texture;

static display displays[SIM_DEVICES_MOST];
static _Thread_local int last_error = 0x3000;
static _Thread_local void *current_context;
static _Thread_local unsigned bound_texture, attached_texture;
static texture textures[256];
static unsigned texture_count;
static char contexts[64];
static unsigned context_count;

static bool met(const char *function) {
    int said = 0;
    if (sim_enter(function, 0, &said) != SIM_STATUS) {
        return false;
    }
    last_error = said == LOST_STATUS ? CONTEXT_LOST : said;
    return true;
}

#define ENTER(name, failure)                                                                                           \
    do {                                                                                                               \
        if (met(name)) {                                                                                               \
            return failure;                                                                                            \
        }                                                                                                              \
    } while (0)

#define REFUSE(condition, error, failure)                                                                              \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            last_error = error;                                                                                        \
            return failure;                                                                                            \
        }                                                                                                              \
    } while (0)

static bool is_display(const display *one) {
    return one >= displays && one < displays + sim_visible_count();
}

SIM_EXPORT int eglGetError(void) {
    int error = last_error;
    last_error = 0x3000;
    return error;
}

SIM_EXPORT const char *eglQueryString(display *one, int name) {
    REFUSE(name != EXTENSIONS, BAD_PARAMETER, NULL);
    REFUSE(one != NULL && !is_display(one), BAD_DISPLAY, NULL);
    return one == NULL ? CLIENT : one->extensions;
}

static unsigned query_devices(int most, void **devices, int *count) {
    ENTER("eglQueryDevicesEXT", 0);
    for (*count = 0; *count < sim_visible_count() && *count < most; ++*count) {
        devices[*count] = &displays[*count];
    }
    return 1;
}

static unsigned query_device(display *device, int attribute, intptr_t *value) {
    ENTER("eglQueryDeviceAttribEXT", 0);
    REFUSE(attribute != 0x323A || !is_display(device), BAD_ATTRIBUTE, 0);
    *value = device - displays;
    return 1;
}

static void *platform_display(unsigned platform, void *device, const int *attributes) {
    (void)attributes;
    ENTER("eglGetPlatformDisplayEXT", NULL);
    REFUSE(platform != 0x313F || !is_display(device), BAD_PARAMETER, NULL);
    return device;
}

static unsigned initialize(display *one, int *major, int *minor) {
    ENTER("eglInitialize", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    const char *without = getenv("DRIVER_SIM_EGL_WITHOUT");
    one->extensions[0] = '\0';
    for (size_t number = 0; number < sizeof DISPLAY / sizeof *DISPLAY; number++) {
        if (without == NULL || strcmp(without, DISPLAY[number]) != 0) {
            strcat(strcat(one->extensions, DISPLAY[number]), " ");
        }
    }
    strcat(one->extensions, sim_machine()->tegra[0] == '\0' ? "" : "EGL_NV_cuda_event");
    *major = 1;
    *minor = 5;
    return 1;
}

/*
 * Streams
 */

static void *create_stream(display *one, const int *attributes) {
    ENTER("eglCreateStreamKHR", NULL);
    REFUSE(!is_display(one), BAD_DISPLAY, NULL);
    int fifo_frames = 0;
    bool keeps_last = true;
    for (; attributes != NULL && *attributes != NONE; attributes += 2) {
        REFUSE(attributes[0] != FIFO_LENGTH && attributes[0] != SUPPORT_REUSE, BAD_ATTRIBUTE, NULL);
        fifo_frames = attributes[0] == FIFO_LENGTH ? attributes[1] : fifo_frames;
        keeps_last = attributes[0] == SUPPORT_REUSE ? attributes[1] != 0 : keeps_last;
    }
    REFUSE(fifo_frames < 0, BAD_PARAMETER, NULL);
    void *made = sim_egl_stream_make(fifo_frames, keeps_last);
    REFUSE(made == NULL, BAD_ALLOC, NULL);
    return made;
}

static unsigned destroy_stream(display *one, sim_egl_stream *stream) {
    ENTER("eglDestroyStreamKHR", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    REFUSE(!sim_egl_stream_is(stream), BAD_STREAM, 0);
    sim_egl_stream_destroy(stream);
    return 1;
}

static unsigned query_stream(display *one, sim_egl_stream *stream, unsigned attribute, int *value) {
    ENTER("eglQueryStreamKHR", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    REFUSE(!sim_egl_stream_is(stream), BAD_STREAM, 0);
    REFUSE(attribute != 0x3214 && attribute != FIFO_LENGTH && attribute != SUPPORT_REUSE, BAD_ATTRIBUTE, 0);
    *value = attribute == 0x3214        ? sim_egl_stream_state(stream)
             : attribute == FIFO_LENGTH ? sim_egl_stream_fifo(stream)
                                        : sim_egl_stream_keeps_last(stream);
    return 1;
}

static unsigned query_stream_count(display *one, sim_egl_stream *stream, unsigned attribute, uint64_t *value) {
    ENTER("eglQueryStreamu64KHR", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    REFUSE(!sim_egl_stream_is(stream), BAD_STREAM, 0);
    REFUSE(attribute != 0x3212 && attribute != 0x3213, BAD_ATTRIBUTE, 0);
    *value = attribute == 0x3212 ? sim_egl_stream_presented(stream) : sim_egl_stream_acquired(stream);
    return 1;
}

static int stream_descriptor(display *one, sim_egl_stream *stream) {
    ENTER("eglGetStreamFileDescriptorKHR", -1);
    REFUSE(!is_display(one), BAD_DISPLAY, -1);
    REFUSE(!sim_egl_stream_is(stream), BAD_STREAM, -1);
    int descriptor = sim_egl_stream_descriptor(stream);
    REFUSE(descriptor < 0, BAD_STATE, -1);
    return descriptor;
}

static void *stream_from_descriptor(display *one, int descriptor) {
    ENTER("eglCreateStreamFromFileDescriptorKHR", NULL);
    REFUSE(!is_display(one), BAD_DISPLAY, NULL);
    void *made = sim_egl_stream_open(descriptor);
    REFUSE(made == NULL, BAD_STREAM, NULL);
    return made;
}

/*
 * Images and syncs
 */

static void *image_of_texture(unsigned number) {
    REFUSE(number == 0 || number > texture_count || textures[number - 1].pixels == NULL, BAD_PARAMETER, NULL);
    const texture *one = &textures[number - 1];
    unsigned row_bytes = (unsigned)one->width * 4;
    sim_egl_frame frame = {.width = (unsigned)one->width, .height = (unsigned)one->height, .plane_count = 1,
                           .channels = 4, .colour = 14, .format = 1, .row_bytes = {row_bytes},
                           .rows = {(unsigned)one->height}, .pitches = {row_bytes},
                           .planes = {(uint64_t)(uintptr_t)one->pixels}};
    return sim_egl_image_make(&frame);
}

static const struct {
    const char *fourcc;
    unsigned colour, planes, channels, item;
} FORMATS[] = {{"NV12", 1, 2, 1, 1}, {"P010", 23, 2, 1, 2}, {"AB24", 14, 1, 4, 1}, {"AR24", 6, 1, 4, 1}, {"R8  ", 82, 1, 1, 1}};

static char *reached(int descriptor, int offset, size_t bytes) {
    off_t held = lseek(descriptor, 0, SEEK_END);
    if (held < 0 || (size_t)held < (size_t)offset + bytes) {
        return NULL;
    }
    char *mapped = mmap(NULL, (size_t)held, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) {
        return NULL;
    }
    sim_memory_register(mapped, (size_t)held, 0);
    return mapped + offset;
}

static void *image_of_memory(const int *attributes) {
    int values[16] = {0}; /* from 0x3270: fourcc, then descriptor, offset and pitch of each plane */
    sim_egl_frame frame = {.type = 1};
    for (; *attributes != NONE; attributes += 2) {
        frame.width = attributes[0] == 0x3057 ? (unsigned)attributes[1] : frame.width;
        frame.height = attributes[0] == 0x3056 ? (unsigned)attributes[1] : frame.height;
        if (attributes[0] > 0x3270 && attributes[0] < 0x3280) {
            values[attributes[0] - 0x3270] = attributes[1];
        }
    }
    for (size_t number = 0; number < sizeof FORMATS / sizeof *FORMATS; number++) {
        if (memcmp(FORMATS[number].fourcc, &values[1], 4) == 0) {
            frame.colour = FORMATS[number].colour;
            frame.plane_count = FORMATS[number].planes;
            frame.channels = FORMATS[number].channels;
            frame.format = FORMATS[number].item;
        }
    }
    REFUSE(frame.plane_count == 0 || frame.width == 0 || frame.height == 0, BAD_PARAMETER, NULL);
    frame.pitch = (unsigned)values[4];
    for (unsigned plane = 0; plane < frame.plane_count; plane++) {
        const int *at = &values[2 + 3 * plane];
        frame.row_bytes[plane] = frame.width * frame.channels * frame.format;
        frame.rows[plane] = frame.height >> (plane > 0);
        frame.pitches[plane] = (unsigned)at[2];
        REFUSE(frame.pitches[plane] < frame.row_bytes[plane], BAD_PARAMETER, NULL);
        char *place = reached(at[0], at[1], (size_t)frame.pitches[plane] * (frame.rows[plane] - 1) + frame.row_bytes[plane]);
        REFUSE(place == NULL, BAD_PARAMETER, NULL);
        frame.planes[plane] = (uint64_t)(uintptr_t)place;
    }
    return sim_egl_image_make(&frame);
}

static void *create_image(display *one, void *context, unsigned target, void *buffer, const int *attributes) {
    ENTER("eglCreateImageKHR", NULL);
    REFUSE(!is_display(one), BAD_DISPLAY, NULL);
    REFUSE(target == IMAGE_OF_TEXTURE && context != current_context, 0x3006, NULL);
    REFUSE(target != IMAGE_OF_TEXTURE && target != IMAGE_OF_MEMORY, BAD_PARAMETER, NULL);
    return target == IMAGE_OF_TEXTURE ? image_of_texture((unsigned)(uintptr_t)buffer) : image_of_memory(attributes);
}

static unsigned destroy_image(display *one, sim_egl_image *image) {
    ENTER("eglDestroyImageKHR", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    REFUSE(!sim_egl_image_is(image), BAD_PARAMETER, 0);
    image->is_alive = false;
    return 1;
}

static void *create_sync(display *one, unsigned type, const int *attributes) {
    (void)attributes;
    ENTER("eglCreateSyncKHR", NULL);
    REFUSE(!is_display(one), BAD_DISPLAY, NULL);
    REFUSE(type != 0x30F9, BAD_ATTRIBUTE, NULL);
    REFUSE(current_context == NULL, 0x3009, NULL);
    return sim_egl_sync_make(NULL);
}

static void *create_sync_64(display *one, unsigned type, const intptr_t *attributes) {
    ENTER("eglCreateSync64KHR", NULL);
    REFUSE(!is_display(one), BAD_DISPLAY, NULL);
    REFUSE(type != SYNC_CUDA_EVENT || sim_machine()->tegra[0] == '\0', BAD_ATTRIBUTE, NULL);
    REFUSE(attributes == NULL || attributes[0] != CUDA_EVENT_HANDLE || attributes[1] == 0, BAD_ATTRIBUTE, NULL);
    return sim_egl_sync_make((void *)attributes[1]);
}

static int client_wait_sync(display *one, sim_egl_sync *sync, int flags, uint64_t timeout) {
    (void)flags;
    (void)timeout;
    ENTER("eglClientWaitSyncKHR", 0);
    REFUSE(!is_display(one) || !sim_egl_sync_is(sync), BAD_PARAMETER, 0);
    return 0x30F6; /* satisfied */
}

static unsigned destroy_sync(display *one, sim_egl_sync *sync) {
    ENTER("eglDestroySyncKHR", 0);
    REFUSE(!is_display(one) || !sim_egl_sync_is(sync), BAD_PARAMETER, 0);
    sync->is_alive = false;
    return 1;
}

/*
 * A context, and OpenGL ES
 */

static unsigned bind_api(unsigned api) {
    return api == 0x30A0;
}

static unsigned choose_config(display *one, const int *wanted, void **configs, int most, int *count) {
    (void)wanted;
    ENTER("eglChooseConfig", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    *count = most > 0;
    configs[0] = &displays[0];
    return 1;
}

static void *create_context(display *one, void *config, void *share, const int *attributes) {
    (void)config;
    (void)share;
    (void)attributes;
    ENTER("eglCreateContext", NULL);
    REFUSE(!is_display(one), BAD_DISPLAY, NULL);
    return &contexts[context_count++ % sizeof contexts];
}

static unsigned destroy_context(display *one, void *context) {
    (void)context;
    ENTER("eglDestroyContext", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    return 1;
}

static void *get_current_context(void) {
    return current_context;
}

static unsigned make_current(display *one, void *draw, void *read, void *context) {
    ENTER("eglMakeCurrent", 0);
    REFUSE(!is_display(one), BAD_DISPLAY, 0);
    REFUSE(draw != NULL || read != NULL, 0x3009, 0);
    current_context = context;
    return 1;
}

static void gen_textures(int count, unsigned *names) {
    for (int number = 0; number < count; number++) {
        names[number] = ++texture_count;
    }
}

static void gen_one(int count, unsigned *names) {
    for (int number = 0; number < count; number++) {
        names[number] = 1;
    }
}

static void no_names(int count, const unsigned *names) {
    (void)count;
    (void)names;
}

static void bind_texture(unsigned target, unsigned name) {
    (void)target;
    bound_texture = name;
}

static void bind_framebuffer(unsigned target, unsigned name) {
    (void)target;
    (void)name;
}

static void set_parameter(unsigned target, unsigned name, int value) {
    (void)target;
    (void)name;
    (void)value;
}

static void tex_image(unsigned target, int level, int inner, int width, int height, int border, unsigned format,
                      unsigned type, const void *pixels) {
    (void)target, (void)level, (void)inner, (void)border, (void)format, (void)type;
    if (bound_texture == 0 || bound_texture > sizeof textures / sizeof *textures) {
        return;
    }
    texture *one = &textures[bound_texture - 1];
    size_t bytes = (size_t)width * (size_t)height * 4;
    /* Always use other memory: an image that was made of the texture keeps its old pixels. */
    *one = (texture){width, height, sim_memory_alloc(sim_device_at(0), bytes, SIM_DEVICE_MEMORY, 0)};
    if (one->pixels != NULL && pixels != NULL) {
        memcpy(one->pixels, pixels, bytes);
    }
}

static void tex_sub_image(unsigned target, int level, int x, int y, int width, int height, unsigned format,
                          unsigned type, const void *pixels) {
    (void)target, (void)level, (void)x, (void)y, (void)format, (void)type;
    if (bound_texture != 0 && textures[bound_texture - 1].pixels != NULL) {
        memcpy(textures[bound_texture - 1].pixels, pixels, (size_t)width * (size_t)height * 4);
    }
}

static void attach(unsigned target, unsigned place, unsigned kind, unsigned name, int level) {
    (void)target, (void)place, (void)kind, (void)level;
    attached_texture = name;
}

static unsigned framebuffer_status(unsigned target) {
    (void)target;
    return 0x8CD5;
}

static void read_pixels(int x, int y, int width, int height, unsigned format, unsigned type, void *pixels) {
    (void)x, (void)y, (void)format, (void)type;
    if (attached_texture != 0 && textures[attached_texture - 1].pixels != NULL) {
        memcpy(pixels, textures[attached_texture - 1].pixels, (size_t)width * (size_t)height * 4);
    }
}

static void finish(void) {
}

typedef void function(void);

#define NAMED(name, target) {name, (function *)target}
static const struct {
    const char *name;
    function *target;
} FUNCTIONS[] = {
    NAMED("eglQueryDevicesEXT", query_devices),
    NAMED("eglQueryDeviceAttribEXT", query_device),
    NAMED("eglGetPlatformDisplayEXT", platform_display),
    NAMED("eglInitialize", initialize),
    NAMED("eglCreateStreamKHR", create_stream),
    NAMED("eglDestroyStreamKHR", destroy_stream),
    NAMED("eglQueryStreamKHR", query_stream),
    NAMED("eglQueryStreamu64KHR", query_stream_count),
    NAMED("eglGetStreamFileDescriptorKHR", stream_descriptor),
    NAMED("eglCreateStreamFromFileDescriptorKHR", stream_from_descriptor),
    NAMED("eglCreateImageKHR", create_image),
    NAMED("eglDestroyImageKHR", destroy_image),
    NAMED("eglCreateSyncKHR", create_sync),
    NAMED("eglCreateSync64KHR", create_sync_64),
    NAMED("eglClientWaitSyncKHR", client_wait_sync),
    NAMED("eglDestroySyncKHR", destroy_sync),
    NAMED("eglBindAPI", bind_api),
    NAMED("eglChooseConfig", choose_config),
    NAMED("eglCreateContext", create_context),
    NAMED("eglDestroyContext", destroy_context),
    NAMED("eglGetCurrentContext", get_current_context),
    NAMED("eglMakeCurrent", make_current),
    NAMED("glGenTextures", gen_textures),
    NAMED("glDeleteTextures", no_names),
    NAMED("glBindTexture", bind_texture),
    NAMED("glTexParameteri", set_parameter),
    NAMED("glTexImage2D", tex_image),
    NAMED("glTexSubImage2D", tex_sub_image),
    NAMED("glGenFramebuffers", gen_one),
    NAMED("glDeleteFramebuffers", no_names),
    NAMED("glBindFramebuffer", bind_framebuffer),
    NAMED("glFramebufferTexture2D", attach),
    NAMED("glCheckFramebufferStatus", framebuffer_status),
    NAMED("glReadPixels", read_pixels),
    NAMED("glFinish", finish),
};

SIM_EXPORT function *eglGetProcAddress(const char *name) {
    for (size_t number = 0; number < sizeof FUNCTIONS / sizeof *FUNCTIONS; number++) {
        if (strcmp(FUNCTIONS[number].name, name) == 0) {
            return FUNCTIONS[number].target;
        }
    }
    return NULL;
}
