"""What a person sees: terminal tables and HTML. Never imports torch."""
