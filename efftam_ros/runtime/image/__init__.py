"""Camera images to network input, prompts and masks to image pixels."""
