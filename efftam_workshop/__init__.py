"""Makes, checks and measures networks: fetch, export, build, eval, bench.

The nodes never import this package.
"""
