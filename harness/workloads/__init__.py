"""Two more programs to put to the test, besides the DFlash pipeline: a server that answers from one compiled model, and a
trainer with a model a thread. Each reads as a program of its own and knows the workload protocol alone."""
