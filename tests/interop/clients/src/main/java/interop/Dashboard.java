package interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What rocketmq-dashboard asks a cluster: the same methods of the same client library. */
final class Dashboard {
    private static final long MILLISECONDS = 30_000;

    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(MILLISECONDS);
    private final Map<String, String> answers = new LinkedHashMap<>();

    private Dashboard() { }

    /** One call; what it answers is written as the library writes it, or as a row. */
    private interface Call {
        Object answer() throws Exception;
    }

    /**
     * Asks about a topic and a group; one consumer of the group is connected meanwhile.
     *
     * @param words {@code dashboard PORT ADDRESS TOPIC GROUP KEY OTHER_GROUP}
     */
    static String answer(String[] words) throws Exception {
        Dashboard dashboard = new Dashboard();
        dashboard.admin.setNamesrvAddr("127.0.0.1:" + words[1]);
        dashboard.admin.setInstanceName("admin" + System.nanoTime());
        DefaultMQPushConsumer consumer = consumer(words[1], words[4], words[3]);
        try {
            dashboard.admin.start();
            dashboard.awaitQueues(words[3], words[4], clientId(consumer));
            dashboard.ask(words[2], words[3], words[4], words[5], words[6], clientId(consumer));
        } finally {
            consumer.shutdown();
            dashboard.admin.shutdown();
        }
        StringBuilder made = new StringBuilder();
        dashboard.answers.forEach((name, text) -> made.append(made.length() == 0 ? "{" : ",")
            .append(Consumers.quoted(name)).append(":").append(Consumers.quoted(text)));
        return made.append("}").toString();
    }

    private void ask(String address, String topic, String group, String key, String other, String client) throws Exception {
        add("clusters", admin::examineBrokerClusterInfo);
        add("runtime", () -> admin.fetchBrokerRuntimeStats(address));
        add("config", () -> new TreeMap<>(admin.getBrokerConfig(address)));
        add("topics", admin::fetchAllTopicList);
        add("topicConfigs", () -> admin.getAllTopicConfig(address, MILLISECONDS));
        add("topicConfig", () -> admin.examineTopicConfig(address, topic));
        add("route", () -> admin.examineTopicRouteInfo(topic));
        add("topicStats", () -> admin.examineTopicStats(topic));
        add("groupsOfTopic", () -> admin.queryTopicConsumeByWho(topic));
        add("groups", () -> admin.getAllSubscriptionGroup(address, MILLISECONDS));
        add("group", () -> admin.examineSubscriptionGroupConfig(address, group));
        add("lag", () -> admin.examineConsumeStats(group));
        add("lagOfTopic", () -> admin.examineConsumeStats(group, topic));
        add("lagOfOther", () -> admin.examineConsumeStats(other));
        add("connection", () -> admin.examineConsumerConnectionInfo(group));
        add("connectionAt", () -> admin.examineConsumerConnectionInfo(group, address));
        add("connectionOfOther", () -> admin.examineConsumerConnectionInfo(other));
        add("producers", () -> admin.examineProducerConnectionInfo("producers", topic));
        add("running", () -> admin.getConsumerRunningInfo(group, client, false));
        add("threads", () -> admin.getConsumerRunningInfo(group, client, true).getJstack().contains("java.lang.Thread"));
        add("runningElsewhere", () -> admin.getConsumerRunningInfo(group, "elsewhere", false));
        add("statistics", () -> admin.viewBrokerStatsData(address, "TOPIC_PUT_NUMS", "unknown"));
        add("byKey", () -> rows(byKey(topic, key)));
        MessageExt message = byKey(topic, key).get(0);
        add("byId", () -> rows(List.of(admin.viewMessage(topic, message.getMsgId()))));
        add("byOffsetId", () -> rows(List.of(admin.viewMessage(topic, ((MessageClientExt) message).getOffsetMsgId()))));
        add("track", () -> admin.messageTrackDetail(message));
    }

    private List<MessageExt> byKey(String topic, String key) throws Exception {
        return admin.queryMessage(topic, key, 64, 0, System.currentTimeMillis()).getMessageList();
    }

    private static List<String> rows(List<MessageExt> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(each -> found.add(Consumers.row(each)));
        return found;
    }

    private void add(String name, Call call) {
        String text;
        try {
            Object found = call.answer();
            text = found == null ? "null" : RemotingSerializable.toJson(found, false);
        } catch (Exception fault) {
            text = Consumers.quoted(fault.getClass().getSimpleName() + ": " + fault.getMessage());
        }
        answers.put(name, text);
    }

    /** Waits until the consumer has the topic's queues, and the server has heard of it. */
    private void awaitQueues(String topic, String group, String client) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(MILLISECONDS);
        int queues = admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getReadQueueNums();
        while (true) {
            try {
                if (admin.getConsumerRunningInfo(group, client, false).getMqTable().keySet().stream()
                    .filter(each -> each.getTopic().equals(topic)).count() == queues) {
                    return;
                }
            } catch (Exception notYet) {
                if (System.nanoTime() > end) {
                    throw notYet;
                }
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException("the consumer has no queues");
            }
            Thread.sleep(50);
        }
    }

    private static DefaultMQPushConsumer consumer(String port, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr("127.0.0.1:" + port);
        consumer.setInstanceName("watcher");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.subscribe(topic, "*");
        consumer.start();
        return consumer;
    }

    private static String clientId(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }
}
