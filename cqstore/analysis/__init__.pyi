from cqstore.analysis.spark_sources import register as register

__all__: list[str]
