"""Parts of networks that all families share."""
