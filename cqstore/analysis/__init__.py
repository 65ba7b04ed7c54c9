"""Stores as tables: Arrow streams, Spark data sources, and questions in SQL.

``scan`` has the streams. ``spark`` has the sources (``register``); everything below it knows
nothing of Spark.
"""
