"""The fleet: one dispatcher, many workers, the same bytes."""
