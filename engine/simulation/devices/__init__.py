"""Device models: what a task's operators take."""
