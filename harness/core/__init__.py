"""Values that the control side and the subject side share. Standard library only."""
