"""Run a plan: tasks write its segments, and the new queues are assembled from them."""
