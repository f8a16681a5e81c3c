"""A program of somebody else's, watched from inside: probes, a watchdog, an account; started by the interpreter itself."""
