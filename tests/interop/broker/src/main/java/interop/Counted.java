package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's producer and pull consumer, which tell the key of each message that they had acknowledged or received. */
final class Counted {
    private static final String NAME = "a";
    private final String names;
    private final Map<String, DefaultMQPullConsumer> consumers = new HashMap<>();
    private DefaultMQProducer producer;

    Counted(String names) {
        this.names = names;
    }

    /** Sends messages with keys NAME0, NAME1 … to queues 0, 1 … by turns, also to light queues if some are named. */
    Object send(String topic, int queues, int count, String name, String lights) throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer("counted");
            producer.setNamesrvAddr(names);
            producer.setInstanceName("counted");
            producer.start();
        }
        List<String> acknowledged = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "", name + i, name.getBytes(StandardCharsets.UTF_8));
            if (lights != null) {
                MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, lights);
            }
            SendResult sent = producer.send(message, new MessageQueue(topic, NAME, i % queues));
            if (sent.getSendStatus() == SendStatus.SEND_OK) {
                acknowledged.add(message.getKeys());
            }
        }
        return Map.of("keys", acknowledged);
    }

    /** Pulls from the group's offset to the end of a queue, and commits; ROUTED is a topic that names the broker. */
    Object consume(String group, String routed, String topic, int queue) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(group);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer(group);
            consumer.setNamesrvAddr(names);
            consumer.setInstanceName(group);
            consumer.start();
            consumer.fetchSubscribeMessageQueues(routed);
            consumers.put(group, consumer);
        }
        MessageQueue place = new MessageQueue(topic, NAME, queue);
        long at = Math.max(consumer.fetchConsumeOffset(place, true), 0);
        List<String> keys = new ArrayList<>();
        String status;
        do {
            PullResult found;
            try {
                found = consumer.pull(place, "*", at, 32);
            } catch (MQBrokerException fault) {
                return Map.of("keys", keys, "status", "code " + fault.getResponseCode(), "offset", at);
            }
            status = found.getPullStatus().name();
            if (found.getPullStatus() == PullStatus.FOUND) {
                found.getMsgFoundList().forEach(message -> keys.add(message.getKeys()));
                at = found.getNextBeginOffset();
            }
        } while (status.equals("FOUND"));
        consumer.getOffsetStore().updateConsumeOffsetToBroker(place, at, false);
        return Map.of("keys", keys, "status", status, "offset", at);
    }

    void shutdown() {
        consumers.values().forEach(DefaultMQPullConsumer::shutdown);
        if (producer != null) {
            producer.shutdown();
        }
    }
}
