"""Spark data sources over a store's files: ``rocketmq_commitlog`` and ``rocketmq_cq``."""
