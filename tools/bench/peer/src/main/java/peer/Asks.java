package peer;

import java.nio.ByteBuffer;
import java.util.List;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/** Work that reads; {@code answer} is a sum over what came, the same on both sides for the same store. */
final class Asks {
    private static final int PULL = 32;
    /** A prime that has nothing to do with the stride of the queues. */
    private static final long STEP = 104729;

    private final DefaultMessageStore store;
    private final Queues queues;
    private long asked;

    Asks(DefaultMessageStore store, Queues queues) {
        this.store = store;
        this.queues = queues;
    }

    private interface Ask {
        long answer(int queue, long number) throws Exception;
    }

    /** Pulls of 32 messages: where they lie, and their bytes in the log. */
    Figures pull(int count) throws Exception {
        long places = store.getMaxOffsetInQueue(queues.topic(0), 0) - PULL + 1;
        return timed(count, (queue, number) -> {
            GetMessageResult result = pulled(queue, number * STEP % places);
            long answer = result.getBufferTotalSize();
            result.release();
            return answer;
        });
    }

    /** Pulls of 32 messages, their bytes gathered in one buffer, as PullMessageProcessor.readGetMessageResult does. */
    Figures gather(int count) throws Exception {
        long places = store.getMaxOffsetInQueue(queues.topic(0), 0) - PULL + 1;
        return timed(count, (queue, number) -> {
            GetMessageResult result = pulled(queue, number * STEP % places);
            ByteBuffer gathered = ByteBuffer.allocate(result.getBufferTotalSize());
            for (ByteBuffer record : result.getMessageBufferList()) {
                gathered.put(record);
            }
            result.release();
            byte[] raw = gathered.array();
            return raw.length + (raw[3] & 0xff) + (raw[raw.length - 1] & 0xff);
        });
    }

    /** The same, each message decoded: body, properties, tag. */
    Figures decode(int count) throws Exception {
        long places = store.getMaxOffsetInQueue(queues.topic(0), 0) - PULL + 1;
        return timed(count, (queue, number) -> {
            GetMessageResult result = pulled(queue, number * STEP % places);
            long answer = 0;
            for (ByteBuffer record : result.getMessageBufferList()) {
                MessageExt message = MessageDecoder.decode(record, true, false);
                answer += message.getBody().length + message.getQueueOffset() + message.getTags().length();
            }
            result.release();
            return answer;
        });
    }

    private GetMessageResult pulled(int queue, long offset) {
        GetMessageResult result = store.getMessage("g", queues.topic(queue), queues.id(queue), offset, PULL, null);
        if (result.getMessageCount() != PULL) {
            throw new IllegalStateException(result.getMessageCount() + " messages, " + result.getStatus());
        }
        return result;
    }

    /** Searches by store time, spread over the time in which the queues were filled. */
    Figures time(int count) throws Exception {
        long units = store.getMaxOffsetInQueue(queues.topic(0), 0);
        long first = store.getMessageStoreTimeStamp(queues.topic(0), 0, 0);
        long span = store.getMessageStoreTimeStamp(queues.topic(0), 0, units - 1) - first + 1;
        return timed(count, (queue, number) ->
            store.getOffsetInQueueByTime(queues.topic(queue), queues.id(queue), first + number * STEP % span));
    }

    /** Queries by a key that one message has. */
    Figures query(int count) throws Exception {
        long messages = store.getMaxOffsetInQueue(queues.topic(0), 0) * queues.count;
        return timed(count, (queue, number) -> {
            long wanted = number * STEP % messages;
            String topic = queues.topic(queues.of(wanted));
            QueryMessageResult result = store.queryMessage(topic, "key-" + wanted, PULL, 0, Long.MAX_VALUE);
            long answer = result.getBufferTotalSize();
            if (result.getMessageBufferList().size() != 1) {
                answer = sizeOf("key-" + wanted, result.getMessageBufferList());
            }
            result.release();
            return answer;
        });
    }

    /** The store returns what has the same hash too (1,822 pairs of 2,000,000 keys here): clients tell them apart. */
    private static long sizeOf(String key, List<ByteBuffer> found) throws Exception {
        long[] sizes = found.stream().filter(record -> key.equals(MessageDecoder.decode(record.duplicate()).getKeys()))
            .mapToLong(ByteBuffer::remaining).toArray();
        if (sizes.length != 1) {
            throw new IllegalStateException(key + " was found " + sizes.length + " times of " + found.size());
        }
        return sizes[0];
    }

    private Figures timed(int count, Ask ask) throws Exception {
        long answer = 0;
        double cpu = Figures.cpuSeconds();
        long begin = System.nanoTime();
        for (long end = asked + count; asked < end; asked++) {
            answer += ask.answer(queues.of(asked), asked);
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        return Figures.of("count", count).with("seconds", seconds)
            .with("cpu_seconds", Figures.cpuSeconds() - cpu).with("answer", answer);
    }
}
