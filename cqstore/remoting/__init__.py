"""RocketMQ's remoting protocol: frames, both header forms and JSON bodies, for either end."""
