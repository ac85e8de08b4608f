"""Opening, decoding and stamping of video, for files and live streams."""
