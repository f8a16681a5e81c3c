"""Find out why multi-threaded ``torch.compile`` training breaks, and which lock strategy is safe."""

__version__ = "0.1.0"
