package peer;

import java.io.IOException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.RocksDBConsumeQueueStore;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ's store with its defaults, and when all that was put can be read. */
final class OpenStore {
    private static final long MAX_SECONDS_BEHIND = 120;

    final DefaultMessageStore store;
    private final boolean slave;

    OpenStore(Settings settings) throws Exception {
        slave = settings.number("master", 0) > 0;
        store = construct(settings);
        if (!store.load()) {
            throw new IllegalStateException("load() answers false");
        }
        store.start();
        if (slave) {
            store.updateHaMasterAddress("127.0.0.1:" + settings.number("master", 0)); // as the broker does
        }
        awaitDispatched();
    }

    /** Brings to disk what was changed in queues: memtables, or files and folders of their file system. */
    void syncQueues() throws Exception {
        if (store.getQueueStore() instanceof RocksDBConsumeQueueStore queues) {
            queues.flush();
            return;
        }
        String folder = store.getMessageStoreConfig().getStorePathRootDir();
        if (new ProcessBuilder("sync", "-f", folder).inheritIO().start().waitFor() != 0) {
            throw new IllegalStateException("sync -f " + folder + " failed");
        }
    }

    /** Where slaves connect. */
    int port() {
        return store.getMessageStoreConfig().getHaListenPort();
    }

    /** Waits until log and queues have come to {@code end}; as a slave, counts from the first byte on. */
    Figures followed(long end) throws Exception {
        while (store.getMaxPhyOffset() <= 0) {
            Thread.sleep(1);
        }
        double cpu = Figures.cpuSeconds();
        long begin = System.nanoTime();
        long limit = begin + MAX_SECONDS_BEHIND * 1_000_000_000L;
        while (store.getMaxPhyOffset() < end) {
            if (System.nanoTime() > limit) {
                throw new IllegalStateException("the log ends at " + store.getMaxPhyOffset() + ", not at " + end);
            }
            Thread.sleep(1);
        }
        awaitDispatched();
        double seconds = (System.nanoTime() - begin) / 1e9;
        return Figures.of("bytes", end).with("seconds", seconds).with("cpu_seconds", Figures.cpuSeconds() - cpu);
    }

    /** The defaults of a store of these settings. */
    static MessageStoreConfig config(Settings settings) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(settings.text("dir", null));
        config.setFlushDiskType(FlushDiskType.valueOf(settings.text("flush", "ASYNC_FLUSH")));
        config.setHaListenPort(0); // any that is free
        config.setCleanFileForciblyEnable(false); // a disk that others have filled takes no puts from us
        if (isRocksDb(settings)) {
            config.setStoreType("defaultRocksDB");
        }
        return config;
    }

    private static boolean isRocksDb(Settings settings) {
        return settings.text("backend", "file").equals("rocksdb");
    }

    private static DefaultMessageStore construct(Settings settings) throws IOException {
        MessageStoreConfig config = config(settings);
        config.setInSyncReplicas(settings.number("replicas", 1));
        config.setSlaveTimeout(settings.number("wait", 3_000));
        BrokerConfig broker = new BrokerConfig();
        if (settings.number("master", 0) > 0) {
            config.setBrokerRole(BrokerRole.SLAVE);
            broker.setBrokerId(1);
        } else {
            config.setBrokerRole(BrokerRole.valueOf(settings.text("role", "ASYNC_MASTER")));
        }
        BrokerStatsManager stats = new BrokerStatsManager(broker);
        if (isRocksDb(settings)) {
            return new RocksDBMessageStore(config, stats, null, broker, new ConcurrentHashMap<>());
        }
        return new DefaultMessageStore(config, stats, null, broker, new ConcurrentHashMap<>());
    }

    void awaitDispatched() throws Exception {
        long end = System.nanoTime() + MAX_SECONDS_BEHIND * 1_000_000_000L;
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
