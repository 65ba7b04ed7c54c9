"""A store served to RocketMQ's clients, as a name server and a broker would serve it."""
