"""`python -m harness`: the command line, for an interpreter that has no `harness` on its path."""

from harness.cli import main

main()
