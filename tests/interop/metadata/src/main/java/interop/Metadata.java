package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerPathConfigHelper;
import org.apache.rocketmq.broker.config.v2.ConfigStorage;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A broker's own managers of topics, groups and offsets, without the broker around them.
 *
 * <pre>Metadata write|dump ROOT key=value… [?group,topic,queue…]</pre>
 *
 * Settings of broker and store decide the form. It prints what the managers hold, as JSON, and the
 * offsets that they answer for each question; write fills them first and persists.
 */
public final class Metadata {
    private Metadata() { }

    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BrokerController broker = broker(Path.of(words[1]), words);
        if (!broker.initializeMetadata()) {
            throw new IllegalStateException("initializeMetadata failed");
        }
        boolean writes = words[0].equals("write");
        if (writes) {
            fill(broker);
        }
        Map<String, Object> all = tables(broker);
        all.put("asked", asked(broker, words));
        out.println(JSON.toJSONString(all, JSONWriter.Feature.MapSortField,
            JSONWriter.Feature.WriteNonStringKeyAsString));
        out.flush();
        if (writes) {
            broker.getConsumerOffsetManager().persist();
            broker.getTopicConfigManager().persist();
            broker.getSubscriptionGroupManager().persist();
        }
        stop(broker);
        Runtime.getRuntime().halt(0);
    }

    private static BrokerController broker(Path root, String[] words) {
        BrokerPathConfigHelper.setBrokerConfigPath(root.resolve("config/broker.properties").toString());
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root.toString());
        store.setStorePathCommitLog(root.resolve("commitlog").toString());
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName("a");
        config.setBrokerClusterName("c");
        Properties settings = new Properties();
        for (int i = 2; i < words.length; i++) {
            if (words[i].startsWith("?")) {
                continue;
            }
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        MixAll.properties2Object(settings, store);
        MixAll.properties2Object(settings, config);
        return new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), store);
    }

    private static Map<String, Long> asked(BrokerController broker, String[] words) {
        Map<String, Long> answers = new TreeMap<>();
        for (String word : words) {
            if (word.startsWith("?")) {
                String[] names = word.substring(1).split(",");
                answers.put(word, broker.getConsumerOffsetManager()
                    .queryOffset(names[0], names[1], Integer.parseInt(names[2])));
            }
        }
        return answers;
    }

    private static void stop(BrokerController broker) throws Exception {
        broker.getTopicConfigManager().stop();
        broker.getSubscriptionGroupManager().stop();
        broker.getConsumerOffsetManager().stop();
        Field field = BrokerController.class.getDeclaredField("configStorage");
        field.setAccessible(true);
        ConfigStorage storage = (ConfigStorage) field.get(broker);
        if (storage != null) {
            storage.shutdown();
        }
    }

    private static Map<String, Object> tables(BrokerController broker) {
        Map<String, Object> all = new TreeMap<>();
        all.put("topics", broker.getTopicConfigManager().getTopicConfigTable());
        all.put("topicsVersion", broker.getTopicConfigManager().getDataVersion());
        all.put("groups", broker.getSubscriptionGroupManager().getSubscriptionGroupTable());
        all.put("groupsVersion", broker.getSubscriptionGroupManager().getDataVersion());
        all.put("forbidden", broker.getSubscriptionGroupManager().getForbiddenTable());
        all.put("offsets", broker.getConsumerOffsetManager().getOffsetTable());
        all.put("pullOffsets", broker.getConsumerOffsetManager().getPullOffsetTable());
        all.put("offsetsVersion", broker.getConsumerOffsetManager().getDataVersion());
        return all;
    }

    private static void fill(BrokerController broker) throws Exception {
        var topics = broker.getTopicConfigManager();
        for (int i = 0; i < 12; i++) {
            TopicConfig topic = new TopicConfig("orders" + i, 4, 8 + i, 6);
            if (i == 3) {
                topic.setOrder(true);
                topic.setTopicSysFlag(1);
            }
            topics.updateTopicConfig(topic);
        }
        topics.updateTopicConfig(new TopicConfig("at@sign", 2, 2, 6));
        topics.updateTopicConfig(new TopicConfig("pr\u00fcfung\u6d4b\u8bd5", 1, 1, 6));
        TopicConfig lite = new TopicConfig("parent", 1, 1, 6);
        lite.setAttributes(new HashMap<>(Map.of("+message.type", "LITE", "+lite.topic.expiration", "60")));
        topics.updateTopicConfig(lite);
        topics.updateTopicConfig(new TopicConfig("gone", 1, 1, 6));
        topics.deleteTopicConfig("gone");
        var groups = broker.getSubscriptionGroupManager();
        for (int i = 0; i < 7; i++) {
            SubscriptionGroupConfig group = new SubscriptionGroupConfig();
            group.setGroupName("billing" + i);
            group.setRetryMaxTimes(i);
            group.setConsumeBroadcastEnable(i % 2 == 0);
            groups.updateSubscriptionGroupConfig(group);
        }
        SubscriptionGroupConfig odd = new SubscriptionGroupConfig();
        odd.setGroupName("gr\u00fcppe@x");
        groups.updateSubscriptionGroupConfig(odd);
        groups.updateForbidden("billing1", "orders2", 3, true);
        groups.updateForbidden("billing1", "orders3", 0, true);
        var offsets = broker.getConsumerOffsetManager();
        for (int i = 0; i < 12; i++) {
            for (int queue = 0; queue < 3; queue++) {
                offsets.commitOffset("c", "billing" + i % 7, "orders" + i, queue, 100L * i + queue);
            }
        }
        offsets.commitOffset("c", "gr\u00fcppe@x", "at@sign", 1, 1L << 40);
        offsets.commitOffset("c", "billing0", "%LMQ%$parent$x", 0, 5);
        offsets.commitPullOffset("c", "billing2", "orders2", 0, 77);
    }
}
