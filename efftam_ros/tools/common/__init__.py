"""Shared by the commands: options, prompts, progress, tables, video."""
