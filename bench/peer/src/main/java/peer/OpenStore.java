package peer;

import java.io.IOException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.RocksDBConsumeQueueStore;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ's store with its defaults, and when all that was put can be read. */
final class OpenStore {
    private static final long MOST_SECONDS_BEHIND = 120;

    final DefaultMessageStore store;

    OpenStore(Settings settings) throws Exception {
        store = construct(settings);
        if (!store.load()) {
            throw new IllegalStateException("load() answers false");
        }
        store.start();
        awaitDispatched();
    }

    private static DefaultMessageStore construct(Settings settings) throws IOException {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(settings.text("dir", null));
        config.setFlushDiskType(FlushDiskType.valueOf(settings.text("flush", "ASYNC_FLUSH")));
        config.setHaListenPort(0); // any that is free
        config.setCleanFileForciblyEnable(false); // a disk that others have filled takes no puts from us
        BrokerConfig broker = new BrokerConfig();
        BrokerStatsManager stats = new BrokerStatsManager(broker);
        if (settings.text("backend", "file").equals("rocksdb")) {
            config.setStoreType("defaultRocksDB");
            return new RocksDBMessageStore(config, stats, null, broker, new ConcurrentHashMap<>());
        }
        return new DefaultMessageStore(config, stats, null, broker, new ConcurrentHashMap<>());
    }

    void awaitDispatched() throws Exception {
        long end = System.nanoTime() + MOST_SECONDS_BEHIND * 1_000_000_000L;
        while (behind() > 0) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("the queues stay behind by " + behind() + " bytes");
            }
            Thread.sleep(1);
        }
    }

    /** RocketMQ's own figure leaves out what waits for RocksDB's next group of writes. */
    private long behind() throws Exception {
        long behind = store.dispatchBehindBytes();
        if (behind <= 0 && store.getQueueStore() instanceof RocksDBConsumeQueueStore rocksdb) {
            return store.getMaxPhyOffset() - rocksdb.getMaxPhyOffsetInConsumeQueue();
        }
        return behind;
    }

    /** What is in all queues, and in the log: both sides must come to the same. */
    Figures totals(Queues queues) throws Exception {
        long units = 0;
        for (int queue = 0; queue < queues.count; queue++) {
            String topic = queues.topic(queue);
            int id = queues.id(queue);
            units += store.getMaxOffsetInQueue(topic, id) - store.getMinOffsetInQueue(topic, id);
        }
        System.gc();
        return Figures.of("units", units).with("log_end", store.getMaxPhyOffset())
            .with("resident_bytes", Figures.residentBytes());
    }
}
