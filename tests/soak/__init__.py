"""Long measurements that are run by hand; each prints its counts."""
