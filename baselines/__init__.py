"""The rivals: policies that run inside our engine, and wrapped servers of others."""
