"""NVIDIA's codec engines: decoder sessions on NVDEC, encoder sessions on NVENC, and the frames between them."""
