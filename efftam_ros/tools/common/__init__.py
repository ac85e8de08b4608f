"""What the commands share: options, prompts, tables, video."""
