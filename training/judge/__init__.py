"""The judge of what is seen: records candidates with truth, fits the table that ships, reports on it."""
