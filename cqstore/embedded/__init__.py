"""An embedded log in one process: topics, groups with consumer offsets, and tails for asyncio."""
