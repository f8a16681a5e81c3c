"""Small programs with known races, without torch: what the schedules are checked against."""
