"""What runs inside the process under test: it builds the workload, watches it and writes down what happened."""
