"""Run: tasks write the segments of a plan, and the new queues are put together from them."""
