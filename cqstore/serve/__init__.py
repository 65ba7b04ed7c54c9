"""A store served read-only to RocketMQ's clients, as a name server and a broker would serve it."""
