/* The entry points that query the capabilities of the simulated hardware. */
#include "nvenc.h"

#include <string.h>

/* Begins a query about a codec; NV_ENC_ERR_UNSUPPORTED_PARAM if the device lacks the codec. */
static NVENCSTATUS enter_codec(const char *function, void *encoder, const GUID *guid, nvenc_call *made,
                               nvenc_codec *codec) {
    NVENCSTATUS status = nvenc_enter(function, encoder, made);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    *codec = nvenc_find_codec(made->session->device, guid);
    return *codec == NVENC_CODECS ? nvenc_leave(made, NV_ENC_ERR_UNSUPPORTED_PARAM) : NV_ENC_SUCCESS;
}

static uint32_t codecs_of(const sim_device *device, GUID *out, uint32_t most) {
    uint32_t count = 0;
    for (nvenc_codec codec = NVENC_H264; codec < NVENC_CODECS; codec++) {
        if (nvenc_find_codec(device, nvenc_codec_guid(codec)) == codec && count < most) {
            out[count++] = *nvenc_codec_guid(codec);
        }
    }
    return count;
}

static NVENCSTATUS get_guid_count(void *encoder, uint32_t *count) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncGetEncodeGUIDCount", encoder, &made);
    if (status == NV_ENC_SUCCESS) {
        GUID all[NVENC_CODECS];
        *count = codecs_of(made.session->device, all, NVENC_CODECS);
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS get_guids(void *encoder, GUID *guids, uint32_t size, uint32_t *count) {
    nvenc_call made;
    NVENCSTATUS status = nvenc_enter("NvEncGetEncodeGUIDs", encoder, &made);
    if (status == NV_ENC_SUCCESS) {
        *count = codecs_of(made.session->device, guids, size);
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS get_profile_count(void *encoder, GUID guid, uint32_t *count) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec("NvEncGetEncodeProfileGUIDCount", encoder, &guid, &made, &codec);
    if (status == NV_ENC_SUCCESS) {
        const GUID *first;
        *count = nvenc_profiles(codec, &first);
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS get_profiles(void *encoder, GUID guid, GUID *out, uint32_t size, uint32_t *count) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec("NvEncGetEncodeProfileGUIDs", encoder, &guid, &made, &codec);
    if (status == NV_ENC_SUCCESS) {
        const GUID *first;
        uint32_t known = nvenc_profiles(codec, &first);
        *count = known < size ? known : size;
        memcpy(out, first, *count * sizeof *out);
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS get_formats(void *encoder, GUID guid, NV_ENC_BUFFER_FORMAT *out, uint32_t size, uint32_t *count) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec("NvEncGetInputFormats", encoder, &guid, &made, &codec);
    if (status == NV_ENC_SUCCESS) {
        *count = nvenc_formats(made.session->device, codec, (uint32_t *)(void *)out, size);
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS get_format_count(void *encoder, GUID guid, uint32_t *count) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec("NvEncGetInputFormatCount", encoder, &guid, &made, &codec);
    if (status == NV_ENC_SUCCESS) {
        uint32_t all[32];
        *count = nvenc_formats(made.session->device, codec, all, 32);
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS get_caps(void *encoder, GUID guid, NV_ENC_CAPS_PARAM *param, int *value) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec("NvEncGetEncodeCaps", encoder, &guid, &made, &codec);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    if (!nvenc_knows_version(param->version)) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_VERSION);
    }
    if ((unsigned)param->capsToQuery >= LAYOUT_CAPS_END) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    *value = nvenc_capability(made.session->device, codec, (int)param->capsToQuery);
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

static NVENCSTATUS get_preset_count(void *encoder, GUID guid, uint32_t *count) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec("NvEncGetEncodePresetCount", encoder, &guid, &made, &codec);
    if (status == NV_ENC_SUCCESS) {
        *count = 7;
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS get_presets(void *encoder, GUID guid, GUID *out, uint32_t size, uint32_t *count) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec("NvEncGetEncodePresetGUIDs", encoder, &guid, &made, &codec);
    if (status == NV_ENC_SUCCESS) {
        *count = size < 7 ? size : 7;
        for (uint32_t i = 0; i < *count; i++) {
            out[i] = *nvenc_preset_guid(i + 1);
        }
        nvenc_leave(&made, status);
    }
    return status;
}

static NVENCSTATUS preset_config(const char *function, void *encoder, GUID guid, GUID preset_guid, uint32_t tuning,
                                 NV_ENC_PRESET_CONFIG *raw) {
    nvenc_call made;
    nvenc_codec codec;
    NVENCSTATUS status = enter_codec(function, encoder, &guid, &made, &codec);
    if (status != NV_ENC_SUCCESS) {
        return status;
    }
    sim_trace(function, "encodeGUID=%s presetGUID=%s tuningInfo=%u", nvenc_guid_name(&guid).text,
              nvenc_guid_name(&preset_guid).text, tuning);
    layout_preset_config *out = (void *)raw;
    unsigned preset = nvenc_find_preset(&preset_guid);
    if (out == NULL || preset == 0) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    if (!nvenc_knows_version(out->version) || !nvenc_knows_version(out->presetCfg.version)) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_VERSION);
    }
    if (tuning == NV_ENC_TUNING_INFO_UNDEFINED || tuning > LAYOUT_TUNING_ULTRA_HIGH_QUALITY) {
        return nvenc_leave(&made, NV_ENC_ERR_INVALID_PARAM);
    }
    nvenc_fill_preset(codec, preset, tuning, nvenc_struct_version(out->presetCfg.version), &out->presetCfg);
    return nvenc_leave(&made, NV_ENC_SUCCESS);
}

static NVENCSTATUS get_preset_config(void *encoder, GUID guid, GUID preset, NV_ENC_PRESET_CONFIG *out) {
    return preset_config("NvEncGetEncodePresetConfig", encoder, guid, preset, NV_ENC_TUNING_INFO_HIGH_QUALITY, out);
}

static NVENCSTATUS get_preset_config_ex(void *encoder, GUID guid, GUID preset, NV_ENC_TUNING_INFO tuning,
                                        NV_ENC_PRESET_CONFIG *out) {
    return preset_config("NvEncGetEncodePresetConfigEx", encoder, guid, preset, tuning, out);
}

void nvenc_fill_queries(NV_ENCODE_API_FUNCTION_LIST *list) {
    list->nvEncGetEncodeGUIDCount = get_guid_count;
    list->nvEncGetEncodeGUIDs = get_guids;
    list->nvEncGetEncodeProfileGUIDCount = get_profile_count;
    list->nvEncGetEncodeProfileGUIDs = get_profiles;
    list->nvEncGetInputFormatCount = get_format_count;
    list->nvEncGetInputFormats = get_formats;
    list->nvEncGetEncodeCaps = get_caps;
    list->nvEncGetEncodePresetCount = get_preset_count;
    list->nvEncGetEncodePresetGUIDs = get_presets;
    list->nvEncGetEncodePresetConfig = get_preset_config;
    list->nvEncGetEncodePresetConfigEx = get_preset_config_ex;
}
