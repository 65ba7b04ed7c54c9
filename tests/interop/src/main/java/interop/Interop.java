package interop;

import static java.util.stream.Collectors.toSet;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store with RocketMQ's own classes, as the broker does.
 *
 * <pre>
 * dump   ROOT TYPE QUEUES [key=value ...]          prints a line for each record and for each queue
 * read   ROOT TYPE QUEUES [key=value ...]          pulls every message, prints a line for each queue
 * append ROOT TYPE QUEUES COUNT crash|close [...]  puts COUNT messages a queue, prints a line for each
 * serve  ROOT TYPE QUEUES [key=value ...]          prints its replication port, then puts as many messages a
 *                                                  queue as each line of its input says; at its end it closes;
 *                                                  the line "epoch N" makes it master of a new epoch
 * slave  ROOT TYPE QUEUES [key=value ...]          follows haMasterAddress; for each line of its input, a phy
 *                                                  offset, prints where its log ends once it and its queues
 *                                                  have come there; at its end it closes
 * unused ROOT TYPE QUEUES [key=value ...]          deletes the topics that are not those of QUEUES, as its broker
 *                                                  does, and prints how many
 * </pre>
 *
 * A message for a light queue, %LMQ%..., is put to topic parent and dispatched to it.
 * TYPE is default, defaultRocksDB or combine; QUEUES is topic/id,topic/id... or @FILE with a queue a line;
 * key=value are settings; with epoch=N the store is under a controller, whom nobody plays: a master of that epoch,
 * or a slave with the broker id slaveId.
 */
public final class Interop {
    private static final int BLANK = 0xCBD43194;
    private static final long MASTER_ID = 1;
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private Interop() { }

    public static void main(String[] words) {
        System.setOut(System.err);
        int code = 0;
        try {
            boolean append = words[0].equals("append");
            List<String> queues = words[3].startsWith("@") ? Files.readAllLines(Path.of(words[3].substring(1)))
                : words[3].isEmpty() ? List.of() : List.of(words[3].split(","));
            DefaultMessageStore store = open(Path.of(words[1]), words[2], queues, words, append ? 6 : 4);
            if (append) {
                append(store, queues, Integer.parseInt(words[4]));
            } else if (words[0].equals("serve")) {
                serve(store, queues);
            } else if (words[0].equals("slave")) {
                follow(store);
            } else if (words[0].equals("unused")) {
                line("deleted", store.cleanUnusedTopic(queues.stream().map(Interop::name).collect(toSet())));
            } else if (words[0].equals("read")) {
                for (String queue : queues) {
                    read(store, queue);
                }
            } else {
                dump(store, queues);
            }
            OUT.flush();
            if (!append || words[5].equals("close")) {
                store.shutdown();
            }
        } catch (Throwable fault) {
            fault.printStackTrace();
            code = 1;
        }
        OUT.flush();
        // Not exit: a crash runs no shutdown hook.
        Runtime.getRuntime().halt(code);
    }

    private static DefaultMessageStore open(Path root, String type, List<String> queues, String[] words, int from)
        throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        boolean combine = type.equals("combine");
        config.setStoreType(combine ? "default" : type);
        config.setRocksdbCQDoubleWriteEnable(combine);
        config.setHaListenPort(0);
        Properties settings = new Properties();
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Object epoch = settings.remove("epoch");
        Object slaveId = settings.remove("slaveId");
        MixAll.properties2Object(settings, config);
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (String queue : queues) {
            String topic = queue.substring(0, queue.lastIndexOf('/'));
            topics.put(topic, new TopicConfig(topic, 8, 8));
        }
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerId(config.getBrokerRole() == BrokerRole.SLAVE ? 1 : MixAll.MASTER_ID);
        broker.setBrokerIP1("10.0.0.2");
        broker.setEnableControllerMode(epoch != null);
        BrokerStatsManager stats = new BrokerStatsManager("interop", true);
        DefaultMessageStore store = config.isEnableRocksDBStore()
            ? new RocksDBMessageStore(config, stats, null, broker, topics)
            : new DefaultMessageStore(config, stats, null, broker, topics);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        if (epoch != null) {
            take(store, Integer.parseInt((String) epoch), (String) slaveId);
        }
        if (config.getHaMasterAddress() != null) {
            store.updateHaMasterAddress(config.getHaMasterAddress());  // as the broker does
        }
        return store;
    }

    /** What a controller would tell it: master of an epoch, alone in sync; or a slave. */
    private static void take(DefaultMessageStore store, int epoch, String slaveId) throws Exception {
        AutoSwitchHAService service = (AutoSwitchHAService) store.getHaService();
        boolean done;
        if (slaveId == null) {
            service.setLocalBrokerId(MASTER_ID);
            service.setSyncStateSet(Set.of(MASTER_ID));
            done = service.changeToMaster(epoch);
        } else {
            service.setLocalBrokerId(Long.parseLong(slaveId));
            done = service.changeToSlave("", epoch, Long.parseLong(slaveId));
        }
        if (!done) {
            throw new IllegalStateException("no change of role");
        }
    }

    private static void append(DefaultMessageStore store, List<String> queues, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            for (String queue : queues) {
                var result = put(store, queue, i, "from java " + i);
                var appended = result.getAppendMessageResult();
                line("topic", topic(queue), "queueId", queueId(queue), "queueOffset", appended.getLogicsOffset(),
                    "phy", appended.getWroteOffset(), "msgId", appended.getMsgId());
            }
        }
        for (int i = 0; i < 600 && store.dispatchBehindBytes() > 0; i++) {
            Thread.sleep(20);
        }
        Thread.sleep(1000);  // the group commit of RocksDB has no sign of being done
    }

    /** A line a line of input: how many puts came to which status, and where the log ends. */
    private static void serve(DefaultMessageStore store, List<String> queues) throws Exception {
        line("port", store.getMessageStoreConfig().getHaListenPort());
        OUT.flush();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String count = input.readLine(); count != null; count = input.readLine()) {
            Map<String, Integer> statuses = new TreeMap<>();
            if (count.startsWith("epoch ")) {
                take(store, Integer.parseInt(count.substring(6)), null);
                count = "0";
            }
            for (int i = 0; i < Integer.parseInt(count); i++) {
                for (String queue : queues) {
                    String status = put(store, queue, i, "from java ".repeat(i % 40)).getPutMessageStatus().name();
                    statuses.merge(status, 1, Integer::sum);
                }
            }
            Object inSync = store.getHaService() instanceof AutoSwitchHAService service
                ? service.getSyncStateSet() : List.of();
            line("statuses", statuses, "end", store.getMaxPhyOffset(), "inSync", inSync);
            OUT.flush();
        }
    }

    /** A line a line of input: where the log ends, once it and the queues have come to what the line says. */
    private static void follow(DefaultMessageStore store) throws Exception {
        line("end", store.getMaxPhyOffset());
        OUT.flush();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String end = input.readLine(); end != null; end = input.readLine()) {
            while (store.getMaxPhyOffset() < Long.parseLong(end) || store.dispatchBehindBytes() > 0) {
                Thread.sleep(5);
            }
            line("end", store.getMaxPhyOffset());
            OUT.flush();
        }
    }

    /** What a message for the queue is put to. */
    private static String topic(String queue) {
        String topic = name(queue);
        return MixAll.isLmq(topic) ? "parent" : topic;
    }

    private static String name(String queue) {
        return queue.substring(0, queue.lastIndexOf('/'));
    }

    private static int queueId(String queue) {
        return Integer.parseInt(queue.substring(queue.lastIndexOf('/') + 1));
    }

    private static PutMessageResult put(DefaultMessageStore store, String queue, int i, String body) {
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic(topic(queue));
        if (MixAll.isLmq(queue)) {
            MessageAccessor.putProperty(m, "INNER_MULTI_DISPATCH", queue.substring(0, queue.lastIndexOf('/')));
        }
        m.setQueueId(queueId(queue));
        m.setBody(body.getBytes(StandardCharsets.UTF_8));
        MessageAccessor.putProperty(m, "TAGS", "TagJ");
        MessageAccessor.putProperty(m, "KEYS", "java" + i);
        m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
        m.setBornTimestamp(1_700_000_000_000L + i);
        m.setBornHost(new InetSocketAddress("10.1.1.1", 1024));
        m.setStoreHost(new InetSocketAddress("10.0.0.2", 10911));
        var result = store.putMessage(m);
        if (!result.isOk()) {
            throw new IllegalStateException(result.toString());
        }
        return result;
    }

    private static void dump(DefaultMessageStore store, List<String> queues) throws Exception {
        int fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        Map<String, List<String>> keys = new TreeMap<>();
        for (long at = store.getMinPhyOffset(); at >= 0 && at < store.getMaxPhyOffset(); ) {
            SelectMappedBufferResult head = store.selectOneMessageByOffset(at, 8);
            int size = head.getByteBuffer().getInt(0);
            int magic = head.getByteBuffer().getInt(4);
            head.release();
            if (magic == BLANK) {
                at += fileSize - at % fileSize;
                continue;
            }
            SelectMappedBufferResult found = store.selectOneMessageByOffset(at, size);
            byte[] record = new byte[size];
            found.getByteBuffer().get(record);
            found.release();
            MessageExt m = MessageDecoder.decode(ByteBuffer.wrap(record), true, false);
            line("kind", "message", "phy", m.getCommitLogOffset(), "storeSize", m.getStoreSize(), "topic", m.getTopic(),
                "queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(), "msgId", m.getMsgId(),
                "record", digest(record), "properties", m.getProperties() == null ? Map.of() : new TreeMap<>(m.getProperties()));
            if (m.getKeys() != null) {
                keys.computeIfAbsent(m.getTopic() + "#" + m.getKeys(), k -> List.of(m.getTopic(), m.getKeys()));
            }
            at += size;
        }
        for (String queue : queues) {
            String topic = queue.substring(0, queue.lastIndexOf('/'));
            queue(store, topic, Integer.parseInt(queue.substring(queue.lastIndexOf('/') + 1)));
        }
        for (List<String> key : keys.values()) {
            var result = store.queryMessage(key.get(0), key.get(1), 64, 0, Long.MAX_VALUE);
            List<Long> offsets = new ArrayList<>();
            result.getMessageMapedList().forEach(buffer -> {
                offsets.add(buffer.getStartOffset());
                buffer.release();
            });
            line("kind", "key", "topic", key.get(0), "key", key.get(1), "phy", offsets);
        }
    }

    /** The digest is over phy offset and size of each message, in the order in which they were pulled. */
    private static void read(DefaultMessageStore store, String queue) throws Exception {
        String topic = queue.substring(0, queue.lastIndexOf('/'));
        int id = Integer.parseInt(queue.substring(queue.lastIndexOf('/') + 1));
        long min = store.getMinOffsetInQueue(topic, id);
        long max = store.getMaxOffsetInQueue(topic, id);
        MessageDigest digest = MessageDigest.getInstance("SHA-1");
        ByteBuffer place = ByteBuffer.allocate(12);
        long count = 0;
        for (long at = min; at < max; ) {
            var result = store.getMessage("interop", topic, id, at, 32, null);
            for (ByteBuffer record : result.getMessageBufferList()) {
                place.clear().putLong(record.getLong(28)).putInt(record.getInt(0));
                digest.update(place.array());
                count++;
            }
            result.release();
            if (result.getNextBeginOffset() <= at) {
                break;
            }
            at = result.getNextBeginOffset();
        }
        line("kind", "read", "topic", topic, "queueId", id, "min", min, "max", max, "count", count,
            "digest", HexFormat.of().formatHex(digest.digest()));
    }

    private static void queue(DefaultMessageStore store, String topic, int id) throws Exception {
        long min = store.getMinOffsetInQueue(topic, id);
        long max = store.getMaxOffsetInQueue(topic, id);
        List<Object> units = new ArrayList<>();
        for (long at = min; at < max; at++) {
            CqUnit unit = store.getConsumeQueue(topic, id).get(at);
            units.add(unit == null ? null : List.of(unit.getQueueOffset(), unit.getPos(), unit.getSize(),
                unit.getTagsCode(), store.getMessageStoreTimeStamp(topic, id, at)));
        }
        List<Long> pulled = new ArrayList<>();
        for (long at = min; at < max && !units.contains(null); ) {
            var result = store.getMessage("interop", topic, id, at, 32, null);
            pulled.addAll(result.getMessageQueueOffset());
            result.release();
            if (result.getNextBeginOffset() <= at) {
                break;
            }
            at = result.getNextBeginOffset();
        }
        line("kind", "queue", "topic", topic, "queueId", id, "min", min, "max", max, "units", units, "pulled", pulled);
    }

    private static void line(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        OUT.println(JSON.toJSONString(map));
    }

    private static String digest(byte[] bytes) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(bytes)).substring(0, 16);
    }
}
