"""Code shared by the commands: options, prompts, progress, tables, video."""
