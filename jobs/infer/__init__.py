"""``infer``: a network run over every picture of a video, on DLAs."""
