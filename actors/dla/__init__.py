"""Inference on the deep learning accelerators (DLA) of Tegra, through cuDLA."""
