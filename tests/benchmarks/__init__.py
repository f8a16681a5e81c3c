"""Measurements, not tests: each prints its figures and the machine. Run as `python -m tests.benchmarks.NAME`."""
