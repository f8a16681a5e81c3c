"""The parts of `python -m tests.soak.gpu`: checks, their ledger, the session that runs them within a budget, the table."""
