"""Why threads do not go on: who waits for what, and who could end it, read from stacks, local variables and source.

Nothing here asks the program anything or runs any of its code. Both sides use it: the watchdog of a subject, on its own
frames at the moment of a hang (`harness.subject.live`), and `harness dump`, on what py-spy reads from outside.
"""
