package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Producers and push consumers of RocketMQ's, for a name server at 127.0.0.1. Each line of its input is answered by a
 * line.
 *
 * <pre>
 * send PORT TOPIC COUNT NAME sync|oneway|batch|delay|select   bodies NAME0 …; what the producer is told of each
 * open PORT NAME GROUP TOPIC concurrent|orderly FAILS MAX_RECONSUME_TIMES   a consumer that fails each message FAILS times
 * queues NAME TOPIC   the ids of the queues that the consumer has
 * received NAME   the messages that it has taken without a failure, in order
 * close NAME
 * </pre>
 */
public final class Writers {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final Map<String, Opened> CONSUMERS = new ConcurrentHashMap<>();

    private Writers() { }

    public static void main(String[] words) throws Exception {
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        say("{\"ready\":true}");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] asked = line.split("\t", -1);
            try {
                say(answer(asked));
            } catch (Exception fault) {
                fault.printStackTrace();
                say("{\"fault\":" + quoted(fault.toString()) + "}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "send":
                return send(words);
            case "open":
                CONSUMERS.put(words[2], new Opened(words));
                return "{\"opened\":true}";
            case "queues":
                return CONSUMERS.get(words[1]).queues(words[2]);
            case "received":
                return CONSUMERS.get(words[1]).received();
            case "close":
                CONSUMERS.remove(words[1]).consumer.shutdown();
                return "{\"closed\":true}";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String send(String[] words) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr("127.0.0.1:" + words[1]);
        producer.setInstanceName("producer" + System.nanoTime());
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        List<String> results = new ArrayList<>();
        try {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(words[3]); i++) {
                String text = words[4] + i;
                Message message = new Message(words[2], i % 2 == 0 ? "even" : "odd", text + " all",
                    text.getBytes(StandardCharsets.UTF_8));
                message.setFlag(i);
                message.putUserProperty("number", String.valueOf(i));
                switch (words[5]) {
                    case "oneway":
                        producer.sendOneway(message);
                        break;
                    case "batch":
                        batch.add(message);
                        break;
                    case "delay":
                        message.setDelayTimeLevel(1);
                        results.add(result(producer.send(message)));
                        break;
                    case "select":
                        results.add(result(producer.send(message, (queues, sent, number) ->
                            queues.get((Integer) number % queues.size()), i)));
                        break;
                    default:
                        results.add(result(producer.send(message)));
                }
            }
            if (!batch.isEmpty()) {
                results.add(result(producer.send(batch)));
            }
        } catch (Exception refused) {
            return "{\"refused\":" + quoted(refused.toString()) + "}";
        } finally {
            producer.shutdown();
        }
        return "[" + String.join(",", results) + "]";
    }

    private static String result(SendResult sent) {
        return "{\"status\":" + quoted(sent.getSendStatus().name()) + ",\"msgId\":" + quoted(sent.getMsgId())
            + ",\"offsetMsgId\":" + quoted(sent.getOffsetMsgId()) + ",\"queueId\":" + sent.getMessageQueue().getQueueId()
            + ",\"queueOffset\":" + sent.getQueueOffset() + ",\"region\":" + quoted(sent.getRegionId())
            + ",\"traced\":" + sent.isTraceOn() + ",\"transactionId\":" + quoted(sent.getTransactionId()) + "}";
    }

    /** A consumer that runs. */
    private static final class Opened {
        private final DefaultMQPushConsumer consumer;
        private final List<String> rows = Collections.synchronizedList(new ArrayList<>());
        private final Map<String, Integer> failed = new ConcurrentHashMap<>();
        private final int fails;

        Opened(String[] words) throws Exception {
            consumer = new DefaultMQPushConsumer(words[3]);
            consumer.setNamesrvAddr("127.0.0.1:" + words[1]);
            consumer.setInstanceName(words[2]);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setMaxReconsumeTimes(Integer.parseInt(words[7]));
            consumer.setSuspendCurrentQueueTimeMillis(10);
            fails = Integer.parseInt(words[6]);
            if (words[5].equals("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> take(messages)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> take(messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
            }
            consumer.subscribe(words[4], "*");
            consumer.start();
        }

        private boolean take(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                String key = new String(message.getBody(), StandardCharsets.UTF_8);
                if (failed.merge(key, 1, Integer::sum) <= fails) {
                    return false;
                }
                rows.add(row(message));
            }
            return true;
        }

        String queues(String topic) {
            return "[" + consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(each -> each.getTopic().equals(topic)).map(MessageQueue::getQueueId).sorted().map(String::valueOf)
                .collect(Collectors.joining(",")) + "]";
        }

        String received() {
            synchronized (rows) {
                return "[" + String.join(",", rows) + "]";
            }
        }
    }

    private static String row(MessageExt message) {
        List<String> properties = new ArrayList<>();
        new TreeMap<>(message.getProperties()).forEach((key, value) -> properties.add(quoted(key) + ":" + quoted(value)));
        return "{\"topic\":" + quoted(message.getTopic()) + ",\"queueId\":" + message.getQueueId() + ",\"queueOffset\":"
            + message.getQueueOffset() + ",\"reconsumeTimes\":" + message.getReconsumeTimes() + ",\"offsetMsgId\":"
            + quoted(message instanceof org.apache.rocketmq.common.message.MessageClientExt
                ? ((org.apache.rocketmq.common.message.MessageClientExt) message).getOffsetMsgId() : message.getMsgId())
            + ",\"body\":" + quoted(new String(message.getBody(), StandardCharsets.UTF_8)) + ",\"properties\":{"
            + String.join(",", properties) + "}}";
    }

    private static String quoted(String text) {
        return text == null ? "null" : Consumers.quoted(text);
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }
}
