"""The same work through RocketMQ's own store and through ours, in turn."""
