package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Consumers of RocketMQ's, and mqadmin, for a name server at 127.0.0.1. Each line of its input is answered by a line.
 *
 * <pre>
 * push PORT GROUP TOPIC EXPRESSION COUNT [BROADCASTING|orderly]   until COUNT messages came
 * lite PORT GROUP TOPIC EXPRESSION COUNT
 * pull PORT GROUP TOPIC EXPRESSION [USER SECRET]   each queue from 0 to its end
 * held PORT GROUP TOPIC QUEUE OFFSET MILLISECONDS   one pull that waits at a broker; how long it took, and its status
 * send PORT GROUP TOPIC   what a producer is told
 * dashboard PORT ADDRESS TOPIC GROUP KEY OTHER_GROUP   see {@link Dashboard}
 * admin WORDS…   what mqadmin prints, its errors included
 * </pre>
 */
public final class Consumers {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final int SECONDS = 60;

    private Consumers() { }

    public static void main(String[] words) throws Exception {
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        say("{\"ready\":true}");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] asked = line.split("\t");
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
            case "push":
                return push(words);
            case "lite":
                return lite(words);
            case "pull":
                return pull(words);
            case "held":
                return held(words);
            case "send":
                return send(words);
            case "dashboard":
                return Dashboard.answer(words);
            case "admin":
                return admin(Arrays.copyOfRange(words, 1, words.length));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String push(String[] words) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[2]);
        consumer.setNamesrvAddr("127.0.0.1:" + words[1]);
        consumer.setInstanceName(words[2] + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String kind = words.length > 6 ? words[6] : "";
        if (kind.equals("BROADCASTING")) {
            broadcast(consumer);
        }
        int count = Integer.parseInt(words[5]);
        Found found = new Found(count);
        if (kind.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(found::add);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(found::add);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.subscribe(words[3], words[4]);
        consumer.start();
        found.await();
        consumer.shutdown();
        return found.json();
    }

    /** 4.9 and 5 have the enum of models in different packages. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Object[] models = method.getParameterTypes()[0].getEnumConstants();
                method.invoke(consumer, Arrays.stream(models).filter(each -> each.toString().equals("BROADCASTING"))
                    .findFirst().orElseThrow());
            }
        }
    }

    private static String lite(String[] words) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(words[2]);
        consumer.setNamesrvAddr("127.0.0.1:" + words[1]);
        consumer.setInstanceName(words[2] + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(words[3], words[4]);
        consumer.start();
        int count = Integer.parseInt(words[5]);
        Found found = new Found(count);
        long end = System.currentTimeMillis() + SECONDS * 1000;
        while (found.size() < count && System.currentTimeMillis() < end) {
            consumer.poll(200).forEach(found::add);
        }
        consumer.commitSync();
        consumer.shutdown();
        return found.json();
    }

    private static String pull(String[] words) throws Exception {
        DefaultMQPullConsumer consumer = puller(words, words.length > 6
            ? new AclClientRPCHook(new SessionCredentials(words[5], words[6])) : null);
        Found found = new Found(Integer.MAX_VALUE);
        StringBuilder ends = new StringBuilder();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(words[3])) {
            long offset = consumer.minOffset(queue);
            ends.append(ends.length() == 0 ? "" : ",").append("[").append(queue.getQueueId()).append(",")
                .append(consumer.minOffset(queue)).append(",").append(consumer.maxOffset(queue)).append(",")
                .append(consumer.searchOffset(queue, System.currentTimeMillis())).append("]");
            boolean more = true;
            while (more) {
                PullResult result = consumer.pull(queue, words[4], offset, 32);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(found::add);
                }
                more = result.getNextBeginOffset() > offset;
                offset = result.getNextBeginOffset();
            }
            consumer.updateConsumeOffset(queue, offset);
        }
        consumer.shutdown();
        return "{\"ends\":[" + ends + "],\"found\":" + found.json() + "}";
    }

    private static String held(String[] words) throws Exception {
        DefaultMQPullConsumer consumer = puller(words, null);
        consumer.setBrokerSuspendMaxTimeMillis(Long.parseLong(words[6]));
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(words[3]).stream()
            .filter(each -> each.getQueueId() == Integer.parseInt(words[4])).findFirst().orElseThrow();
        long begin = System.nanoTime();
        PullResult result = consumer.pullBlockIfNotFound(queue, "*", Long.parseLong(words[5]), 32);
        long took = (System.nanoTime() - begin) / 1_000_000;
        consumer.shutdown();
        return "{\"milliseconds\":" + took + ",\"status\":" + quoted(result.getPullStatus().name()) + ",\"next\":"
            + result.getNextBeginOffset() + "}";
    }

    private static String send(String[] words) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(words[2]);
        producer.setNamesrvAddr("127.0.0.1:" + words[1]);
        producer.setInstanceName(words[2] + System.nanoTime());
        producer.start();
        try {
            return "{\"status\":" + quoted(producer.send(new Message(words[3], "x".getBytes())).getSendStatus().name()) + "}";
        } catch (Exception refused) {
            return "{\"refused\":" + quoted(refused.toString()) + "}";
        } finally {
            producer.shutdown();
        }
    }

    @SuppressWarnings("deprecation")
    private static DefaultMQPullConsumer puller(String[] words, RPCHook hook) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(words[2], hook);
        consumer.setNamesrvAddr("127.0.0.1:" + words[1]);
        consumer.setInstanceName(words[2] + System.nanoTime());
        consumer.start();
        return consumer;
    }

    private static String admin(String[] words) {
        PrintStream before = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        try {
            System.setOut(both);
            System.setErr(both);
            MQAdminStartup.main0(words, null);
        } finally {
            System.setOut(before);
            System.setErr(before);
        }
        return "{\"printed\":" + quoted(printed.toString(StandardCharsets.UTF_8)) + "}";
    }

    /** Messages as rows, each once: a consumer may be given one again. */
    private static final class Found {
        private final ConcurrentHashMap<String, String> rows = new ConcurrentHashMap<>();
        private final CountDownLatch left;

        Found(int count) {
            left = new CountDownLatch(count);
        }

        void add(MessageExt message) {
            String key = message.getTopic() + "/" + message.getQueueId() + "/" + message.getQueueOffset();
            if (rows.put(key, row(message)) == null) {
                left.countDown();
            }
        }

        int size() {
            return rows.size();
        }

        void await() throws InterruptedException {
            left.await(SECONDS, TimeUnit.SECONDS);
        }

        String json() {
            return "[" + String.join(",", new ArrayList<>(rows.values())) + "]";
        }
    }

    static String row(MessageExt message) {
        List<String> properties = new ArrayList<>();
        new TreeMap<>(message.getProperties()).forEach((key, value) -> properties.add(quoted(key) + ":" + quoted(value)));
        return "{\"topic\":" + quoted(message.getTopic()) + ",\"queueId\":" + message.getQueueId() + ",\"queueOffset\":"
            + message.getQueueOffset() + ",\"phy\":" + message.getCommitLogOffset() + ",\"storeSize\":" + message.getStoreSize()
            + ",\"bodyCRC\":" + message.getBodyCRC() + ",\"flag\":" + message.getFlag() + ",\"bornTimestamp\":"
            + message.getBornTimestamp() + ",\"storeTimestamp\":" + message.getStoreTimestamp() + ",\"reconsumeTimes\":"
            + message.getReconsumeTimes() + ",\"body\":" + quoted(digest(message.getBody())) + ",\"properties\":{"
            + String.join(",", properties) + "}}";
    }

    private static String digest(byte[] body) {
        try {
            StringBuilder text = new StringBuilder();
            for (byte each : MessageDigest.getInstance("SHA-256").digest(body == null ? new byte[0] : body)) {
                text.append(String.format("%02x", each));
            }
            return text.toString();
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static String quoted(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                made.append('\\').append(each);
            } else if (each < 0x20 || each > 0x7e) {
                made.append(String.format("\\u%04x", (int) each));
            } else {
                made.append(each);
            }
        }
        return made.append('"').toString();
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }
}
