from cqstore.serve.store_writer import WriteSettings as WriteSettings
from cqstore.testing.broker import RunningBroker as RunningBroker
from cqstore.testing.broker import running_broker as running_broker

__all__: list[str]
