/*
 * The structures of the NVENC interface in versions 12.1 to 13.0 that the public header of version 11.1 (Debian's
 * libffmpeg-nvenc-dev) does not have.
 *
 * Structures with an unchanged layout are used from that header. Those that grew into their reserved space are here
 * with the same names of fields; if two versions use the same bits differently, a comment says so. Sizes and offsets
 * are the same in all these versions, except those of the flags of NV_ENC_RECONFIGURE_PARAMS, which are eight bytes
 * further on before 12.2.
 */
#ifndef CODECFLEET_DRIVER_SIM_NVENC_LAYOUT_H
#define CODECFLEET_DRIVER_SIM_NVENC_LAYOUT_H

#include <ffnvcodec/nvEncodeAPI.h>

/* {0A352289-0AA7-4759-862D-5D15CD16D254} */
static const GUID layout_codec_av1_guid = {
    0x0a352289, 0x0aa7, 0x4759, {0x86, 0x2d, 0x5d, 0x15, 0xcd, 0x16, 0xd2, 0x54}};

enum {
    LAYOUT_FORMAT_NV16 = 0x40000001,
    LAYOUT_FORMAT_P210 = 0x40000002,
    LAYOUT_TUNING_ULTRA_HIGH_QUALITY = 5,
    LAYOUT_PIC_FLAG_MOST = 0x3f
};

/* The members of NV_ENC_CAPS after NV_ENC_CAPS_SINGLE_SLICE_INTRA_REFRESH. */
enum {
    LAYOUT_CAPS_DISABLE_ENC_STATE_ADVANCE = NV_ENC_CAPS_SINGLE_SLICE_INTRA_REFRESH + 1,
    LAYOUT_CAPS_OUTPUT_RECON_SURFACE,
    LAYOUT_CAPS_OUTPUT_BLOCK_STATS,
    LAYOUT_CAPS_OUTPUT_ROW_STATS,
    LAYOUT_CAPS_SUPPORT_TEMPORAL_FILTER,
    LAYOUT_CAPS_SUPPORT_LOOKAHEAD_LEVEL,
    LAYOUT_CAPS_SUPPORT_UNIDIRECTIONAL_B,
    LAYOUT_CAPS_SUPPORT_MVHEVC_ENCODE,
    LAYOUT_CAPS_SUPPORT_YUV422_ENCODE,
    LAYOUT_CAPS_END
};

/* NV_ENC_RC_PARAMS, 128 bytes. */
typedef struct layout_rc_params {
    uint32_t version;
    uint32_t rateControlMode;
    NV_ENC_QP constQP;
    uint32_t averageBitRate;
    uint32_t maxBitRate;
    uint32_t vbvBufferSize;
    uint32_t vbvInitialDelay;
    uint32_t enableMinQP : 1;
    uint32_t enableMaxQP : 1;
    uint32_t enableInitialRCQP : 1;
    uint32_t enableAQ : 1;
    uint32_t reservedBitField1 : 1;
    uint32_t enableLookahead : 1;
    uint32_t disableIadapt : 1;
    uint32_t disableBadapt : 1;
    uint32_t enableTemporalAQ : 1;
    uint32_t zeroReorderDelay : 1;
    uint32_t enableNonRefP : 1;
    uint32_t strictGOPTarget : 1;
    uint32_t aqStrength : 4;
    uint32_t enableExtLookahead : 1; /* from 12.1 */
    uint32_t reservedBitFields : 15;
    NV_ENC_QP minQP;
    NV_ENC_QP maxQP;
    NV_ENC_QP initialRCQP;
    uint32_t temporallayerIdxMask;
    uint8_t temporalLayerQP[8];
    uint8_t targetQuality;
    uint8_t targetQualityLSB;
    uint16_t lookaheadDepth;
    uint8_t lowDelayKeyFrameScale;
    int8_t yDcQPIndexOffset;
    int8_t uDcQPIndexOffset;
    int8_t vDcQPIndexOffset;
    uint32_t qpMapMode;
    uint32_t multiPass;
    uint32_t alphaLayerBitrateRatio;
    int8_t cbQPIndexOffset;
    int8_t crQPIndexOffset;
    uint16_t reserved2;
    uint32_t lookaheadLevel; /* from 12.2 */
    uint8_t viewBitrateRatios[7]; /* from 13.0 */
    uint8_t reserved3;
    uint32_t reserved1;
} layout_rc_params;

/* NV_ENC_CONFIG_H264_VUI_PARAMETERS, also for HEVC, 112 bytes. */
typedef struct layout_vui {
    uint32_t overscanInfoPresentFlag;
    uint32_t overscanInfo;
    uint32_t videoSignalTypePresentFlag;
    uint32_t videoFormat;
    uint32_t videoFullRangeFlag;
    uint32_t colourDescriptionPresentFlag;
    uint32_t colourPrimaries;
    uint32_t transferCharacteristics;
    uint32_t colourMatrix;
    uint32_t chromaSampleLocationFlag;
    uint32_t chromaSampleLocationTop;
    uint32_t chromaSampleLocationBot;
    uint32_t bitstreamRestrictionFlag;
    uint32_t timingInfoPresentFlag;
    uint32_t numUnitInTicks;
    uint32_t timeScale;
    uint32_t reserved[12];
} layout_vui;

/* NV_ENC_CONFIG_H264, 1792 bytes. */
typedef struct layout_h264 {
    uint32_t enableTemporalSVC : 1;
    uint32_t enableStereoMVC : 1;
    uint32_t hierarchicalPFrames : 1;
    uint32_t hierarchicalBFrames : 1;
    uint32_t outputBufferingPeriodSEI : 1;
    uint32_t outputPictureTimingSEI : 1;
    uint32_t outputAUD : 1;
    uint32_t disableSPSPPS : 1;
    uint32_t outputFramePackingSEI : 1;
    uint32_t outputRecoveryPointSEI : 1;
    uint32_t enableIntraRefresh : 1;
    uint32_t enableConstrainedEncoding : 1;
    uint32_t repeatSPSPPS : 1;
    uint32_t enableVFR : 1;
    uint32_t enableLTR : 1;
    uint32_t qpPrimeYZeroTransformBypassFlag : 1;
    uint32_t useConstrainedIntraPred : 1;
    uint32_t enableFillerDataInsertion : 1;
    uint32_t disableSVCPrefixNalu : 1;
    uint32_t enableScalabilityInfoSEI : 1;
    uint32_t singleSliceIntraRefresh : 1;
    uint32_t enableTimeCode : 1;
    uint32_t reservedBitFields : 10;
    uint32_t level;
    uint32_t idrPeriod;
    uint32_t separateColourPlaneFlag;
    uint32_t disableDeblockingFilterIDC;
    uint32_t numTemporalLayers;
    uint32_t spsId;
    uint32_t ppsId;
    uint32_t adaptiveTransformMode;
    uint32_t fmoMode;
    uint32_t bdirectMode;
    uint32_t entropyCodingMode;
    uint32_t stereoMode;
    uint32_t intraRefreshPeriod;
    uint32_t intraRefreshCnt;
    uint32_t maxNumRefFrames;
    uint32_t sliceMode;
    uint32_t sliceModeData;
    layout_vui h264VUIParameters;
    uint32_t ltrNumFrames;
    uint32_t ltrTrustMode;
    uint32_t chromaFormatIDC;
    uint32_t maxTemporalLayers;
    uint32_t useBFramesAsRef;
    uint32_t numRefL0;
    uint32_t numRefL1;
    uint32_t outputBitDepth; /* the last three from 12.2 */
    uint32_t inputBitDepth;
    uint32_t tfLevel;
    uint32_t reserved1[264];
    void *reserved2[64];
} layout_h264;

/* NV_ENC_CONFIG_HEVC, 1560 bytes. */
typedef struct layout_hevc {
    uint32_t level;
    uint32_t tier;
    uint32_t minCUSize;
    uint32_t maxCUSize;
    uint32_t useConstrainedIntraPred : 1;
    uint32_t disableDeblockAcrossSliceBoundary : 1;
    uint32_t outputBufferingPeriodSEI : 1;
    uint32_t outputPictureTimingSEI : 1;
    uint32_t outputAUD : 1;
    uint32_t enableLTR : 1;
    uint32_t disableSPSPPS : 1;
    uint32_t repeatSPSPPS : 1;
    uint32_t enableIntraRefresh : 1;
    uint32_t chromaFormatIDC : 2;
    uint32_t pixelBitDepthMinus8 : 3; /* until 12.1; later reserved, with the depths below */
    uint32_t enableFillerDataInsertion : 1;
    uint32_t enableConstrainedEncoding : 1;
    uint32_t enableAlphaLayerEncoding : 1;
    uint32_t singleSliceIntraRefresh : 1;
    uint32_t outputRecoveryPointSEI : 1;
    uint32_t outputTimeCodeSEI : 1;
    uint32_t enableTemporalSVC : 1;
    uint32_t enableMVHEVC : 1;
    uint32_t outputHevc3DReferenceDisplayInfo : 1;
    uint32_t outputMaxCll : 1;
    uint32_t outputMasteringDisplay : 1;
    uint32_t reserved : 7;
    uint32_t idrPeriod;
    uint32_t intraRefreshPeriod;
    uint32_t intraRefreshCnt;
    uint32_t maxNumRefFramesInDPB;
    uint32_t ltrNumFrames;
    uint32_t vpsId;
    uint32_t spsId;
    uint32_t ppsId;
    uint32_t sliceMode;
    uint32_t sliceModeData;
    uint32_t maxTemporalLayersMinus1;
    layout_vui hevcVUIParameters;
    uint32_t ltrTrustMode;
    uint32_t useBFramesAsRef;
    uint32_t numRefL0;
    uint32_t numRefL1;
    uint32_t tfLevel; /* the last six from 12.2 and 13.0 */
    uint32_t disableDeblockingFilterIDC;
    uint32_t outputBitDepth;
    uint32_t inputBitDepth;
    uint32_t numTemporalLayers;
    uint32_t numViews;
    uint32_t reserved1[208];
    void *reserved2[64];
} layout_hevc;


/* NV_ENC_CONFIG_AV1, 1552 bytes. */
typedef struct layout_av1 {
    uint32_t level;
    uint32_t tier;
    uint32_t minPartSize;
    uint32_t maxPartSize;
    uint32_t outputAnnexBFormat : 1;
    uint32_t enableTimingInfo : 1;
    uint32_t enableDecoderModelInfo : 1;
    uint32_t enableFrameIdNumbers : 1;
    uint32_t disableSeqHdr : 1;
    uint32_t repeatSeqHdr : 1;
    uint32_t enableIntraRefresh : 1;
    uint32_t chromaFormatIDC : 2;
    uint32_t enableBitstreamPadding : 1;
    uint32_t enableCustomTileConfig : 1;
    uint32_t enableFilmGrainParams : 1;
    uint32_t inputPixelBitDepthMinus8 : 3; /* until 12.1; then enableLTR, enableTemporalSVC, outputMaxCll */
    uint32_t pixelBitDepthMinus8 : 3;      /* until 12.1; then outputMasteringDisplay and two reserved bits */
    uint32_t reserved : 14;
    uint32_t idrPeriod;
    uint32_t intraRefreshPeriod;
    uint32_t intraRefreshCnt;
    uint32_t maxNumRefFramesInDPB;
    uint32_t numTileColumns;
    uint32_t numTileRows;
    uint32_t reserved2;
    uint32_t *tileWidths;
    uint32_t *tileHeights;
    uint32_t maxTemporalLayersMinus1;
    uint32_t colorPrimaries;
    uint32_t transferCharacteristics;
    uint32_t matrixCoefficients;
    uint32_t colorRange;
    uint32_t chromaSamplePosition;
    uint32_t useBFramesAsRef;
    void *filmGrainParams;
    uint32_t numFwdRefs;
    uint32_t numBwdRefs;
    uint32_t outputBitDepth; /* the last five from 12.2 and 13.0 */
    uint32_t inputBitDepth;
    uint32_t ltrNumFrames;
    uint32_t numTemporalLayers;
    uint32_t tfLevel;
    uint32_t reserved1[230];
    void *reserved3[62];
} layout_av1;

/* NV_ENC_CONFIG, 3584 bytes. */
typedef struct layout_config {
    uint32_t version;
    GUID profileGUID;
    uint32_t gopLength;
    int32_t frameIntervalP;
    uint32_t monoChromeEncoding;
    uint32_t frameFieldMode;
    uint32_t mvPrecision;
    layout_rc_params rcParams;
    union {
        layout_h264 h264Config;
        layout_hevc hevcConfig;
        layout_av1 av1Config;
        uint32_t reserved[320];
    } encodeCodecConfig;
    uint32_t reserved[278];
    void *reserved2[64];
} layout_config;

/* NV_ENC_INITIALIZE_PARAMS, 1800 bytes. */
typedef struct layout_initialize_params {
    uint32_t version;
    GUID encodeGUID;
    GUID presetGUID;
    uint32_t encodeWidth;
    uint32_t encodeHeight;
    uint32_t darWidth;
    uint32_t darHeight;
    uint32_t frameRateNum;
    uint32_t frameRateDen;
    uint32_t enableEncodeAsync;
    uint32_t enablePTD;
    uint32_t reportSliceOffsets : 1;
    uint32_t enableSubFrameWrite : 1;
    uint32_t enableExternalMEHints : 1;
    uint32_t enableMEOnlyMode : 1;
    uint32_t enableWeightedPrediction : 1;
    uint32_t splitEncodeMode : 4; /* from 12.1 */
    uint32_t enableOutputInVidmem : 1;
    uint32_t enableReconFrameOutput : 1;
    uint32_t enableOutputStats : 1;
    uint32_t enableUniDirectionalB : 1;
    uint32_t reservedBitFields : 19;
    uint32_t privDataSize;
    uint32_t reserved;
    void *privData;
    layout_config *encodeConfig;
    uint32_t maxEncodeWidth;
    uint32_t maxEncodeHeight;
    NVENC_EXTERNAL_ME_HINT_COUNTS_PER_BLOCKTYPE maxMEHintCountsPerBlock[2];
    uint32_t tuningInfo;
    uint32_t bufferFormat;
    uint32_t numStateBuffers;
    uint32_t outputStatsLevel;
    uint32_t reserved1[284];
    void *reserved2[64];
} layout_initialize_params;

typedef struct layout_preset_config {
    uint32_t version;
    uint32_t reserved;
    layout_config presetCfg;
    uint32_t reserved1[256];
    void *reserved2[64];
} layout_preset_config;

typedef struct layout_reconfigure_params {
    uint32_t version;
    uint32_t reserved;
    layout_initialize_params reInitEncodeParams;
    uint32_t resetEncoder : 1;
    uint32_t forceIDR : 1;
    uint32_t reserved1 : 30;
    uint32_t reserved2;
} layout_reconfigure_params;

/* The beginning of NV_ENC_PIC_PARAMS_AV1. */
typedef struct layout_pic_params_av1 {
    uint32_t displayPOCSyntax;
    uint32_t refPicFlag;
    uint32_t temporalId;
    uint32_t forceIntraRefreshWithFrameCnt;
    uint32_t flags;
    uint32_t numTileColumns;
    uint32_t numTileRows;
    uint32_t reserved;
    uint32_t *tileWidths;
    uint32_t *tileHeights;
    uint32_t obuPayloadArrayCnt;
    uint32_t reserved1;
    NV_ENC_SEI_PAYLOAD *obuPayloadArray;
} layout_pic_params_av1;

/* NV_ENC_LOCK_BITSTREAM from 12.1 on, 1544 bytes; after temporalId it differs from 11.1. */
typedef struct layout_lock_bitstream {
    uint32_t version;
    uint32_t doNotWait : 1;
    uint32_t ltrFrame : 1;
    uint32_t getRCStats : 1;
    uint32_t reservedBitFields : 29;
    void *outputBitstream;
    uint32_t *sliceOffsets;
    uint32_t frameIdx;
    uint32_t hwEncodeStatus;
    uint32_t numSlices;
    uint32_t bitstreamSizeInBytes;
    uint64_t outputTimeStamp;
    uint64_t outputDuration;
    void *bitstreamBufferPtr;
    uint32_t pictureType;
    uint32_t pictureStruct;
    uint32_t frameAvgQP;
    uint32_t frameSatd;
    uint32_t ltrFrameIdx;
    uint32_t ltrFrameBitmap;
    uint32_t temporalId;
    uint32_t intraMBCount;
    uint32_t interMBCount;
    int32_t averageMVX;
    int32_t averageMVY;
    uint32_t alphaLayerSizeInBytes;
    uint32_t outputStatsPtrSize;
    uint32_t reserved;
    void *outputStatsPtr;
    uint32_t frameIdxDisplay;
    uint32_t reserved1[219];
    void *reserved2[63];
    uint32_t reservedInternal[8];
} layout_lock_bitstream;

_Static_assert(sizeof(layout_rc_params) == sizeof(NV_ENC_RC_PARAMS), "rate control");
_Static_assert(sizeof(layout_vui) == sizeof(NV_ENC_CONFIG_H264_VUI_PARAMETERS), "VUI");
_Static_assert(sizeof(layout_h264) == 1792, "H.264");
_Static_assert(sizeof(layout_hevc) == 1560, "HEVC");
_Static_assert(sizeof(layout_config) == 3584, "configuration");
_Static_assert(sizeof(layout_initialize_params) == 1800, "initialisation");
_Static_assert(sizeof(layout_lock_bitstream) == 1544, "lock");

#endif
