"""Switch: publish verified queues, catch them up from the log, and serve them."""
