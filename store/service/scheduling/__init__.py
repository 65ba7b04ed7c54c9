"""What is delivered later: the schedule's queues, and how far each of them is."""
