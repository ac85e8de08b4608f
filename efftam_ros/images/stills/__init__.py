"""Reads still pictures: single files, folders of files, and files that hold several pictures."""
