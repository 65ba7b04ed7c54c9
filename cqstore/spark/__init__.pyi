from cqstore.spark.spark_session import spark_session as _spark_session

__all__: list[str]
start_session = _spark_session
