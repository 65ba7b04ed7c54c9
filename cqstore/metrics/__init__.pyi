from cqstore.metrics.prometheus import Followed as Followed
from cqstore.metrics.prometheus import StoreCollector as StoreCollector
from cqstore.metrics.prometheus import register as register
from cqstore.metrics.topic_families import BrokerLabels as BrokerLabels

__all__: list[str]
