"""Measurements for maintainers: run ``python -m benchmarks`` in the checkout."""
