package interop;

import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store with the classes of one release: of them, what all releases have. The rest is in Four and Five.
 *
 * <pre>
 * write ROOT TYPE QUEUES COUNT crash|close [key=value ...]  puts COUNT messages of all kinds, by turns to each queue
 * dump  ROOT TYPE QUEUES [key=value ...]                    prints a line for each record, queue and key
 * </pre>
 */
abstract class Release {
    private static final int BLANK = 0xCBD43194;
    private static final int PHY_OFFSET_AT = 28;
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    /** Makes the store, as the broker does; the topics have eight queues. */
    abstract DefaultMessageStore make(MessageStoreConfig config, BrokerConfig broker, BrokerStatsManager stats,
        Set<String> topics) throws Exception;

    private DefaultMessageStore open(Path root, String type, Properties settings, Set<String> topics) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setHaListenPort(0);
        settings.putIfAbsent("storeType", type);
        MixAll.properties2Object(settings, config);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerIP1("10.0.0.2");
        DefaultMessageStore store = make(config, broker, new BrokerStatsManager("interop", true), topics);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        return store;
    }

    abstract MessageExt newMessage();

    /** Puts a message whose properties are not yet written down. */
    abstract PutMessageResult put(DefaultMessageStore store, MessageExt message);

    /** Queue offset, phy offset, size and tags code; null if there is none. */
    abstract List<Object> unit(DefaultMessageStore store, String topic, int queueId, long at);

    final void run(String[] words) {
        System.setOut(System.err);
        int code = 0;
        try {
            boolean write = words[0].equals("write");
            List<Queue> queues = new ArrayList<>();
            for (String queue : words[3].split(",")) {
                int cut = queue.lastIndexOf('/');
                queues.add(new Queue(queue.substring(0, cut), Integer.parseInt(queue.substring(cut + 1))));
            }
            Properties settings = new Properties();
            for (int i = write ? 6 : 4; i < words.length; i++) {
                String[] pair = words[i].split("=", 2);
                settings.put(pair[0], pair[1]);
            }
            Set<String> topics = new LinkedHashSet<>();
            queues.forEach(queue -> topics.add(queue.topic));
            DefaultMessageStore store = open(Path.of(words[1]), words[2], settings, topics);
            if (write) {
                write(store, queues, Integer.parseInt(words[4]));
            } else {
                dump(store, queues);
            }
            OUT.flush();
            if (!write || words[5].equals("close")) {
                store.shutdown();
            }
        } catch (Throwable fault) {
            fault.printStackTrace();
            code = 1;
        }
        // Not exit: a crash runs no shutdown hook.
        Runtime.getRuntime().halt(code);
    }

    private void write(DefaultMessageStore store, List<Queue> queues, int count) throws Exception {
        Map<Queue, Long> ends = new LinkedHashMap<>();
        for (int i = 0; i < count; i++) {
            Queue queue = queues.get(i % queues.size());
            MessageExt message = message(queue, i, store.getMaxPhyOffset());
            PutMessageResult result = put(store, message);
            if (!result.isOk()) {
                throw new IllegalStateException(result.toString());
            }
            long at = result.getAppendMessageResult().getLogicsOffset();
            ends.merge(new Queue(message.getTopic(), message.getQueueId()), at + 1, Math::max);
            line("topic", message.getTopic(), "queueId", message.getQueueId(), "queueOffset", at,
                "phy", result.getAppendMessageResult().getWroteOffset(), "msgId", result.getAppendMessageResult().getMsgId());
        }
        for (Map.Entry<Queue, Long> end : ends.entrySet()) {
            while (store.getMaxOffsetInQueue(end.getKey().topic, end.getKey().id) < end.getValue()) {
                Thread.sleep(5);
            }
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(5);
        }
    }

    /** Every kind that a broker puts, but for those with a queue of another form. */
    private MessageExt message(Queue queue, int i, long end) throws Exception {
        MessageExt m = newMessage();
        m.setTopic(queue.topic);
        m.setQueueId(queue.id);
        m.setBody(("by a release " + i + " ").repeat(i % 30).getBytes(StandardCharsets.UTF_8));
        m.setFlag(i);
        m.setReconsumeTimes(i % 4);
        m.setBornTimestamp(1_700_000_000_000L + i);
        InetAddress v6 = InetAddress.getByName("2001:db8::" + i % 100);
        m.setBornHost(i % 5 == 0 ? new InetSocketAddress(v6, 1024 + i) : new InetSocketAddress("10.1.1.1", 1024 + i));
        m.setStoreHost(i % 7 == 0 ? new InetSocketAddress(v6, 10911) : new InetSocketAddress("10.0.0.2", 10911));
        if (i % 5 == 0) {
            m.setBornHostV6Flag();
        }
        if (i % 7 == 0) {
            m.setStoreHostAddressV6Flag();
        }
        MessageAccessor.putProperty(m, "UNIQ_KEY", String.format("%032X", end));
        MessageAccessor.putProperty(m, "KEYS", "java" + i + (i % 3 == 0 ? " both" + i : ""));
        if (i % 4 != 0) {
            MessageAccessor.putProperty(m, "TAGS", i % 4 == 1 ? "TagA" : "标签");
        }
        if (i % 11 == 3) {  // committed or rolled back: only the first has a unit
            m.setSysFlag(m.getSysFlag() | (i % 2 == 0 ? 0x8 : 0xC));
            m.setPreparedTransactionOffset(i);
        } else if (i % 11 == 5) {
            MessageAccessor.putProperty(m, "INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b");
        } else if (i % 11 == 7) {
            MessageAccessor.putProperty(m, "DELAY", "18");
        }
        return m;
    }

    private void dump(DefaultMessageStore store, List<Queue> queues) throws Exception {
        int fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        Set<List<String>> keys = new LinkedHashSet<>();
        for (long at = store.getMinPhyOffset(); at < store.getMaxPhyOffset(); ) {
            ByteBuffer head = ByteBuffer.wrap(bytes(store, at, 8));
            if (head.getInt(4) == BLANK) {
                at += fileSize - at % fileSize;
                continue;
            }
            byte[] record = bytes(store, at, head.getInt(0));
            MessageExt m = MessageDecoder.decode(ByteBuffer.wrap(record), true, false);
            line("kind", "message", "phy", m.getCommitLogOffset(), "storeSize", m.getStoreSize(), "topic", m.getTopic(),
                "queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(), "flag", m.getFlag(),
                "sysFlag", m.getSysFlag(), "bornTimestamp", m.getBornTimestamp(), "storeTimestamp", m.getStoreTimestamp(),
                "reconsumeTimes", m.getReconsumeTimes(), "preparedTransactionOffset", m.getPreparedTransactionOffset(),
                "bodyCRC", m.getBodyCRC(), "body", digest(m.getBody()), "msgId", m.getMsgId(), "record", digest(record),
                "properties", new TreeMap<>(m.getProperties()));
            for (String key : m.getKeys() == null ? new String[0] : m.getKeys().split(" ")) {
                keys.add(List.of(m.getTopic(), key));
            }
            if (m.getProperty("UNIQ_KEY") != null) {
                keys.add(List.of(m.getTopic(), m.getProperty("UNIQ_KEY")));
            }
            at += record.length;
        }
        for (Queue queue : queues) {
            queue(store, queue.topic, queue.id);
        }
        for (List<String> key : keys) {
            List<Long> found = new ArrayList<>();
            var result = store.queryMessage(key.get(0), key.get(1), 64, 0, Long.MAX_VALUE);
            result.getMessageBufferList().forEach(buffer -> found.add(buffer.getLong(PHY_OFFSET_AT)));
            result.release();
            line("kind", "key", "topic", key.get(0), "key", key.get(1), "phy", found);
        }
    }

    private void queue(DefaultMessageStore store, String topic, int id) throws Exception {
        long min = store.getMinOffsetInQueue(topic, id);
        long max = store.getMaxOffsetInQueue(topic, id);
        List<Object> units = new ArrayList<>();
        for (long at = min; at < max; at++) {
            List<Object> unit = unit(store, topic, id, at);
            if (unit != null) {
                unit.add(store.getMessageStoreTimeStamp(topic, id, at));
            }
            units.add(unit);
        }
        List<Long> pulled = new ArrayList<>();
        for (long at = min; at < max; ) {
            var result = store.getMessage("interop", topic, id, at, 32, null);
            result.getMessageBufferList().forEach(buffer -> pulled.add(buffer.getLong(PHY_OFFSET_AT)));
            result.release();
            if (result.getNextBeginOffset() <= at) {
                break;
            }
            at = result.getNextBeginOffset();
        }
        line("kind", "queue", "topic", topic, "queueId", id, "min", min, "max", max, "units", units, "pulled", pulled);
    }

    private static byte[] bytes(DefaultMessageStore store, long at, int size) {
        SelectMappedBufferResult found = store.selectOneMessageByOffset(at, size);
        byte[] bytes = new byte[size];
        found.getByteBuffer().get(bytes);
        found.release();
        return bytes;
    }

    private static void line(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        OUT.println(RemotingSerializable.toJson(map, false));
    }

    private static String digest(byte[] bytes) throws Exception {
        byte[] all = bytes == null ? new byte[0] : bytes;
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(all)).substring(0, 16);
    }

    private record Queue(String topic, int id) { }
}
