"""Small workloads that ship with the harness."""
