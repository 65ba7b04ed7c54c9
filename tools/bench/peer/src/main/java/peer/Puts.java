package peer;

import java.net.InetSocketAddress;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/** Work that writes. Messages are made anew for each put, as the broker makes them of a request. */
final class Puts {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final String TAG = "TagA";

    private final OpenStore opened;
    private final DefaultMessageStore store;
    private final Queues queues;
    private final byte[] body;
    private final boolean keys;
    private long produced;

    Puts(OpenStore opened, Queues queues, Settings settings) {
        this.opened = opened;
        this.store = opened.store;
        this.queues = queues;
        keys = settings.number("keys", 0) == 1;
        body = new byte[settings.number("body", 128)];
        for (int at = 0; at < body.length; at++) {
            body[at] = (byte) (at * 31);
        }
    }

    /** One message a call, until all are in their queues. */
    Figures single(int count, int threads) throws Exception {
        long first = produced;
        produced += count;
        return timed(count, () -> inThreads(threads, worker -> {
            for (long number = first + worker; number < first + count; number += threads) {
                require(store.putMessage(message(queues.of(number), number)));
            }
        }));
    }

    /** Client batches of {@code size} messages of one queue; their bodies come ready from the client. */
    Figures batches(int count, int size) throws Exception {
        Message one = new Message("", TAG, body);
        MessageAccessor.clearProperty(one, MessageConst.PROPERTY_WAIT_STORE_MSG_OK); // single puts have none
        byte[] encoded = MessageDecoder.encodeMessages(Collections.nCopies(size, one));
        long first = produced;
        produced += count / size;
        return timed(count, () -> {
            for (long number = first; number < first + count / size; number++) {
                MessageExtBatch batch = filled(new MessageExtBatch(), queues.of(number), encoded);
                require(store.putMessages(batch));
            }
        });
    }

    /** Puts at a steady pace, each counted from its call and from the moment it was due. */
    Figures paced(int count, int rate) throws Exception {
        long[] calls = new long[count];
        long[] waits = new long[count];
        Figures took = timed(count, () -> {
            long begin = System.nanoTime();
            for (int at = 0; at < count; at++) {
                long due = begin + at * 1_000_000_000L / rate;
                for (long now = System.nanoTime(); now < due; now = System.nanoTime()) {
                    LockSupport.parkNanos(due - now);
                }
                long called = System.nanoTime();
                require(store.putMessage(message(queues.of(produced), produced++)));
                long done = System.nanoTime();
                calls[at] = done - called;
                waits[at] = done - due;
            }
        });
        return took.withLatencies("call", calls).withLatencies("due", waits);
    }

    /** Deletes the topics of all queues, one a call, and syncs that; they are filled again by the next puts. */
    Figures deleteTopics() throws Exception {
        opened.awaitDispatched();
        String[] topics = queues.topics();
        return timed(topics.length, () -> {
            for (String topic : topics) {
                if (store.deleteTopics(Set.of(topic)) != 1) {
                    throw new IllegalStateException(topic + " was not deleted");
                }
            }
            opened.syncQueues();
        });
    }

    private interface Work {
        void run() throws Exception;
    }

    private interface Worker {
        void run(int number) throws Exception;
    }

    private Figures timed(int count, Work work) throws Exception {
        double cpu = Figures.cpuSeconds();
        long begin = System.nanoTime();
        work.run();
        double called = (System.nanoTime() - begin) / 1e9;
        opened.awaitDispatched();
        double seconds = (System.nanoTime() - begin) / 1e9;
        return Figures.of("count", count).with("seconds", seconds).with("called_seconds", called)
            .with("cpu_seconds", Figures.cpuSeconds() - cpu);
    }

    private static void inThreads(int count, Worker work) throws Exception {
        Throwable[] failures = new Throwable[count];
        Thread[] threads = new Thread[count];
        for (int at = 0; at < count; at++) {
            int worker = at;
            threads[at] = new Thread(() -> {
                try {
                    work.run(worker);
                } catch (Throwable failure) {
                    failures[worker] = failure;
                }
            });
            threads[at].start();
        }
        for (int at = 0; at < count; at++) {
            threads[at].join();
            if (failures[at] != null) {
                throw new IllegalStateException(failures[at]);
            }
        }
    }

    private MessageExtBrokerInner message(int queue, long number) {
        MessageExtBrokerInner message = filled(new MessageExtBrokerInner(), queue, body);
        message.setTags(TAG);
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, TAG));
        if (keys) {
            message.setKeys("key-" + number);
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private <M extends MessageExtBrokerInner> M filled(M message, int queue, byte[] content) {
        message.setTopic(queues.topic(queue));
        message.setQueueId(queues.id(queue));
        message.setBody(content);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        return message;
    }

    private static void require(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) { // isOk() is true of a slave's timeout too
            throw new IllegalStateException("a put answers " + result);
        }
    }
}
