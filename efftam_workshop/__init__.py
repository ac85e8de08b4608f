"""Makes, checks and measures networks: fetch, export, build, eval, bench. Nothing that flies imports it."""
