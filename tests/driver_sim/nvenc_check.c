/* Turns NV_ENC_INITIALIZE_PARAMS into settings, or refuses it as the interface's documentation says. */
#include "nvenc.h"

#include <string.h>

#define H264_QP_MOST 51
#define AV1_QP_MOST 255
#define LOOKAHEAD_MOST 32
#define CONFIG_VERSION_121 8

/* A driver branch and its newest interface, newest first (release notes of the Video Codec SDK). */
static const struct {
    int driver_major;
    uint32_t version;
} interfaces[] = {{610, 0xD1}, {570, 0xD0}, {550, 0xC2}, {530, 0xC1}, {520, 0xC0}, {470, 0xB1}, {0, 0xB0}};

uint32_t nvenc_max_version(void) {
    int driver_major = sim_machine()->driver_major;
    size_t i = 0;
    while (interfaces[i].driver_major > driver_major) {
        i++;
    }
    return interfaces[i].version;
}

unsigned nvenc_struct_version(uint32_t version) {
    return version >> 16 & 0xff;
}

bool nvenc_knows_version(uint32_t version) {
    uint32_t asked = (version & 0xff) << 4 | (version >> 24 & 0xf);
    return (version >> 28 & 0x7) == 0x7 && asked >= 0xB0 && asked <= nvenc_max_version();
}

/* Depth of the bitstream: in 12.1, bit fields for HEVC and AV1; for H.264 the depth of the input. */
static int bit_depth_of(const layout_config *config, nvenc_codec codec) {
    bool old = nvenc_struct_version(config->version) <= CONFIG_VERSION_121;
    uint32_t depth = 0;
    if (codec == NVENC_H264) {
        depth = old ? 8 : config->encodeCodecConfig.h264Config.outputBitDepth;
    } else if (codec == NVENC_HEVC) {
        const layout_hevc *hevc = &config->encodeCodecConfig.hevcConfig;
        depth = old ? hevc->pixelBitDepthMinus8 + 8u : hevc->outputBitDepth;
    } else {
        const layout_av1 *av1 = &config->encodeCodecConfig.av1Config;
        depth = old ? av1->pixelBitDepthMinus8 + 8u : av1->outputBitDepth;
    }
    return depth == 0 ? 8 : (int)depth;
}

static int chroma_of(const layout_config *config, nvenc_codec codec) {
    static const int chromas[] = {420, 420, 422, 444};
    uint32_t idc = codec == NVENC_H264   ? config->encodeCodecConfig.h264Config.chromaFormatIDC
                   : codec == NVENC_HEVC ? config->encodeCodecConfig.hevcConfig.chromaFormatIDC
                                         : config->encodeCodecConfig.av1Config.chromaFormatIDC;
    return idc < 4 ? chromas[idc] : 0;
}

static bool over(const NV_ENC_QP *qp, uint32_t most) {
    return qp->qpInterP > most || qp->qpInterB > most || qp->qpIntra > most;
}

static const char *rate_control_fault(const layout_rc_params *rc, nvenc_codec codec) {
    uint32_t qp_most = codec == NVENC_AV1 ? AV1_QP_MOST : H264_QP_MOST;
    if (rc->rateControlMode > NV_ENC_PARAMS_RC_CBR) {
        return "rcParams.rateControlMode is none of this interface";
    }
    if (rc->rateControlMode == NV_ENC_PARAMS_RC_CONSTQP && over(&rc->constQP, qp_most)) {
        return "rcParams.constQP is out of range";
    }
    if ((rc->enableMinQP && over(&rc->minQP, qp_most)) || (rc->enableMaxQP && over(&rc->maxQP, qp_most)) ||
        (rc->enableInitialRCQP && over(&rc->initialRCQP, qp_most))) {
        return "a QP of rcParams is out of range";
    }
    if (rc->targetQuality > (codec == NVENC_AV1 ? 63 : 51)) {
        return "rcParams.targetQuality is out of range";
    }
    if (rc->rateControlMode == NV_ENC_PARAMS_RC_VBR && rc->maxBitRate != 0 && rc->maxBitRate < rc->averageBitRate) {
        return "rcParams.maxBitRate is below averageBitRate";
    }
    if (rc->vbvBufferSize != 0 && rc->vbvInitialDelay > rc->vbvBufferSize) {
        return "rcParams.vbvInitialDelay is above vbvBufferSize";
    }
    if (rc->enableLookahead && rc->lookaheadDepth > LOOKAHEAD_MOST) {
        return "rcParams.lookaheadDepth is out of range";
    }
    return rc->multiPass > NV_ENC_TWO_PASS_FULL_RESOLUTION ? "rcParams.multiPass is unknown" : NULL;
}

static const char *size_fault(const sim_device *device, const layout_initialize_params *params, nvenc_codec codec) {
    int width = (int)params->encodeWidth;
    int height = (int)params->encodeHeight;
    if (width < nvenc_capability(device, codec, NV_ENC_CAPS_WIDTH_MIN) ||
        height < nvenc_capability(device, codec, NV_ENC_CAPS_HEIGHT_MIN)) {
        return "the picture is smaller than the hardware takes";
    }
    if (width > nvenc_capability(device, codec, NV_ENC_CAPS_WIDTH_MAX) ||
        height > nvenc_capability(device, codec, NV_ENC_CAPS_HEIGHT_MAX)) {
        return "the picture is larger than the hardware takes";
    }
    if ((params->maxEncodeWidth != 0 && params->maxEncodeWidth < params->encodeWidth) ||
        (params->maxEncodeHeight != 0 && params->maxEncodeHeight < params->encodeHeight)) {
        return "maxEncodeWidth or maxEncodeHeight is below the picture's size";
    }
    return NULL;
}

static const char *structure_fault(const sim_device *device, const nvenc_settings *settings) {
    const layout_config *config = &settings->config;
    if (config->frameIntervalP < 0 ||
        config->frameIntervalP - 1 > nvenc_capability(device, settings->codec, NV_ENC_CAPS_NUM_MAX_BFRAMES)) {
        return "frameIntervalP asks for more B pictures than the hardware has";
    }
    if (config->gopLength == 0 || (int64_t)config->gopLength < config->frameIntervalP) {
        return "gopLength is shorter than frameIntervalP";
    }
    if (config->frameFieldMode > NV_ENC_PARAMS_FRAME_FIELD_MODE_FRAME) {
        return "this hardware has no field coding";
    }
    bool odd_width = settings->chroma != 444 && settings->width % 2 != 0;
    if (odd_width || (settings->chroma == 420 && settings->height % 2 != 0)) {
        return "the picture's size is odd";
    }
    return NULL;
}

/* The configuration to use: the caller's, or that of the preset. */
static void take_config(const layout_initialize_params *params, nvenc_settings *out) {
    if (params->encodeConfig != NULL) {
        out->config = *params->encodeConfig;
        return;
    }
    memset(&out->config, 0, sizeof out->config);
    unsigned version = (params->version >> 16 & 0xff) >= 7 ? CONFIG_VERSION_121 + 1 : CONFIG_VERSION_121;
    out->config.version = (params->version & ~0xff0000u) | version << 16;
    nvenc_fill_preset(out->codec, out->preset, out->tuning, version, &out->config);
}

static NVENCSTATUS refuse(NVENCSTATUS status, const char *text, const char **why) {
    *why = text;
    return status;
}

static NVENCSTATUS check_params(const sim_device *device, const layout_initialize_params *params, nvenc_settings *out,
                                const char **why) {
    if (!nvenc_knows_version(params->version) ||
        (params->encodeConfig != NULL && !nvenc_knows_version(params->encodeConfig->version))) {
        return refuse(NV_ENC_ERR_INVALID_VERSION, "a structure's version is none of this driver's", why);
    }
    out->codec = nvenc_find_codec(device, &params->encodeGUID);
    if (out->codec == NVENC_CODECS) {
        return refuse(NV_ENC_ERR_UNSUPPORTED_PARAM, "encodeGUID is not a codec of this hardware", why);
    }
    out->preset = nvenc_find_preset(&params->presetGUID);
    if (out->preset == 0) {
        return refuse(NV_ENC_ERR_INVALID_PARAM, "presetGUID is none of P1 to P7", why);
    }
    out->tuning = params->tuningInfo;
    if (out->tuning == NV_ENC_TUNING_INFO_UNDEFINED || out->tuning > LAYOUT_TUNING_ULTRA_HIGH_QUALITY) {
        return refuse(NV_ENC_ERR_INVALID_PARAM, "tuningInfo is undefined", why);
    }
    if (out->tuning == LAYOUT_TUNING_ULTRA_HIGH_QUALITY && out->codec == NVENC_H264) {
        return refuse(NV_ENC_ERR_UNSUPPORTED_PARAM, "ultra high quality is for HEVC and AV1", why);
    }
    const char *fault = size_fault(device, params, out->codec);
    if (fault == NULL && (params->frameRateNum == 0 || params->frameRateDen == 0)) {
        fault = "the frame rate is not set";
    }
    if (fault == NULL && (params->enableEncodeAsync || !params->enablePTD || params->enableMEOnlyMode)) {
        fault = "this simulator has no asynchronous coding, no outer picture types and no motion estimation alone";
    }
    return fault == NULL ? NV_ENC_SUCCESS : refuse(NV_ENC_ERR_INVALID_PARAM, fault, why);
}

NVENCSTATUS nvenc_check(const sim_device *device, const layout_initialize_params *params, nvenc_settings *out,
                        const char **why) {
    memset(out, 0, sizeof *out);
    NVENCSTATUS status = check_params(device, params, out, why);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    out->width = params->encodeWidth;
    out->height = params->encodeHeight;
    out->rate_num = params->frameRateNum;
    out->rate_den = params->frameRateDen;
    take_config(params, out);
    out->chroma = chroma_of(&out->config, out->codec);
    out->bit_depth = bit_depth_of(&out->config, out->codec);
    if (sim_find_capability(device, true, nvenc_codec_name(out->codec), out->chroma, out->bit_depth) == NULL) {
        return refuse(NV_ENC_ERR_UNSUPPORTED_PARAM, "the hardware has not this chroma format or bit depth", why);
    }
    const char *fault = rate_control_fault(&out->config.rcParams, out->codec);
    fault = fault != NULL ? fault : structure_fault(device, out);
    return fault == NULL ? NV_ENC_SUCCESS : refuse(NV_ENC_ERR_INVALID_PARAM, fault, why);
}
