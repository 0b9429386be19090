"""What runs next: the event-driven scheduler. No torch, no clock, no I/O, no randomness."""
