/* The capabilities of the simulated NVENC, by the scenario's hardware: GUIDs, formats, capabilities and presets. */
#include "nvenc.h"

#include <stdio.h>
#include <string.h>

/* Profiles that are newer than version 11.1. */
#define AV1_MAIN {0x5f2a39f5, 0xf14e, 0x4f95, {0x9a, 0x9e, 0xb7, 0x6d, 0x56, 0x8f, 0xcf, 0x97}}
#define H264_HIGH_10 {0x8f0c337e, 0x186c, 0x48e9, {0xa6, 0x9d, 0x7a, 0x83, 0x34, 0x08, 0x97, 0x58}}
#define H264_HIGH_422 {0xff3242e9, 0x613c, 0x4295, {0xa1, 0xe8, 0x2a, 0x7f, 0xe9, 0x4d, 0x81, 0x33}}

/* GUIDs of the public header, which defines them as objects, so that they are not constant expressions. */
#define AUTOSELECT {0xbfd6f8e7, 0x233c, 0x4341, {0x8b, 0x3e, 0x48, 0x18, 0x52, 0x38, 0x03, 0xf4}}
#define H264_BASELINE {0x0727bcaa, 0x78c4, 0x4c83, {0x8c, 0x2f, 0xef, 0x3d, 0xff, 0x26, 0x7c, 0x6a}}
#define H264_MAIN {0x60b5c1d4, 0x67fe, 0x4790, {0x94, 0xd5, 0xc4, 0x72, 0x6d, 0x7b, 0x6e, 0x6d}}
#define H264_HIGH {0xe7cbc309, 0x4f7a, 0x4b89, {0xaf, 0x2a, 0xd5, 0x37, 0xc9, 0x2b, 0xe3, 0x10}}
#define H264_HIGH_444 {0x7ac663cb, 0xa598, 0x4960, {0xb8, 0x44, 0x33, 0x9b, 0x26, 0x1a, 0x7d, 0x52}}
#define H264_PROGRESSIVE_HIGH {0xb405afac, 0xf32b, 0x417b, {0x89, 0xc4, 0x9a, 0xbe, 0xed, 0x3e, 0x59, 0x78}}
#define H264_CONSTRAINED_HIGH {0xaec1bd87, 0xe85b, 0x48f2, {0x84, 0xc3, 0x98, 0xbc, 0xa6, 0x28, 0x50, 0x72}}
#define HEVC_MAIN {0xb514c39a, 0xb55b, 0x40fa, {0x87, 0x8f, 0xf1, 0x25, 0x3b, 0x4d, 0xfd, 0xec}}
#define HEVC_MAIN10 {0xfa4d2b6c, 0x3a5b, 0x411a, {0x80, 0x18, 0x0a, 0x3f, 0x5e, 0x3c, 0x9b, 0xe5}}
#define HEVC_FREXT {0x51ec32b5, 0x1b4c, 0x453c, {0x9c, 0xbd, 0xb6, 0x16, 0xbd, 0x62, 0x13, 0x41}}

typedef struct named_guid {
    GUID guid;
    const char *name;
} named_guid;

static const named_guid profile_names[] = {
    {AUTOSELECT, "NV_ENC_CODEC_PROFILE_AUTOSELECT_GUID"},
    {H264_BASELINE, "NV_ENC_H264_PROFILE_BASELINE_GUID"},
    {H264_MAIN, "NV_ENC_H264_PROFILE_MAIN_GUID"},
    {H264_HIGH, "NV_ENC_H264_PROFILE_HIGH_GUID"},
    {H264_HIGH_10, "NV_ENC_H264_PROFILE_HIGH_10_GUID"},
    {H264_HIGH_422, "NV_ENC_H264_PROFILE_HIGH_422_GUID"},
    {H264_HIGH_444, "NV_ENC_H264_PROFILE_HIGH_444_GUID"},
    {H264_PROGRESSIVE_HIGH, "NV_ENC_H264_PROFILE_PROGRESSIVE_HIGH_GUID"},
    {H264_CONSTRAINED_HIGH, "NV_ENC_H264_PROFILE_CONSTRAINED_HIGH_GUID"},
    {HEVC_MAIN, "NV_ENC_HEVC_PROFILE_MAIN_GUID"},
    {HEVC_MAIN10, "NV_ENC_HEVC_PROFILE_MAIN10_GUID"},
    {HEVC_FREXT, "NV_ENC_HEVC_PROFILE_FREXT_GUID"},
    {AV1_MAIN, "NV_ENC_AV1_PROFILE_MAIN_GUID"},
};

static const GUID h264_profiles[] = {AUTOSELECT,   H264_BASELINE, H264_MAIN,     H264_HIGH,
                                     H264_HIGH_10, H264_HIGH_422, H264_HIGH_444, H264_PROGRESSIVE_HIGH};
static const GUID hevc_profiles[] = {AUTOSELECT, HEVC_MAIN, HEVC_MAIN10, HEVC_FREXT};
static const GUID av1_profiles[] = {AUTOSELECT, AV1_MAIN};

static const char *const preset_names[] = {"NV_ENC_PRESET_P1_GUID", "NV_ENC_PRESET_P2_GUID", "NV_ENC_PRESET_P3_GUID",
                                           "NV_ENC_PRESET_P4_GUID", "NV_ENC_PRESET_P5_GUID", "NV_ENC_PRESET_P6_GUID",
                                           "NV_ENC_PRESET_P7_GUID"};
static const char *const codec_guid_names[] = {"NV_ENC_CODEC_H264_GUID", "NV_ENC_CODEC_HEVC_GUID",
                                               "NV_ENC_CODEC_AV1_GUID"};

const char *nvenc_codec_name(nvenc_codec codec) {
    static const char *const names[] = {"h264", "hevc", "av1"};
    return names[codec];
}

const GUID *nvenc_codec_guid(nvenc_codec codec) {
    const GUID *guids[] = {&NV_ENC_CODEC_H264_GUID, &NV_ENC_CODEC_HEVC_GUID, &layout_codec_av1_guid};
    return guids[codec];
}

bool nvenc_same_guid(const GUID *left, const GUID *right) {
    return memcmp(left, right, sizeof *left) == 0;
}

nvenc_codec nvenc_find_codec(const sim_device *device, const GUID *guid) {
    for (nvenc_codec codec = NVENC_H264; codec < NVENC_CODECS; codec++) {
        if (nvenc_same_guid(guid, nvenc_codec_guid(codec)) &&
            sim_find_capability(device, true, nvenc_codec_name(codec), 420, 8) != NULL) {
            return codec;
        }
    }
    return NVENC_CODECS;
}

const GUID *nvenc_preset_guid(unsigned preset) {
    const GUID *guids[] = {&NV_ENC_PRESET_P1_GUID, &NV_ENC_PRESET_P2_GUID, &NV_ENC_PRESET_P3_GUID,
                           &NV_ENC_PRESET_P4_GUID, &NV_ENC_PRESET_P5_GUID, &NV_ENC_PRESET_P6_GUID,
                           &NV_ENC_PRESET_P7_GUID};
    return guids[preset - 1];
}

unsigned nvenc_find_preset(const GUID *guid) {
    for (unsigned preset = 1; preset <= 7; preset++) {
        if (nvenc_same_guid(guid, nvenc_preset_guid(preset))) {
            return preset;
        }
    }
    return 0;
}

static const char *known_name(const GUID *guid) {
    for (nvenc_codec codec = NVENC_H264; codec < NVENC_CODECS; codec++) {
        if (nvenc_same_guid(guid, nvenc_codec_guid(codec))) {
            return codec_guid_names[codec];
        }
    }
    unsigned preset = nvenc_find_preset(guid);
    if (preset != 0) {
        return preset_names[preset - 1];
    }
    for (size_t i = 0; i < sizeof profile_names / sizeof *profile_names; i++) {
        if (nvenc_same_guid(guid, &profile_names[i].guid)) {
            return profile_names[i].name;
        }
    }
    return NULL;
}

nvenc_name nvenc_guid_name(const GUID *guid) {
    nvenc_name name;
    const char *known = known_name(guid);
    if (known != NULL) {
        snprintf(name.text, sizeof name.text, "%s", known);
    } else {
        snprintf(name.text, sizeof name.text, "GUID:%08x", guid->Data1);
    }
    return name;
}

unsigned nvenc_profiles(nvenc_codec codec, const GUID **first) {
    static const GUID *const lists[] = {h264_profiles, hevc_profiles, av1_profiles};
    static const unsigned counts[] = {sizeof h264_profiles / sizeof(GUID), sizeof hevc_profiles / sizeof(GUID),
                                      sizeof av1_profiles / sizeof(GUID)};
    *first = lists[codec];
    return counts[codec];
}

unsigned nvenc_formats(const sim_device *device, nvenc_codec codec, uint32_t *out, unsigned most) {
    static const uint32_t formats[] = {
        NV_ENC_BUFFER_FORMAT_NV12,         NV_ENC_BUFFER_FORMAT_YV12,   NV_ENC_BUFFER_FORMAT_IYUV,
        NV_ENC_BUFFER_FORMAT_YUV444,       LAYOUT_FORMAT_NV16,          NV_ENC_BUFFER_FORMAT_YUV420_10BIT,
        NV_ENC_BUFFER_FORMAT_YUV444_10BIT, LAYOUT_FORMAT_P210,          NV_ENC_BUFFER_FORMAT_ARGB,
        NV_ENC_BUFFER_FORMAT_ABGR,         NV_ENC_BUFFER_FORMAT_ARGB10, NV_ENC_BUFFER_FORMAT_ABGR10,
        NV_ENC_BUFFER_FORMAT_AYUV};
    unsigned count = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        bool can = sim_find_capability(device, true, nvenc_codec_name(codec), nvenc_format_chroma(formats[i]),
                                       nvenc_format_bit_depth(formats[i])) != NULL;
        if (can && count < most) {
            out[count++] = formats[i];
        }
    }
    return count;
}

static bool can_encode(const sim_device *device, nvenc_codec codec, int chroma, int bit_depth) {
    return sim_find_capability(device, true, nvenc_codec_name(codec), chroma, bit_depth) != NULL;
}

/* Sizes, levels and counts, which differ between codecs. */
static int codec_capability(const sim_device *device, nvenc_codec codec, int capability) {
    const sim_capability *plain = sim_find_capability(device, true, nvenc_codec_name(codec), 420, 8);
    static const int b_frames[] = {4, 5, 7};
    static const int level_max[] = {NV_ENC_LEVEL_H264_62, NV_ENC_LEVEL_HEVC_62, 23};
    static const int level_min[] = {NV_ENC_LEVEL_H264_1, NV_ENC_LEVEL_HEVC_1, 0};
    static const int width_min[] = {145, 129, 192};
    static const int height_min[] = {49, 33, 128};
    switch (capability) {
    case NV_ENC_CAPS_NUM_MAX_BFRAMES:
        return b_frames[codec];
    case NV_ENC_CAPS_LEVEL_MAX:
        return level_max[codec];
    case NV_ENC_CAPS_LEVEL_MIN:
        return level_min[codec];
    case NV_ENC_CAPS_WIDTH_MAX:
        return (int)plain->width_max;
    case NV_ENC_CAPS_HEIGHT_MAX:
        return (int)plain->height_max;
    case NV_ENC_CAPS_WIDTH_MIN:
        return width_min[codec];
    case NV_ENC_CAPS_HEIGHT_MIN:
        return height_min[codec];
    case NV_ENC_CAPS_MB_NUM_MAX:
        return (int)((plain->width_max + 15) / 16 * ((plain->height_max + 15) / 16));
    case NV_ENC_CAPS_MB_PER_SEC_MAX:
        return codec == NVENC_H264 ? 983040 : 3932160;
    default:
        return 0;
    }
}

/* Features that only one codec has. */
static int feature_capability(nvenc_codec codec, int capability) {
    switch (capability) {
    case NV_ENC_CAPS_SUPPORT_BDIRECT_MODE:
    case NV_ENC_CAPS_SUPPORT_CABAC:
    case NV_ENC_CAPS_SUPPORT_ADAPTIVE_TRANSFORM:
    case NV_ENC_CAPS_SUPPORT_MONOCHROME:
    case NV_ENC_CAPS_SUPPORT_EMPHASIS_LEVEL_MAP:
        return codec == NVENC_H264;
    case NV_ENC_CAPS_SUPPORT_SAO:
    case NV_ENC_CAPS_SUPPORT_ALPHA_LAYER_ENCODING:
    case LAYOUT_CAPS_SUPPORT_TEMPORAL_FILTER:
        return codec == NVENC_HEVC;
    case NV_ENC_CAPS_SUPPORT_LOSSLESS_ENCODE:
    case NV_ENC_CAPS_SUPPORT_TEMPORAL_SVC:
        return codec != NVENC_AV1;
    case NV_ENC_CAPS_SUPPORT_HIERARCHICAL_PFRAMES:
    case NV_ENC_CAPS_SUPPORT_HIERARCHICAL_BFRAMES:
        return codec == NVENC_H264;
    default:
        return 0;
    }
}

/* Features that all codecs have, with their values. */
static int common_capability(int capability) {
    static const struct {
        int capability;
        int value;
    } common[] = {
        {NV_ENC_CAPS_SUPPORTED_RATECONTROL_MODES, NV_ENC_PARAMS_RC_VBR | NV_ENC_PARAMS_RC_CBR},
        {NV_ENC_CAPS_SUPPORT_QPELMV, 1},
        {NV_ENC_CAPS_NUM_MAX_TEMPORAL_LAYERS, 4},
        {NV_ENC_CAPS_SUPPORT_DYN_RES_CHANGE, 1},
        {NV_ENC_CAPS_SUPPORT_DYN_BITRATE_CHANGE, 1},
        {NV_ENC_CAPS_SUPPORT_DYN_FORCE_CONSTQP, 1},
        {NV_ENC_CAPS_SUPPORT_DYN_RCMODE_CHANGE, 1},
        {NV_ENC_CAPS_SUPPORT_CUSTOM_VBV_BUF_SIZE, 1},
        {NV_ENC_CAPS_SUPPORT_LOOKAHEAD, 1},
        {NV_ENC_CAPS_SUPPORT_TEMPORAL_AQ, 1},
        {NV_ENC_CAPS_DYNAMIC_QUERY_ENCODER_CAPACITY, 100},
        {NV_ENC_CAPS_SUPPORT_BFRAME_REF_MODE, 2},
        {NV_ENC_CAPS_SUPPORT_MULTIPLE_REF_FRAMES, 1},
        {LAYOUT_CAPS_SUPPORT_LOOKAHEAD_LEVEL, 3},
    };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if (common[i].capability == capability) {
            return common[i].value;
        }
    }
    return 0;
}

int nvenc_capability(const sim_device *device, nvenc_codec codec, int capability) {
    switch (capability) {
    case NV_ENC_CAPS_SUPPORT_YUV444_ENCODE:
        return can_encode(device, codec, 444, 8);
    case LAYOUT_CAPS_SUPPORT_YUV422_ENCODE:
        return can_encode(device, codec, 422, 8);
    case NV_ENC_CAPS_SUPPORT_10BIT_ENCODE:
        return can_encode(device, codec, 420, 10);
    case NV_ENC_CAPS_NUM_ENCODER_ENGINES:
        return device->engines[SIM_NVENC];
    default:
        break;
    }
    int value = codec_capability(device, codec, capability);
    value = value != 0 ? value : feature_capability(codec, capability);
    return value != 0 ? value : common_capability(capability);
}

static bool is_low_latency(unsigned tuning) {
    return tuning == NV_ENC_TUNING_INFO_LOW_LATENCY || tuning == NV_ENC_TUNING_INFO_ULTRA_LOW_LATENCY;
}

/* These presets are our own choice, in the order of the real ones: better presets aim at more and search longer. */
static void fill_rate_control(nvenc_codec codec, unsigned preset, unsigned tuning, layout_rc_params *rc) {
    rc->version = NV_ENC_RC_PARAMS_VER;
    uint32_t base = codec == NVENC_AV1 ? 110 : 28;
    rc->constQP = (NV_ENC_QP){base, base + 3, base - 3};
    rc->averageBitRate = 2000000 + 250000 * preset;
    if (tuning == NV_ENC_TUNING_INFO_LOSSLESS) {
        rc->rateControlMode = NV_ENC_PARAMS_RC_CONSTQP;
        rc->constQP = (NV_ENC_QP){0, 0, 0};
    } else if (is_low_latency(tuning)) {
        rc->rateControlMode = NV_ENC_PARAMS_RC_CBR;
        rc->maxBitRate = rc->averageBitRate;
        rc->lowDelayKeyFrameScale = tuning == NV_ENC_TUNING_INFO_ULTRA_LOW_LATENCY ? 1 : 2;
        rc->zeroReorderDelay = 1;
        rc->multiPass = preset >= 5 ? NV_ENC_TWO_PASS_QUARTER_RESOLUTION : NV_ENC_MULTI_PASS_DISABLED;
    } else {
        rc->rateControlMode = NV_ENC_PARAMS_RC_VBR;
        rc->maxBitRate = rc->averageBitRate + rc->averageBitRate / 2;
        rc->multiPass = preset >= 6 ? NV_ENC_TWO_PASS_QUARTER_RESOLUTION : NV_ENC_MULTI_PASS_DISABLED;
    }
    if (tuning == LAYOUT_TUNING_ULTRA_HIGH_QUALITY) {
        rc->enableLookahead = 1;
        rc->lookaheadDepth = (uint16_t)(8 + 2 * preset);
        rc->enableTemporalAQ = 1;
    }
}

static void fill_h264(layout_h264 *h264, unsigned preset, unsigned gop, unsigned depth) {
    h264->idrPeriod = gop;
    h264->chromaFormatIDC = 1;
    h264->maxNumRefFrames = preset >= 5 ? 4 : 2;
    h264->entropyCodingMode = NV_ENC_H264_ENTROPY_CODING_MODE_CABAC;
    h264->adaptiveTransformMode = NV_ENC_H264_ADAPTIVE_TRANSFORM_ENABLE;
    h264->sliceMode = 3;
    h264->sliceModeData = 1;
    h264->outputBitDepth = depth;
    h264->inputBitDepth = depth;
}

static void fill_hevc(layout_hevc *hevc, unsigned preset, unsigned gop, unsigned depth) {
    hevc->idrPeriod = gop;
    hevc->chromaFormatIDC = 1;
    hevc->maxNumRefFramesInDPB = preset >= 5 ? 4 : 2;
    hevc->maxCUSize = NV_ENC_HEVC_CUSIZE_32x32;
    hevc->minCUSize = preset >= 3 ? NV_ENC_HEVC_CUSIZE_8x8 : NV_ENC_HEVC_CUSIZE_16x16;
    hevc->sliceMode = 3;
    hevc->sliceModeData = 1;
    hevc->outputBitDepth = depth;
    hevc->inputBitDepth = depth;
}

static void fill_av1(layout_av1 *av1, unsigned preset, unsigned gop, unsigned depth) {
    av1->idrPeriod = gop;
    av1->chromaFormatIDC = 1;
    av1->maxNumRefFramesInDPB = preset >= 5 ? 6 : 4;
    av1->colorPrimaries = AVCOL_PRI_UNSPECIFIED;
    av1->transferCharacteristics = AVCOL_TRC_UNSPECIFIED;
    av1->matrixCoefficients = AVCOL_SPC_UNSPECIFIED;
    av1->outputBitDepth = depth;
    av1->inputBitDepth = depth;
}

void nvenc_fill_preset(nvenc_codec codec, unsigned preset, unsigned tuning, unsigned version, layout_config *out) {
    uint32_t kept = out->version;
    memset(out, 0, sizeof *out);
    out->version = kept;
    memcpy(&out->profileGUID, &NV_ENC_CODEC_PROFILE_AUTOSELECT_GUID, sizeof out->profileGUID);
    bool low = is_low_latency(tuning);
    out->gopLength = low ? NVENC_INFINITE_GOPLENGTH : 250;
    out->frameIntervalP = !low && preset >= 3 && codec != NVENC_AV1 ? (preset >= 6 ? 4 : 3) : 1;
    out->frameFieldMode = NV_ENC_PARAMS_FRAME_FIELD_MODE_FRAME;
    out->mvPrecision = NV_ENC_MV_PRECISION_QUARTER_PEL;
    fill_rate_control(codec, preset, tuning, &out->rcParams);
    unsigned depth = version >= 9 ? 8 : 0;
    if (codec == NVENC_H264) {
        fill_h264(&out->encodeCodecConfig.h264Config, preset, out->gopLength, depth);
    } else if (codec == NVENC_HEVC) {
        fill_hevc(&out->encodeCodecConfig.hevcConfig, preset, out->gopLength, depth);
    } else {
        fill_av1(&out->encodeCodecConfig.av1Config, preset, out->gopLength, depth);
    }
}
