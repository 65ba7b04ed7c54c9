"""Archive of logs in Parquet files: each message once, partitioned by topic and day."""
