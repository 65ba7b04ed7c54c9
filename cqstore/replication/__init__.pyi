from cqstore.replication.feed.feeder import Feeder as Feeder
from cqstore.replication.feed.followers import Followers as Followers
from cqstore.replication.feed.in_thread import feeding as feeding

__all__: list[str]
