"""Image processing on the CPU: encodings, network input, prompts, masks, overlay."""
