"""PyTorch pipelines, compared with ours by `efftam bench`."""
