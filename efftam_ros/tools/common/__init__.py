"""Code that several commands share: options, prompts, output files, progress, tables, video."""
