"""The command ``cqstore``: one file a verb."""
