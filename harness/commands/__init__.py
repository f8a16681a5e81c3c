"""One thin file a command. What a command needs is imported when it runs, so that --help answers at once."""
