package interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a consumer of RocketMQ's that never stop; a busy machine has half a minute for each answer.
 *
 * <pre>Traffic NAMESERVER TOPIC GROUP</pre>
 *
 * Each message is sent once by the program, and as often as the client sends it by itself. It answers the lines figures
 * (so far), gap (these, with the longest time without an acknowledgement since the last gap), elect CONTROLLER CLUSTER BROKER ID
 * (as mqadmin electMaster does), quiet (no more is sent; returns once all that was acknowledged is received, or after a
 * minute) and resume.
 */
public final class Traffic {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final long LIMIT_MS = 60_000;
    private static final int START_MS = 30_000;
    private static final long PAUSE_MS = 20;
    private static final long AGAIN_MS = 200;

    private final Set<Long> acknowledged = ConcurrentHashMap.newKeySet();
    private final Map<Long, Integer> received = new ConcurrentHashMap<>();
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;
    private final String topic;
    private volatile boolean sending = true;
    private volatile boolean busy;
    private volatile long failed;
    private volatile long longest;
    private volatile long last;
    private volatile String fault = "";

    private Traffic(String names, String topic, String group) throws Exception {
        this.topic = topic;
        producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(names);
        producer.setInstanceName("producer");
        producer.setMqClientApiTimeout(START_MS);
        consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("consumer");
        consumer.setMqClientApiTimeout(START_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received.merge(Long.valueOf(message.getKeys()), 1, Integer::sum);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    public static void main(String[] words) {
        System.setOut(System.err);
        int code = 0;
        try {
            Traffic traffic = new Traffic(words[0], words[1], words[2]);
            traffic.producer.start();
            traffic.consumer.start();
            Thread sender = new Thread(traffic::send, "sender");
            sender.setDaemon(true);
            sender.start();
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                OUT.println(JSON.toJSONString(traffic.answer(line.split(" "))));
                OUT.flush();
            }
            traffic.consumer.shutdown();
            traffic.producer.shutdown();
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            code = 1;
        }
        Runtime.getRuntime().halt(code);
    }

    private void send() {
        for (long id = 0; ; id++) {
            try {
                while (!sending) {
                    Thread.sleep(PAUSE_MS);
                }
                busy = true;
                byte[] body = ("message " + id).getBytes(StandardCharsets.UTF_8);
                var sent = producer.send(new Message(topic, "", String.valueOf(id), body));
                if (sent.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(sent.getSendStatus().name());
                }
                acknowledged.add(id);
                long now = System.currentTimeMillis();
                longest = Math.max(longest, last == 0 ? 0 : now - last);
                last = now;
                busy = false;
                Thread.sleep(PAUSE_MS);
            } catch (Exception thrown) {
                failed++;
                fault = String.valueOf(thrown.getMessage());
                busy = false;
                try {
                    Thread.sleep(AGAIN_MS);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        }
    }

    private Object answer(String[] words) throws Exception {
        switch (words[0]) {
            case "elect":
                producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
                    .electMaster(words[1], words[2], words[3], Long.valueOf(words[4]));
                return Map.of();
            case "quiet":
                sending = false;
                long until = System.currentTimeMillis() + LIMIT_MS;
                while ((busy || !received.keySet().containsAll(acknowledged)) && System.currentTimeMillis() < until) {
                    Thread.sleep(PAUSE_MS);
                }
                return figures();
            case "resume":
                last = 0;
                sending = true;
                return Map.of();
            case "gap":
                Map<String, Object> found = figures();
                longest = 0;
                return found;
            default:
                return figures();
        }
    }

    private Map<String, Object> figures() {
        Map<String, Object> answer = new LinkedHashMap<>();
        List<Long> lost = new ArrayList<>(acknowledged);
        lost.removeAll(received.keySet());
        answer.put("acknowledged", acknowledged.size());
        answer.put("failed", failed);
        answer.put("received", received.size());
        answer.put("missing", lost);
        answer.put("twice", received.values().stream().filter(count -> count > 1).count());
        answer.put("gapMs", longest);
        answer.put("sinceMs", last == 0 ? 0 : System.currentTimeMillis() - last);
        answer.put("fault", fault);
        return answer;
    }
}
