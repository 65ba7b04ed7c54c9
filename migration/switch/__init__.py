"""Switch: verified queues are published, catch up from the log, and are served."""
