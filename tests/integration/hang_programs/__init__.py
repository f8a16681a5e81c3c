"""Programs that hang, each in one way, in plain Python. `threads()` gives (name, function) of each thread.

`python lock_cycle_two.py` runs one by itself; `hang_workloads.py` makes a workload of each.
"""
