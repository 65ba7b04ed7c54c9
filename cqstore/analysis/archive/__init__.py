"""An archive of logs in Parquet files: what is new in each log, once, by topic and day."""
