"""An embedded log: topics, groups that keep their place, and a tail for asyncio, in one process."""
