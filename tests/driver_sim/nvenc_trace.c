/*
 * Writes every field of a configuration into the trace, under the header's own names, so that a test can read the
 * caller's settings.
 *
 * There is one line for each structure, under the entry point's name: NV_ENC_INITIALIZE_PARAMS, NV_ENC_CONFIG,
 * rcParams, the codec's part ("h264Config.", "hevcConfig.", "av1Config.") and its VUI. GUIDs have their names in the
 * header.
 */
#include "nvenc.h"

#include <stdio.h>

#define LINE_BYTES 3072
#define CONFIG_VERSION_121 8

typedef struct line {
    char text[LINE_BYTES];
    int length;
} line;

static void add_text(line *out, const char *prefix, const char *name, const char *value) {
    int room = LINE_BYTES - out->length;
    int added = snprintf(out->text + out->length, (size_t)room, "%s%s%s=%s", out->length == 0 ? "" : " ", prefix, name,
                         value);
    out->length += added < room ? added : 0;
}

static void add(line *out, const char *prefix, const char *name, long long value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    add_text(out, prefix, name, text);
}

static void flush(const char *function, line *out) {
    sim_trace(function, "%s", out->text);
    out->length = 0;
    out->text[0] = '\0';
}

/* The fields, in the order of the header; LATER are fields that are newer than 12.1, in space that was reserved. */
#define INITIALIZE_FIELDS(FIELD) \
    FIELD(encodeWidth) FIELD(encodeHeight) FIELD(darWidth) FIELD(darHeight) FIELD(frameRateNum) FIELD(frameRateDen) \
    FIELD(enableEncodeAsync) FIELD(enablePTD) FIELD(reportSliceOffsets) FIELD(enableSubFrameWrite) \
    FIELD(enableExternalMEHints) FIELD(enableMEOnlyMode) FIELD(enableWeightedPrediction) FIELD(splitEncodeMode) \
    FIELD(enableOutputInVidmem) FIELD(enableReconFrameOutput) FIELD(enableOutputStats) FIELD(enableUniDirectionalB) \
    FIELD(privDataSize) FIELD(maxEncodeWidth) FIELD(maxEncodeHeight) FIELD(tuningInfo) FIELD(bufferFormat) \
    FIELD(numStateBuffers) FIELD(outputStatsLevel)

#define CONFIG_FIELDS(FIELD) \
    FIELD(gopLength) FIELD(frameIntervalP) FIELD(monoChromeEncoding) FIELD(frameFieldMode) FIELD(mvPrecision)

#define RATE_FIELDS(FIELD) \
    FIELD(rateControlMode) FIELD(averageBitRate) FIELD(maxBitRate) FIELD(vbvBufferSize) FIELD(vbvInitialDelay) \
    FIELD(enableMinQP) FIELD(enableMaxQP) FIELD(enableInitialRCQP) FIELD(enableAQ) FIELD(enableLookahead) \
    FIELD(disableIadapt) FIELD(disableBadapt) FIELD(enableTemporalAQ) FIELD(zeroReorderDelay) FIELD(enableNonRefP) \
    FIELD(strictGOPTarget) FIELD(aqStrength) FIELD(enableExtLookahead) FIELD(temporallayerIdxMask) \
    FIELD(targetQuality) FIELD(targetQualityLSB) FIELD(lookaheadDepth) FIELD(lowDelayKeyFrameScale) \
    FIELD(yDcQPIndexOffset) FIELD(uDcQPIndexOffset) FIELD(vDcQPIndexOffset) FIELD(qpMapMode) FIELD(multiPass) \
    FIELD(alphaLayerBitrateRatio) FIELD(cbQPIndexOffset) FIELD(crQPIndexOffset) FIELD(lookaheadLevel)

#define VUI_FIELDS(FIELD) \
    FIELD(overscanInfoPresentFlag) FIELD(overscanInfo) FIELD(videoSignalTypePresentFlag) FIELD(videoFormat) \
    FIELD(videoFullRangeFlag) FIELD(colourDescriptionPresentFlag) FIELD(colourPrimaries) \
    FIELD(transferCharacteristics) FIELD(colourMatrix) FIELD(chromaSampleLocationFlag) \
    FIELD(chromaSampleLocationTop) FIELD(chromaSampleLocationBot) FIELD(bitstreamRestrictionFlag) \
    FIELD(timingInfoPresentFlag) FIELD(numUnitInTicks) FIELD(timeScale)

#define H264_FIELDS(FIELD) \
    FIELD(enableTemporalSVC) FIELD(enableStereoMVC) FIELD(hierarchicalPFrames) FIELD(hierarchicalBFrames) \
    FIELD(outputBufferingPeriodSEI) FIELD(outputPictureTimingSEI) FIELD(outputAUD) FIELD(disableSPSPPS) \
    FIELD(outputFramePackingSEI) FIELD(outputRecoveryPointSEI) FIELD(enableIntraRefresh) \
    FIELD(enableConstrainedEncoding) FIELD(repeatSPSPPS) FIELD(enableVFR) FIELD(enableLTR) \
    FIELD(qpPrimeYZeroTransformBypassFlag) FIELD(useConstrainedIntraPred) FIELD(enableFillerDataInsertion) \
    FIELD(disableSVCPrefixNalu) FIELD(enableScalabilityInfoSEI) FIELD(singleSliceIntraRefresh) FIELD(enableTimeCode) \
    FIELD(level) FIELD(idrPeriod) FIELD(separateColourPlaneFlag) FIELD(disableDeblockingFilterIDC) \
    FIELD(numTemporalLayers) FIELD(spsId) FIELD(ppsId) FIELD(adaptiveTransformMode) FIELD(fmoMode) \
    FIELD(bdirectMode) FIELD(entropyCodingMode) FIELD(stereoMode) FIELD(intraRefreshPeriod) FIELD(intraRefreshCnt) \
    FIELD(maxNumRefFrames) FIELD(sliceMode) FIELD(sliceModeData) FIELD(ltrNumFrames) FIELD(ltrTrustMode) \
    FIELD(chromaFormatIDC) FIELD(maxTemporalLayers) FIELD(useBFramesAsRef) FIELD(numRefL0) FIELD(numRefL1)

#define H264_LATER_FIELDS(FIELD) \
    FIELD(outputBitDepth) FIELD(inputBitDepth) FIELD(tfLevel)

#define HEVC_FIELDS(FIELD) \
    FIELD(level) FIELD(tier) FIELD(minCUSize) FIELD(maxCUSize) FIELD(useConstrainedIntraPred) \
    FIELD(disableDeblockAcrossSliceBoundary) FIELD(outputBufferingPeriodSEI) FIELD(outputPictureTimingSEI) \
    FIELD(outputAUD) FIELD(enableLTR) FIELD(disableSPSPPS) FIELD(repeatSPSPPS) FIELD(enableIntraRefresh) \
    FIELD(chromaFormatIDC) FIELD(enableFillerDataInsertion) FIELD(enableConstrainedEncoding) \
    FIELD(enableAlphaLayerEncoding) FIELD(singleSliceIntraRefresh) FIELD(outputRecoveryPointSEI) \
    FIELD(outputTimeCodeSEI) FIELD(enableTemporalSVC) FIELD(enableMVHEVC) FIELD(outputHevc3DReferenceDisplayInfo) \
    FIELD(outputMaxCll) FIELD(outputMasteringDisplay) FIELD(idrPeriod) FIELD(intraRefreshPeriod) \
    FIELD(intraRefreshCnt) FIELD(maxNumRefFramesInDPB) FIELD(ltrNumFrames) FIELD(vpsId) FIELD(spsId) FIELD(ppsId) \
    FIELD(sliceMode) FIELD(sliceModeData) FIELD(maxTemporalLayersMinus1) FIELD(ltrTrustMode) FIELD(useBFramesAsRef) \
    FIELD(numRefL0) FIELD(numRefL1)

#define HEVC_LATER_FIELDS(FIELD) \
    FIELD(tfLevel) FIELD(disableDeblockingFilterIDC) FIELD(outputBitDepth) FIELD(inputBitDepth) \
    FIELD(numTemporalLayers) FIELD(numViews)

#define AV1_FIELDS(FIELD) \
    FIELD(level) FIELD(tier) FIELD(minPartSize) FIELD(maxPartSize) FIELD(outputAnnexBFormat) FIELD(enableTimingInfo) \
    FIELD(enableDecoderModelInfo) FIELD(enableFrameIdNumbers) FIELD(disableSeqHdr) FIELD(repeatSeqHdr) \
    FIELD(enableIntraRefresh) FIELD(chromaFormatIDC) FIELD(enableBitstreamPadding) FIELD(enableCustomTileConfig) \
    FIELD(enableFilmGrainParams) FIELD(idrPeriod) FIELD(intraRefreshPeriod) FIELD(intraRefreshCnt) \
    FIELD(maxNumRefFramesInDPB) FIELD(numTileColumns) FIELD(numTileRows) FIELD(maxTemporalLayersMinus1) \
    FIELD(colorPrimaries) FIELD(transferCharacteristics) FIELD(matrixCoefficients) FIELD(colorRange) \
    FIELD(chromaSamplePosition) FIELD(useBFramesAsRef) FIELD(numFwdRefs) FIELD(numBwdRefs)

#define AV1_LATER_FIELDS(FIELD) \
    FIELD(outputBitDepth) FIELD(inputBitDepth) FIELD(ltrNumFrames) FIELD(numTemporalLayers) FIELD(tfLevel)

/* Adds a field of `from`; each function below has a variable of that name. */
#define ADD(name) add(&out, prefix, #name, (long long)from->name);

static void trace_params(const char *function, const layout_initialize_params *from) {
    line out = {"", 0};
    const char *prefix = "";
    add_text(&out, prefix, "encodeGUID", nvenc_guid_name(&from->encodeGUID).text);
    add_text(&out, prefix, "presetGUID", nvenc_guid_name(&from->presetGUID).text);
    INITIALIZE_FIELDS(ADD)
    add(&out, prefix, "structVersion", nvenc_struct_version(from->version));
    flush(function, &out);
}

static void trace_config(const char *function, const layout_config *from) {
    line out = {"", 0};
    const char *prefix = "";
    add_text(&out, prefix, "profileGUID", nvenc_guid_name(&from->profileGUID).text);
    CONFIG_FIELDS(ADD)
    flush(function, &out);
}

static void add_qp(line *out, const char *prefix, const NV_ENC_QP *qp) {
    add(out, prefix, "qpInterP", (int32_t)qp->qpInterP);
    add(out, prefix, "qpInterB", (int32_t)qp->qpInterB);
    add(out, prefix, "qpIntra", (int32_t)qp->qpIntra);
}

static void trace_rate(const char *function, const layout_rc_params *from) {
    line out = {"", 0};
    const char *prefix = "rcParams.";
    RATE_FIELDS(ADD)
    add_qp(&out, "rcParams.constQP.", &from->constQP);
    add_qp(&out, "rcParams.minQP.", &from->minQP);
    add_qp(&out, "rcParams.maxQP.", &from->maxQP);
    add_qp(&out, "rcParams.initialRCQP.", &from->initialRCQP);
    flush(function, &out);
}

static void trace_vui(const char *function, const char *prefix, const layout_vui *from) {
    line out = {"", 0};
    VUI_FIELDS(ADD)
    flush(function, &out);
}

static void trace_h264(const char *function, const layout_h264 *from, bool old) {
    line out = {"", 0};
    const char *prefix = "h264Config.";
    H264_FIELDS(ADD)
    if (!old) {
        H264_LATER_FIELDS(ADD)
    }
    flush(function, &out);
    trace_vui(function, "h264Config.h264VUIParameters.", &from->h264VUIParameters);
}

static void trace_hevc(const char *function, const layout_hevc *from, bool old) {
    line out = {"", 0};
    const char *prefix = "hevcConfig.";
    HEVC_FIELDS(ADD)
    if (old) {
        ADD(pixelBitDepthMinus8)
    } else {
        HEVC_LATER_FIELDS(ADD)
    }
    flush(function, &out);
    trace_vui(function, "hevcConfig.hevcVUIParameters.", &from->hevcVUIParameters);
}

static void trace_av1(const char *function, const layout_av1 *from, bool old) {
    line out = {"", 0};
    const char *prefix = "av1Config.";
    AV1_FIELDS(ADD)
    if (old) {
        ADD(inputPixelBitDepthMinus8)
        ADD(pixelBitDepthMinus8)
    } else {
        AV1_LATER_FIELDS(ADD)
        add(&out, prefix, "enableLTR", from->inputPixelBitDepthMinus8 & 1);
        add(&out, prefix, "enableTemporalSVC", from->inputPixelBitDepthMinus8 >> 1 & 1);
        add(&out, prefix, "outputMaxCll", from->inputPixelBitDepthMinus8 >> 2 & 1);
        add(&out, prefix, "outputMasteringDisplay", from->pixelBitDepthMinus8 & 1);
    }
    flush(function, &out);
}

void nvenc_trace_settings(const char *function, const layout_initialize_params *params, const layout_config *config) {
    if (!sim_is_traced()) {
        return;
    }
    trace_params(function, params);
    if (config == NULL) {
        return;
    }
    bool old = nvenc_struct_version(config->version) <= CONFIG_VERSION_121;
    trace_config(function, config);
    trace_rate(function, &config->rcParams);
    if (nvenc_same_guid(&params->encodeGUID, nvenc_codec_guid(NVENC_H264))) {
        trace_h264(function, &config->encodeCodecConfig.h264Config, old);
    } else if (nvenc_same_guid(&params->encodeGUID, nvenc_codec_guid(NVENC_HEVC))) {
        trace_hevc(function, &config->encodeCodecConfig.hevcConfig, old);
    } else {
        trace_av1(function, &config->encodeCodecConfig.av1Config, old);
    }
}
