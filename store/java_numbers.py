"""The bounds of Java's numbers, which RocketMQ's formats and settings are made of."""

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
