"""``infer``: runs a network over every picture of a video, on DLAs."""
