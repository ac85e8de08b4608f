"""Code that files and live streams share: clocks of arrival, tracks, damage, orientation."""
