package interop;

import com.alibaba.fastjson2.JSON;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store with RocketMQ's own classes and its settings, and writes or asks its index of keys.
 *
 * <pre>
 * write ROOT COUNT [key=value ...]                 puts COUNT messages of several topics, with all kinds of keys
 * query ROOT WORDS [key=value ...]                 prints for each topic,key in WORDS (a line each, a file) what is found
 * </pre>
 */
public final class Index {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final List<String> TOPICS = List.of("orders", "at@sign", "other");
    private static final int PHY_OFFSET_AT = 28;

    private Index() { }

    public static void main(String[] words) {
        System.setOut(System.err);
        int code = 0;
        try {
            DefaultMessageStore store = open(Path.of(words[1]), Arrays.asList(words).subList(3, words.length));
            if (words[0].equals("write")) {
                write(store, Integer.parseInt(words[2]));
            } else {
                query(store, java.nio.file.Files.readAllLines(Path.of(words[2])));
            }
            store.shutdown();
        } catch (Throwable fault) {
            fault.printStackTrace();
            code = 1;
        }
        OUT.flush();
        Runtime.getRuntime().halt(code);
    }

    private static DefaultMessageStore open(Path root, List<String> pairs) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setHaListenPort(0);
        Properties settings = new Properties();
        for (String pair : pairs) {
            settings.put(pair.split("=", 2)[0], pair.split("=", 2)[1]);
        }
        MixAll.properties2Object(settings, config);
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (String topic : TOPICS) {
            topics.put(topic, new TopicConfig(topic, 4, 4));
        }
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerIP1("10.0.0.2");
        DefaultMessageStore store =
            new DefaultMessageStore(config, new BrokerStatsManager("interop", true), null, broker, topics);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        return store;
    }

    private static void write(DefaultMessageStore store, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            put(store, i);
        }
        // The index in RocksDB is written by a thread of its own, which a shutdown does not wait for.
        long end = store.getMaxPhyOffset();
        while (store.dispatchBehindBytes() > 0 || size(store, end) < end) {
            Thread.sleep(20);
        }
    }

    /** Where the last record that the index in RocksDB has seen ends. */
    private static long size(DefaultMessageStore store, long end) throws Exception {
        // By name: older releases have no such index, and the rest of this program runs with them too.
        Object index = DefaultMessageStore.class.getMethod("getMessageRocksDBStorage").invoke(store);
        Long last = (Long) index.getClass().getMethod("getLastOffsetPy", byte[].class)
            .invoke(index, (Object) org.rocksdb.RocksDB.DEFAULT_COLUMN_FAMILY);
        return last == null || last <= 0 ? 0 : last + store.lookMessageByOffset(last).getStoreSize();
    }

    private static void put(DefaultMessageStore store, int i) {
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic(i % 10 == 9 ? "at@sign" : i % 3 == 2 ? "other" : "orders");
        m.setQueueId(i % 4);
        m.setBody(("body " + i).getBytes(StandardCharsets.UTF_8));
        if (i % 2 == 0) {
            MessageAccessor.putProperty(m, "TAGS", "tagA");
        }
        if (i % 7 != 6) {
            String more = i % 11 == 3 ? " a@b prüf" + i : "";
            MessageAccessor.putProperty(m, "KEYS", (i % 5 == 0 ? "many " : "") + "k" + i + more);
        }
        if (i % 13 != 12) {
            MessageAccessor.putProperty(m, "UNIQ_KEY", String.format("AC1000020000%04d", i));
        }
        m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
        m.setBornTimestamp(1_700_000_000_000L + i);
        m.setBornHost(new InetSocketAddress("10.1.1.1", 1024));
        m.setStoreHost(new InetSocketAddress("10.0.0.2", 10911));
        var result = store.putMessage(m);
        if (!result.isOk()) {
            throw new IllegalStateException(result.toString());
        }
    }

    private static void query(DefaultMessageStore store, List<String> lines) {
        List<Object> all = new ArrayList<>();
        for (String line : lines) {
            String[] words = line.split(",", 2);
            QueryMessageResult found = store.queryMessage(words[0], words[1], 64, 0, Long.MAX_VALUE);
            List<Long> phyOffsets = new ArrayList<>();
            for (ByteBuffer record : found.getMessageBufferList()) {
                phyOffsets.add(record.getLong(PHY_OFFSET_AT));
            }
            found.release();
            Collections.sort(phyOffsets);
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", words[0]);
            row.put("key", words[1]);
            row.put("phyOffsets", phyOffsets);
            all.add(row);
        }
        OUT.println(JSON.toJSONString(all));
    }
}
