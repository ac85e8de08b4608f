"""Image processing on the host: encodings, network input, prompts, masks, overlay."""
