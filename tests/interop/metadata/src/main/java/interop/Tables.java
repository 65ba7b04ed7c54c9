package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.offset.LmqConsumerOffsetManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.broker.config.v1.RocksDBOffsetSerializeWrapper;
import org.apache.rocketmq.broker.schedule.DelayOffsetSerializeWrapper;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/**
 * What a broker's own managers make of files and rows of JSON.
 *
 * It reads lines from its standard input: the kind, a tab, and a file or row in base 64; with a
 * second tab, the file's .bak. It answers each with a line of JSON: the tables, or the error.
 */
public final class Tables {
    private Tables() { }

    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Path folder = Files.createTempDirectory("tables");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            try {
                out.println(text(parts.length > 2
                    ? loaded(folder.resolve("file"), parts)
                    : read(parts[0], Base64.getDecoder().decode(parts[1]))));
            } catch (Throwable e) {
                out.println(text(Map.of("error", e.getClass().getSimpleName() + ": " + e.getMessage())));
            }
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String text(Object answer) {
        return JSON.toJSONString(answer, JSONWriter.Feature.WriteNonStringKeyAsString,
            JSONWriter.Feature.EscapeNoneAscii, JSONWriter.Feature.WriteMapNullValue);
    }

    /** What ConfigManager.load makes of a file and its backup, "-" for one that is not there. */
    private static Object loaded(Path file, String[] parts) throws Exception {
        for (int i = 1; i < 3; i++) {
            Path path = i == 1 ? file : Path.of(file + ".bak");
            Files.deleteIfExists(path);
            if (!parts[i].equals("-")) {
                Files.write(path, Base64.getDecoder().decode(parts[i]));
            }
        }
        Map<String, Object> all = new TreeMap<>();
        ConfigManager manager = manager(parts[0], file.toString());
        if (!manager.load()) {
            throw new IllegalStateException("load returned false");
        }
        fill(all, manager);
        return all;
    }

    private static ConfigManager manager(String kind, String path) {
        switch (kind) {
            case "topics":
                return new TopicConfigManager() {
                    @Override public String configFilePath() {
                        return path;
                    }
                };
            case "groups":
                return new SubscriptionGroupManager() {
                    @Override public String configFilePath() {
                        return path;
                    }
                };
            case "offsets":
                return new ConsumerOffsetManager() {
                    @Override public String configFilePath() {
                        return path;
                    }
                };
            case "lmq":
                return new LmqConsumerOffsetManager() {
                    @Override public String configFilePath() {
                        return path;
                    }
                };
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static void fill(Map<String, Object> all, ConfigManager manager) throws Exception {
        if (manager instanceof TopicConfigManager) {
            all.put("topics", ((TopicConfigManager) manager).getTopicConfigTable());
            all.put("version", ((TopicConfigManager) manager).getDataVersion());
        } else if (manager instanceof SubscriptionGroupManager) {
            all.put("groups", ((SubscriptionGroupManager) manager).getSubscriptionGroupTable());
            all.put("forbidden", ((SubscriptionGroupManager) manager).getForbiddenTable());
            all.put("version", ((SubscriptionGroupManager) manager).getDataVersion());
        } else if (manager instanceof ConsumerOffsetManager) {
            all.put("offsets", ((ConsumerOffsetManager) manager).getOffsetTable());
            all.put("version", ((ConsumerOffsetManager) manager).getDataVersion());
            if (manager instanceof LmqConsumerOffsetManager) {
                all.put("lmq", ((LmqConsumerOffsetManager) manager).getLmqOffsetTable());
            }
        }
    }

    private static Object read(String kind, byte[] data) throws Exception {
        Map<String, Object> all = new TreeMap<>();
        String text = new String(data, StandardCharsets.UTF_8);
        switch (kind) {
            case "topics": case "groups": case "offsets": case "lmq":
                ConfigManager manager = manager(kind, "");
                manager.decode(text);
                fill(all, manager);
                return all;
            case "delays":
                DelayOffsetSerializeWrapper delays =
                    DelayOffsetSerializeWrapper.fromJson(text, DelayOffsetSerializeWrapper.class);
                if (delays != null) {
                    new java.util.concurrent.ConcurrentHashMap<>().putAll(delays.getOffsetTable());
                    all.put("delays", delays.getOffsetTable());
                    all.put("version", delays.getDataVersion());
                }
                return all;
            case "topicRow":
                all.put("row", JSON.parseObject(data, TopicConfig.class));
                return all;
            case "groupRow":
                all.put("row", JSON.parseObject(data, SubscriptionGroupConfig.class));
                return all;
            case "topicRow2":
                all.put("row", JSON.parseObject(text, TopicConfig.class));
                return all;
            case "groupRow2":
                all.put("row", JSON.parseObject(text, SubscriptionGroupConfig.class));
                return all;
            case "offsetRow":
                all.put("row", JSON.parseObject(data, RocksDBOffsetSerializeWrapper.class).getOffsetTable());
                return all;
            case "versionRow":
                all.put("row", JSON.parseObject(text, DataVersion.class));
                return all;
            case "forbiddenRow":
                JSONObject found = JSON.parseObject(text);
                Map<String, Integer> bits = new HashMap<>();
                for (String topic : found.keySet()) {
                    bits.put(topic, found.getInteger(topic));
                }
                all.put("row", bits);
                return all;
            default:
                throw new IllegalArgumentException(kind);
        }
    }
}
