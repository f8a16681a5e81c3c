"""Drives trials: the run folder, executors, the order of work. Never imports torch."""
